package explore

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

func unit(session, tx int, before, after string, committed bool, sql ...string) harness.Unit {
	u := harness.Unit{Session: session, Tx: tx, Before: before, After: after, Committed: committed}
	for _, text := range sql {
		u.Statements = append(u.Statements, harness.Statement{SQL: text})
	}
	return u
}

// TestMomentsAreThoseOfTheRequest: preparing, BEGIN and what the server does
// on its own account are none; the second of two equal statements is the second.
func TestMomentsAreThoseOfTheRequest(t *testing.T) {
	own := map[string]bool{"select poll()": true, "update outbox set claimed = $1": true}
	units := []harness.Unit{
		unit(9, 0, "I", "I", false), // a Parse alone
		unit(1, 1, "I", "T", false, "begin"),
		unit(2, 2, "I", "I", true, "select poll()"),
		unit(1, 1, "T", "T", false, "insert into keys  values ($1)"),
		unit(3, 3, "I", "T", false, "BEGIN"), // of a poll
		unit(3, 3, "T", "T", false, "update outbox set claimed = $1"),
		unit(1, 1, "T", "T", false, "insert into audit values ($1)"),
		unit(1, 1, "T", "T", false, "insert into audit values ($1)"),
		unit(3, 3, "T", "I", true, "COMMIT"),
		unit(1, 1, "T", "I", true, "commit"),
		unit(2, 4, "I", "I", true, "update quotas set n = n + 1"),
	}
	var got []string
	for _, m := range momentsOf(units, own) {
		f := m.fault
		f.Action = harness.ActionDrop
		got = append(got, f.String())
	}
	want := []string{
		`drop at before-statement(^insert into keys values \(\$1\)$, 1)`, `drop at after-statement(^insert into keys values \(\$1\)$, 1)`,
		`drop at before-statement(^insert into audit values \(\$1\)$, 1)`, `drop at after-statement(^insert into audit values \(\$1\)$, 1)`,
		`drop at before-statement(^insert into audit values \(\$1\)$, 2)`, `drop at after-statement(^insert into audit values \(\$1\)$, 2)`,
		`drop at before-commit(insert into keys values \(\$1\), 1)`, `drop at after-commit(insert into keys values \(\$1\), 1)`,
		`drop at before-statement(^update quotas set n = n \+ 1$, 1)`, `drop at after-statement(^update quotas set n = n \+ 1$, 1)`,
		`drop at after-commit(update quotas set n = n \+ 1, 1)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range got { // what a report prints can be given back
		if f, err := harness.ParseFault(text); err != nil || f.String() != text {
			t.Errorf("%s is read as %s (%v)", text, f, err)
		}
	}
}

// TestMomentsAreNumberedAsTheWireCounts: units of several statements, as
// drivers send them that put BEGIN in front of the first statement or pipeline a
// whole transaction, have moments; and the commit of a transaction that begins
// with what an earlier one had in it is the second one, not the first again.
func TestMomentsAreNumberedAsTheWireCounts(t *testing.T) {
	tests := []struct {
		name  string
		units []harness.Unit
		want  []string
	}{
		{
			"BEGIN in front of the first statement",
			[]harness.Unit{
				unit(1, 1, "I", "T", false, "BEGIN", "insert into keys"),
				unit(1, 1, "T", "T", false, "insert into bookings"),
				unit(1, 1, "T", "I", true, "COMMIT"),
			},
			[]string{
				"drop at before-statement(^insert into keys$, 1)", "drop at after-statement(^insert into keys$, 1)",
				"drop at before-statement(^insert into bookings$, 1)", "drop at after-statement(^insert into bookings$, 1)",
				"drop at before-commit(insert into keys, 1)", "drop at after-commit(insert into keys, 1)",
			},
		},
		{
			"a pipelined transaction",
			[]harness.Unit{unit(1, 1, "I", "I", true, "begin", "insert into keys", "insert into bookings", "commit")},
			[]string{
				"drop at before-statement(^insert into keys$, 1)", "drop at after-statement(^insert into keys$, 1)", "drop at after-commit(insert into keys, 1)",
			},
		},
		{
			"two transactions that share a statement",
			[]harness.Unit{
				unit(1, 1, "I", "T", false, "begin"),
				unit(1, 1, "T", "T", false, "insert into bookings"),
				unit(1, 1, "T", "T", false, "insert into audit"),
				unit(1, 1, "T", "I", true, "commit"),
				unit(1, 2, "I", "T", false, "begin"),
				unit(1, 2, "T", "T", false, "insert into audit"),
				unit(1, 2, "T", "I", true, "commit"),
			},
			[]string{
				"drop at before-statement(^insert into bookings$, 1)", "drop at after-statement(^insert into bookings$, 1)",
				"drop at before-statement(^insert into audit$, 1)", "drop at after-statement(^insert into audit$, 1)",
				"drop at before-commit(insert into bookings, 1)", "drop at after-commit(insert into bookings, 1)",
				"drop at before-statement(^insert into audit$, 2)", "drop at after-statement(^insert into audit$, 2)",
				"drop at before-commit(insert into audit, 2)", "drop at after-commit(insert into audit, 2)",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, m := range momentsOf(tt.units, nil) {
				f := m.fault
				f.Action = harness.ActionDrop
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func record(points ...Point) harness.Record {
	var rec harness.Record
	for _, p := range points {
		rec.History.Events = append(rec.History.Events, p.event(harness.Strike{}, harness.Operation{ID: "op-1"}, harness.Operation{ID: "op-2"}))
	}
	return rec
}

func broken(rec harness.Record) harness.Record {
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment, Text: "Postgres died"}}
	return rec
}

func TestRecoverable(t *testing.T) {
	at := func(number, retry int) Point {
		return Point{
			Number: number, Of: 2, Crash: "booking", Label: "after COMMIT", First: "no answer", Retry: retry, Action: harness.ActionKill,
			Fault: harness.Fault{Action: harness.ActionKill, At: harness.AfterCommit, Nth: number},
		}
	}
	other := at(2, 201)
	other.Crash = "closure"
	tests := []struct {
		name     string
		rec      harness.Record
		status   harness.Status
		sentence string
	}{
		{"all", record(at(1, 201), at(2, 201)), harness.Pass, "2 of 2 points of a booking: each retry was answered 201"},
		{"one is not recovered", record(at(1, 201), at(2, 409)), harness.Failed, "1 of 2 points of a booking are not recovered by a retry"},
		{"one is not recovered, another not answered", record(at(1, 409), at(2, 0)), harness.Failed, "1 of 2 points of a booking are not recovered by a retry"},
		{"one was not answered", record(at(1, 201), at(2, 0)), harness.Unknown, "at 1 of 2 points of a booking the retry was not answered, or not by a sound server"},
		{"a server that fails", record(at(1, 201), at(2, 503)), harness.Failed, "1 of 2 points of a booking are not recovered by a retry"},
		{"a server that fails with its database", broken(record(at(1, 201), at(2, 503))), harness.Unknown, "at 1 of 2 points of a booking the retry was not answered, or not by a sound server"},
		{"one was not tried", record(at(1, 201)), harness.Unknown, "1 of 2 points of a booking were tried"},
		{"one was tried twice", record(at(1, 201), at(1, 201)), harness.Unknown, "1 of 2 points of a booking were tried"},
		{"one of another request", record(at(1, 201), other), harness.Unknown, "1 of 2 points of a booking were tried"},
		{"none", harness.Record{}, harness.Unknown, "no crash point was tried"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Recoverable("T-I4.points", "booking", "here", 201).Judge(tt.rec)
			if v.Status != tt.status || v.Summary != tt.sentence {
				t.Errorf("%s %q, want %s %q", v.Status, v.Summary, tt.status, tt.sentence)
			}
			if v.Status == harness.Failed && !cmp.Equal(v.Evidence[0].Ops, []string{"op-1", "op-2"}) {
				t.Errorf("evidence %+v does not name both operations", v.Evidence)
			}
		})
	}
}

// TestOneKillOfWhatIsUndoneAlike: of moments of one transaction before its
// COMMIT the last is killed at; a call between two of them, another session's
// statement, and a COMMIT keep them apart. A dropped connection, which the
// server lives to see, is tried at each.
func TestOneKillOfWhatIsUndoneAlike(t *testing.T) {
	units := []harness.Unit{
		unit(1, 1, "I", "T", false, "begin"),
		unit(1, 1, "T", "T", false, "insert into keys values ($1)"),
		unit(1, 1, "T", "T", false, "insert into audit values ($1)"),
		unit(1, 1, "T", "T", false, "insert into outbox values ($1)"),
		unit(1, 1, "T", "I", true, "commit"),
		unit(2, 2, "I", "I", true, "update quotas set n = n + 1"),
		unit(3, 3, "I", "T", false, "begin"),
		unit(3, 3, "T", "T", false, "select one"),
		unit(4, 4, "I", "I", true, "select other"), // of another session, in the midst of it
		unit(3, 3, "T", "T", false, "select two"),
		unit(3, 3, "T", "I", true, "commit"),
	}
	moments := momentsOf(units, nil)
	call := momentOf{fault: harness.Fault{At: harness.MomentReceived, Match: "POST /events", Nth: 1}, label: "call"}
	moments = slices.Insert(moments, 3, call) // between the second statement's two moments
	labels := func(c Crash) (got []string) {
		for i, p := range c.points(moments) {
			if got = append(got, p.Label); p.Number != i+1 || p.Of != len(c.points(moments)) {
				t.Errorf("point %d of %d is numbered %d of %d", i+1, len(c.points(moments)), p.Number, p.Of)
			}
		}
		return got
	}
	want := []string{
		"before insert into audit values ($1)", "call", "before COMMIT of insert into keys values ($1)", "after COMMIT of insert into keys values ($1)",
		"after update quotas set n = n + 1", "after COMMIT of update quotas set n = n + 1",
		"after select one", "after select other", "after COMMIT of select other", "before COMMIT of select one", "after COMMIT of select one",
	}
	if diff := cmp.Diff(want, labels(Crash{OneKill: true, Actions: []harness.Action{harness.ActionKill}})); diff != "" {
		t.Error(diff)
	}
	for _, c := range []Crash{{OneKill: true, Actions: []harness.Action{harness.ActionDrop}}, {Actions: []harness.Action{harness.ActionKill}}} {
		if got := labels(c); len(got) != len(moments) {
			t.Errorf("one kill %v, %v: %d points of %d moments: %v", c.OneKill, c.Actions, len(got), len(moments), got)
		}
	}
}
