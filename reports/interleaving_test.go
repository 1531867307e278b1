package reports

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

const us = time.Microsecond

// unitOf is a unit that goes over the wire at an instant and is answered 200
// microseconds later.
func unitOf(op string, session int, at time.Duration, change func(*harness.Unit), statements ...harness.Statement) harness.Unit {
	u := harness.Unit{
		Session: session, Server: "sut-1", Op: op, Tx: session, Before: "T", After: "T", Statements: statements,
		Arrived: at, Forwarded: at + 10*us, Answered: at + 210*us, Delivered: at + 220*us,
	}
	if change != nil {
		change(&u)
	}
	return u
}

func sql(text, tag string, params ...string) harness.Statement {
	return harness.Statement{SQL: text, Tag: tag, Params: params}
}

// TestUnitMoments: what one unit says about itself.
func TestUnitMoments(t *testing.T) {
	insert := sql("insert into seats\n  (seat) values ($1)", "INSERT 0 1", "A-001")
	for _, c := range []struct {
		name string
		unit harness.Unit
		want []string
	}{
		{"a statement", unitOf("op-1", 3, time.Millisecond, nil, insert), []string{
			"1.01ms op-1 sut-1 session 3: insert into seats (seat) values ($1) [A-001]  -> INSERT 0 1",
		}},
		{"autocommit", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Before, u.After, u.Committed = "I", "I", true }, sql("delete from seats", "DELETE 2")), []string{
			"10µs op-1 sut-1 session 3: delete from seats  -> DELETE 2, committed",
		}},
		{"COMMIT of an aborted transaction", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Before, u.After = "E", "I" }, sql("COMMIT", "ROLLBACK")), []string{
			"10µs op-1 sut-1 session 3: COMMIT  -> ROLLBACK",
		}},
		{"a long wait in Postgres", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Answered, u.Delivered = 15*time.Millisecond, 15*time.Millisecond }, insert), []string{
			"10µs op-1 sut-1 session 3: insert into seats (seat) values ($1) [A-001]  given to Postgres",
			"15ms op-1 sut-1 session 3: insert into seats (seat) values ($1) [A-001]  -> INSERT 0 1 after 15.0 ms",
		}},
		{"held before Postgres", unitOf("op-1", 3, 0, func(u *harness.Unit) {
			u.Forwarded, u.Answered, u.Delivered = 5*time.Millisecond, 6*time.Millisecond, 6*time.Millisecond
		}, sql("commit", "COMMIT")), []string{
			"0s op-1 sut-1 session 3: commit  here, held",
			"5ms op-1 sut-1 session 3: commit  let go after 5.000 ms  -> COMMIT",
		}},
		{"held, and then a long wait", unitOf("op-1", 3, 0, func(u *harness.Unit) {
			u.Forwarded, u.Answered, u.Delivered = 5*time.Millisecond, 9*time.Millisecond, 9*time.Millisecond
		}, sql("commit", "COMMIT")), []string{
			"0s op-1 sut-1 session 3: commit  here, held",
			"5ms op-1 sut-1 session 3: commit  let go after 5.000 ms  given to Postgres",
			"9ms op-1 sut-1 session 3: commit  -> COMMIT after 4.000 ms",
		}},
		{"its answer held", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Fault, u.Delivered = "hold at after-statement(seats, 1)", 9*time.Millisecond }, sql("select 1", "SELECT 1")), []string{
			"10µs op-1 sut-1 session 3: select 1  -> SELECT 1  fault: hold at after-statement",
			"9ms op-1 sut-1 session 3: select 1  its answer let go after 8.790 ms",
		}},
		{"an error", unitOf("op-1", 3, 0, nil, harness.Statement{SQL: "update seats set taken = true", Code: "40001", Text: "could not serialize access"}), []string{
			"10µs op-1 sut-1 session 3: update seats set taken = true  -> ERROR 40001 could not serialize access",
		}},
		{"a batch", unitOf("op-1", 3, 0, nil, sql("insert into a", "INSERT 0 1"), sql("insert into b", "INSERT 0 1"), sql("select 1", "SELECT 1"), sql("delete from d", "DELETE 1")), []string{
			"10µs op-1 sut-1 session 3: insert into a; ... 2 more ...; delete from d  -> 4 of 4: DELETE 1",
		}},
		{"an error in a batch", unitOf("op-1", 3, 0, nil, sql("insert into a", "INSERT 0 1"), harness.Statement{SQL: "insert into b", Code: "23505", Text: "duplicate key"}, sql("select 1", "")), []string{
			"10µs op-1 sut-1 session 3: insert into a; insert into b; select 1  -> 2 of 3: ERROR 23505 duplicate key",
		}},
		{"a batch that is cut off", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Answered, u.Delivered, u.Err = 0, 0, "connection reset" }, sql("insert into a", "INSERT 0 1"), sql("select 1", "")), []string{
			"10µs op-1 sut-1 session 3: insert into a; select 1  -> 1 of 2: INSERT 0 1, then connection reset",
		}},
		{"never given to Postgres", unitOf("op-1", 3, 0, func(u *harness.Unit) {
			u.Forwarded, u.Answered, u.Delivered, u.Fault = 0, 0, 0, "kill at before-commit(seats, 1)"
		}, sql("commit", "")), []string{
			"0s op-1 sut-1 session 3: commit  -> not given to Postgres  fault: kill at before-commit",
		}},
		{"its answer is lost", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Delivered, u.Fault = 0, "kill at after-commit(seats, 1)" }, sql("commit", "COMMIT")), []string{
			"10µs op-1 sut-1 session 3: commit  -> COMMIT, and sut-1 did not get this answer  fault: kill at after-commit",
		}},
		{"no answer", unitOf("op-1", 3, 0, func(u *harness.Unit) { u.Answered, u.Delivered, u.Err = 0, 0, "the backend is gone" }, sql("select 1", "")), []string{
			"10µs op-1 sut-1 session 3: select 1  -> no answer: the backend is gone",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range unitMoments(c.unit) {
				got = append(got, fmt.Sprintf("%s %s %s: %s", m.at, m.op, m.place, m.text))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// raceRecord has two operations in two sessions that read before either
// writes, and a third that is nobody's business.
func raceRecord() harness.Record {
	var rec harness.Record
	for i, id := range []string{"op-1", "op-12", "op-3"} {
		sent := time.Duration(i+1) * 100 * us
		rec.History.Operations = append(rec.History.Operations, harness.Operation{ID: id, Server: "sut-1", Sent: time.Second + sent, Answered: time.Second + 30*time.Millisecond})
	}
	read := sql("select taken from seats where seat = $1", "SELECT 1", "A-001")
	write := sql("update seats set taken = true where seat = $1", "UPDATE 1", "A-001")
	at := func(n int) time.Duration { return time.Second + time.Duration(n)*time.Millisecond }
	rec.Postgres = []harness.Unit{
		unitOf("op-1", 1, at(1), nil, read), unitOf("op-12", 2, at(2), nil, read), unitOf("op-3", 3, at(2), nil, read),
		unitOf("op-1", 1, at(3), func(u *harness.Unit) { u.Statements = nil }), // preparing
		unitOf("op-1", 1, at(4), nil, write),
		unitOf("op-12", 2, at(5), func(u *harness.Unit) { u.Answered, u.Delivered = at(12), at(12) }, write),
		unitOf("op-1", 1, at(11), func(u *harness.Unit) { u.After, u.Committed = "I", true }, sql("commit", "COMMIT")),
		unitOf("op-12", 2, at(13), func(u *harness.Unit) {
			u.After, u.Committed, u.Delivered, u.Fault = "I", true, 0, "kill at after-commit(seats, 2)"
		}, sql("commit", "COMMIT")),
		unitOf("", 4, at(6), nil, read), // of no known operation
	}
	rec.History.Events = []harness.Event{
		{At: at(0), Kind: harness.EventFault, Subject: "clients", Text: "in place: kill at before-response(book, 1)"},
		{At: at(6), Kind: harness.EventProcess, Subject: "sut-2", Text: "ready: sut-2 is ready"},
		{At: at(7), Kind: harness.EventFault, Subject: "redis", Text: "every connection cut"},
		{At: at(8), Kind: harness.EventPhase, Subject: "drive"},
		{At: at(13) + 300*us, Kind: harness.EventFault, Subject: "sut-1", Text: "kill at after-commit(seats, 2): commit"},
		{At: at(20), Kind: harness.EventProcess, Subject: "sut-1", Text: "exit: signal: killed"},
	}
	return rec
}

// TestInterleaving: the order in which the wires saw two operations.
func TestInterleaving(t *testing.T) {
	postgres := []string{
		"interleaving, as the Postgres wire saw it, from the first request at +1000.100 ms of the run:",
		"       +0.910 ms  op-1   sut-1 session 1  select taken from seats where seat = $1 [A-001]  -> SELECT 1",
		"       +1.910 ms  op-12  sut-1 session 2  select taken from seats where seat = $1 [A-001]  -> SELECT 1",
		"       +3.910 ms  op-1   sut-1 session 1  update seats set taken = true where seat = $1 [A-001]  -> UPDATE 1",
		"       +4.910 ms  op-12  sut-1 session 2  update seats set taken = true where seat = $1 [A-001]  given to Postgres",
		"       +5.900 ms         sut-2            ready: sut-2 is ready",
		"       +6.900 ms         redis            fault: every connection cut",
		"      +10.910 ms  op-1   sut-1 session 1  commit  -> COMMIT",
		"      +11.900 ms  op-12  sut-1 session 2  update seats set taken = true where seat = $1 [A-001]  -> UPDATE 1 after 6.990 ms",
		"      +12.910 ms  op-12  sut-1 session 2  commit  -> COMMIT, and sut-1 did not get this answer  fault: kill at after-commit",
	}
	both := append([]string{"interleaving, as the upstream and Postgres wires saw it, from the first request at +1000.100 ms of the run:"}, postgres[1:]...)
	both = append(both[:4:4], append([]string{
		"       +4.400 ms  op-1   sut-1 > pyxis    POST /reserve  received",
		"       +4.800 ms  op-1   sut-1 > pyxis    POST /reserve  -> 201, and sut-1 did not get it  fault: drop at upstream-accepted",
	}, both[4:]...)...)
	call := harness.UpstreamCall{
		Upstream: "pyxis", Caller: "sut-1", Op: "op-1", Method: "POST", Path: "/reserve", Received: time.Second + 4500*us, Accepted: time.Second + 4900*us,
		Status: 201, Fault: "drop at upstream-accepted(POST /reserve, 1)",
	}
	for _, c := range []struct {
		name   string
		ids    []string
		change func(*harness.Record)
		want   []string
	}{
		{"only the Postgres wire", []string{"op-1", "op-12"}, nil, postgres},
		{"both wires", []string{"op-1", "op-12"}, func(rec *harness.Record) { rec.Upstream = []harness.UpstreamCall{call} }, both},
		{"only the upstream wire", []string{"op-1"}, func(rec *harness.Record) { rec.Upstream, rec.Postgres = []harness.UpstreamCall{call}, nil }, []string{
			"interleaving, as the upstream wire saw it, from the first request at +1000.100 ms of the run:",
			"       +4.400 ms  op-1  sut-1 > pyxis  POST /reserve  received",
			"       +4.800 ms  op-1  sut-1 > pyxis  POST /reserve  -> 201, and sut-1 did not get it  fault: drop at upstream-accepted",
		}},
		{"from the release of a burst", []string{"op-3"}, func(rec *harness.Record) {
			rec.History.Bursts = []harness.BurstReport{{Name: "race", Released: time.Second}}
			rec.History.Operations[2].Burst = "race"
		}, []string{
			"interleaving, as the Postgres wire saw it, from the release at +1000.000 ms of the run:",
			"       +2.010 ms  op-3  sut-1 session 3  select taken from seats where seat = $1 [A-001]  -> SELECT 1",
		}},
		{"a wait during which nothing else was seen", []string{"op-12"}, func(rec *harness.Record) {
			rec.History.Events, rec.Postgres = nil, rec.Postgres[5:6]
		}, []string{
			"interleaving, as the Postgres wire saw it, from the first request at +1000.200 ms of the run:",
			"      +11.800 ms  op-12  sut-1 session 2  update seats set taken = true where seat = $1 [A-001]  -> UPDATE 1 after 6.990 ms",
		}},
		{"no wire saw it", []string{"op-9"}, nil, []string{"interleaving: none recorded, no wire saw these operations"}},
		{"the evidence names none", nil, nil, []string{"interleaving: none to show, the evidence names no operation"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := raceRecord()
			if c.change != nil {
				c.change(&rec)
			}
			if diff := cmp.Diff(c.want, trimmed(interleavingLines(rec, true, c.ids))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// TestInterleavingShowsTheFaultAfterTheLastStatement: the server is killed
// while the answer is on its way, which no database session sees.
func TestInterleavingShowsTheFaultAfterTheLastStatement(t *testing.T) {
	rec := raceRecord()
	rec.History.Operations[2].Answered = 0
	strike := harness.Event{At: time.Second + 4*time.Millisecond, Kind: harness.EventFault, Subject: "sut-1", Text: "kill at before-response(book, 1): POST /seats"}
	later := strike
	later.At += 20 * time.Millisecond
	rec.History.Events = append(rec.History.Events, strike, later)
	lines := interleavingLines(rec, true, []string{"op-3"})
	if got, want := lines[len(lines)-1], "       +3.700 ms        sut-1            fault: kill at before-response: POST /seats"; got != want || len(lines) != 3 {
		t.Errorf("got %d lines, the last %q\nwant 3, the last %q", len(lines), got, want)
	}
}

// TestLongInterleavingKeepsItsBeginningAndItsEnd: what is left out is counted.
func TestLongInterleavingKeepsItsBeginningAndItsEnd(t *testing.T) {
	var rec harness.Record
	const n = momentsFirst + momentsLast + 7
	for i := range n {
		rec.Postgres = append(rec.Postgres, unitOf("op-1", 1, time.Duration(i+1)*time.Millisecond, nil, sql(fmt.Sprintf("select %d", i), "SELECT 1")))
	}
	lines := interleavingLines(rec, true, []string{"op-1"})
	if want := 1 + momentsFirst + 1 + momentsLast; len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	for i, want := range map[int]string{
		momentsFirst: fmt.Sprintf("select %d ", momentsFirst-1), momentsFirst + 1: "...  7 moments are left out here",
		momentsFirst + 2: fmt.Sprintf("select %d ", momentsFirst+7), len(lines) - 1: fmt.Sprintf("select %d ", n-1),
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
		}
	}
}
