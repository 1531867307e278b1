package check_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

const (
	user  = 4 // clients of the fixture's burst
	query = "-- at most one row wins\nselect 1 from winners\n"
)

var files = fstest.MapFS{"invariants/one.sql": {Data: []byte(query)}}

// at is an offset in milliseconds.
func at(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// fixture is a small scenario with one check of every sort.
func fixture() harness.Scenario {
	return harness.Scenario{Name: "hotel/one-room", Checks: func(p harness.Params) []harness.Check {
		users := p.Int("users")
		return []harness.Check{
			check.SQL("sql", files, "invariants/one.sql", "here"),
			check.Calls(check.CallRule{
				ID: "calls", Doc: "one call per room", Upstream: "desk", Method: "POST", Path: "/book", Key: room,
				Want: func(harness.Record) map[string]check.Bounds { return map[string]check.Bounds{"101": check.Exactly(1)} },
			}),
			check.Calls(check.CallRule{ID: "each", Doc: "no room twice", Upstream: "desk", Method: "POST", Path: "/book", Key: room, Each: check.AtMost(1)}),
			check.Tally(check.TallyRule{
				ID: "answers", Doc: "one winner", Group: func(op harness.Operation) string { return op.Burst },
				Want: func(harness.Record) map[string]map[string]int {
					return map[string]map[string]int{"burst": {"201": 1, "409": users - 1}}
				},
			}),
			check.NoOpenTransaction("open", "desk"),
		}
	}}
}

func room(c harness.UpstreamCall) string {
	room, _ := strings.CutPrefix(c.Request, "room ")
	return room
}

// whole is a record in which everything was seen and nothing is wrong.
func whole() harness.Record {
	rec := harness.Record{
		Plan: harness.Plan{SchemaVersion: 1, Scenario: "hotel/one-room", Seed: 7, Params: harness.Params{"users": fmt.Sprint(user)}, Choices: json.RawMessage(`{}`)},
		History: harness.History{
			Bursts: []harness.BurstReport{{Name: "burst", Requests: user, Ready: user, Sent: user, Answered: user, Released: at(100), Spread: 42 * time.Microsecond, MaxInFlight: user}},
		},
		Upstream: []harness.UpstreamCall{{
			Seq: 1, Upstream: "desk", Caller: "sut-1", Method: "POST", Path: "/book", Op: "op-1", Request: "room 101", Status: 201,
			Received: at(110), Forwarded: at(111), Accepted: at(209), Answered: at(210),
		}},
		Counts:   []harness.UpstreamCount{{Upstream: "desk", Method: "POST", Path: "/book", Ledger: 1, WireMock: 1}},
		Rows:     map[string]harness.Rows{"sql": {Query: "sql", SQL: query, Rows: []harness.Row{}}},
		Witness:  []harness.Witness{{Kind: "max_in_flight", Want: 2, Got: user}},
		Measured: map[string]float64{},
	}
	for _, p := range []string{"up", "drive", "settle", "collect", "down"} {
		rec.History.Events = append(rec.History.Events, harness.Event{At: 1, Until: 2, Kind: harness.EventPhase, Subject: p})
	}
	for i := range user {
		status, outcome := 409, harness.Fail
		if i == 0 {
			status, outcome = 201, harness.OK
		}
		rec.History.Operations = append(rec.History.Operations, harness.Operation{
			ID: fmt.Sprintf("op-%d", i+1), Process: i, Kind: "confirm", Burst: "burst", Server: "sut-1", Method: "POST", Path: "/confirm",
			Status: status, Intended: at(100), Sent: at(100.01), Answered: at(215), Outcome: outcome,
		})
	}
	for ms := 112.0; ms < 209; ms += 10 {
		rec.Activity = append(rec.Activity, harness.ActivitySample{At: at(ms)})
	}
	return rec
}

func troubled(r harness.Reason, text string) []harness.Trouble {
	return []harness.Trouble{{Reason: r, Text: text}}
}

// judged gives the verdict with the id.
func judged(t *testing.T, s harness.Scenario, rec harness.Record, id string) harness.Verdict {
	t.Helper()
	for _, v := range check.Judge(s, rec) {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("there is no verdict %q", id)
	return harness.Verdict{}
}

// expect compares a verdict's status, reason and sentence.
func expect(t *testing.T, v harness.Verdict, status harness.Status, reason harness.Reason, sentence string) {
	t.Helper()
	if v.Status != status || v.Reason != reason || v.Summary != sentence {
		t.Errorf("%s:\n got %v %q %q\nwant %v %q %q", v.ID, v.Status, v.Reason, v.Summary, status, reason, sentence)
	}
}

// badFiles are invariants that cannot be used.
var badFiles = fstest.MapFS{
	"bare.sql":  {Data: []byte("select 1\n")},
	"only.sql":  {Data: []byte("-- a rule and no query\n")},
	"empty.sql": {Data: []byte("-- \nselect 1\n")},
}
