package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/wire/http"
)

// sold is a session with two servers, of which the second is not running.
func sold(t *testing.T) (*env, *session) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	t.Cleanup(server.Close)
	rec := newRecorder(clock.New())
	s := &session{
		c: &Conductor{config: Config{Progress: func(Progress) {}}}, scenario: harness.Scenario{Name: "hotel/on-sale"}, rec: rec,
		servers: []*replica{{name: "sut-1", rec: rec, url: server.URL}, {name: "sut-2", rec: rec}},
		client:  wirehttp.New(wirehttp.Config{Clock: rec.clock, Timeout: 10 * time.Second, OpID: rec.opID, RunID: "test"}),
	}
	return &env{s}, s
}

func visits(server string) func(context.Context, harness.Visitor) {
	return func(ctx context.Context, c harness.Visitor) {
		for _, kind := range []string{"hold", "charge"} {
			c.Do(ctx, harness.Request{Kind: kind, Process: c.N(), Server: server, Method: "POST", Path: "/"})
		}
	}
}

func delivered(t *testing.T, s *session) harness.Verdict {
	t.Helper()
	verdicts := check.Judge(s.scenario, s.rec.record(harness.Plan{}))
	return verdicts[slices.IndexFunc(verdicts, func(v harness.Verdict) bool { return v.ID == "delivered" })]
}

// What a load did is in the record: its report, its operations, when it was.
func TestLoadIsRecorded(t *testing.T) {
	e, s := sold(t)
	l := harness.OpenLoop{Name: "sale", Arrivals: make([]time.Duration, 50), Client: visits("sut-1"), Connections: 4, Deadline: time.Minute, Slack: time.Minute}
	report, ops, err := e.Load(t.Context(), l)
	if err != nil || report.Answered != 100 || len(ops) != 100 {
		t.Fatalf("%v, %+v", err, report)
	}
	rec := s.rec.record(harness.Plan{})
	if len(rec.History.Loads) != 1 || len(rec.History.OfKind("charge")) != 50 || len(rec.History.Operations) != 100 {
		t.Errorf("recorded: %d loads, %d operations", len(rec.History.Loads), len(rec.History.Operations))
	}
	if events := rec.History.Events; len(events) != 1 || events[0].At != report.Started || events[0].Until != report.Ended || !strings.Contains(events[0].Text, "50 of 50 clients came") {
		t.Errorf("events %+v", rec.History.Events)
	}
	if v := delivered(t, s); v.Status != harness.Pass {
		t.Errorf("delivery: %v %s", v.Status, v.Summary)
	}
}

// A server that is not running refuses, which is no fault of the load's; an
// answer can be lost on purpose.
func TestLoadMeetsFaults(t *testing.T) {
	e, s := sold(t)
	l := harness.OpenLoop{Name: "sale", Arrivals: make([]time.Duration, 4), Client: visits("sut-2"), Connections: 4, Deadline: time.Minute, Slack: time.Minute}
	report, ops, err := e.Load(t.Context(), l)
	if err != nil || report.Refused != 8 || report.Unsent != 0 || ops[0].Outcome != harness.Fail || !strings.HasPrefix(ops[0].Err, "refused: sut-2 is not running") {
		t.Errorf("%v, %+v, %+v", err, report, ops)
	}
	fault := s.injectResponse(harness.Fault{Action: harness.ActionDrop, At: harness.BeforeResponse, Match: "charge", Nth: 2})
	defer fault.Heal()
	l.Name, l.Client = "again", visits("sut-1")
	report, ops, err = e.Load(t.Context(), l)
	lost := slices.DeleteFunc(ops, func(op harness.Operation) bool { return op.Outcome == harness.OK })
	if err != nil || report.Answered != 7 || report.Broken != 1 || len(lost) != 1 || lost[0].Kind != "charge" || lost[0].Outcome != harness.Info {
		t.Errorf("%v, %+v, %+v", err, report, lost)
	}
	if v := delivered(t, s); v.Status != harness.Pass {
		t.Errorf("delivery: %v %s", v.Status, v.Summary)
	}
}

// A load that was cut off or interrupted is no pass, and who interrupts gets the error.
func TestLoadThatDoesNotComeToItsEnd(t *testing.T) {
	stays := func(ctx context.Context, c harness.Visitor) { _ = c.Pause(ctx, time.Hour) }
	for name, interrupted := range map[string]bool{"its deadline": false, "an interruption": true} {
		t.Run(name, func(t *testing.T) {
			e, s := sold(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			client := func(ctx context.Context, c harness.Visitor) {
				visits("sut-1")(ctx, c)
				if interrupted {
					cancel(errInterrupted)
				}
				stays(ctx, c)
			}
			_, ops, err := e.Load(ctx, harness.OpenLoop{Name: "sale", Arrivals: make([]time.Duration, 1), Client: client, Connections: 1, Deadline: time.Second, Slack: time.Minute})
			if errors.Is(err, errInterrupted) != interrupted || (err == nil) == interrupted {
				t.Errorf("error %v", err)
			}
			if v := delivered(t, s); v.Status != harness.Unknown || v.Reason != harness.ReasonUndelivered || !strings.Contains(v.Summary, "cut off") {
				t.Errorf("delivery: %v %s", v.Status, v.Summary)
			}
			if len(ops) != 2 || ops[1].Outcome != harness.OK {
				t.Errorf("operations %+v", ops)
			}
		})
	}
}

func TestLoadsThatAreMistakes(t *testing.T) {
	for want, l := range map[string]harness.OpenLoop{
		"scenario hotel/on-sale: open loop sale: nobody arrives": {Name: "sale"},
		`addresses the server "sut-9"`:                           {Name: "sale", Arrivals: make([]time.Duration, 2), Client: visits("sut-9"), Connections: 1, Deadline: time.Minute},
	} {
		t.Run(want, func(t *testing.T) {
			e, _ := sold(t)
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("panicked with %s, want %q", p, want)
				}
			}()
			_, _, _ = e.Load(t.Context(), l)
		})
	}
}
