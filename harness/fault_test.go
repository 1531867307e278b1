package harness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

func TestFaultText(t *testing.T) {
	tests := map[string]harness.Fault{
		"kill at after-commit":                               {Action: harness.ActionKill, At: harness.AfterCommit},
		"drop at before-statement(insert into bookings, 2)":  {Action: harness.ActionDrop, At: harness.BeforeStatement, Match: "insert into bookings", Nth: 2},
		"drop at before-statement(values (a, b))":            {Action: harness.ActionDrop, At: harness.BeforeStatement, Match: "values (a, b)"},
		"error 40001 at before-commit(3)":                    {Action: harness.ActionError, Code: "40001", At: harness.BeforeCommit, Nth: 3},
		"delay 200ms at upstream-accepted(POST /messages)":   {Action: harness.ActionDelay, Delay: 200 * time.Millisecond, At: harness.MomentAccepted, Match: "POST /messages"},
		"stop at before-response(book, 1) of sut-2":          {Action: harness.ActionStop, At: harness.BeforeResponse, Match: "book", Nth: 1, Server: "sut-2"},
		"hold at after-statement(^select .* for update$, 1)": {Action: harness.ActionHold, At: harness.AfterStatement, Match: "^select .* for update$", Nth: 1},
	}
	for text, want := range tests {
		got, err := harness.ParseFault(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(harness.Fault{})); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%q is written as %q", text, got.String())
		}
	}
}

func TestFaultsThatAreNone(t *testing.T) {
	tests := map[string]string{
		"":                                 `want "ACTION at MOMENT"`,
		"kill":                             `want "ACTION at MOMENT"`,
		"explode at after-commit":          `no action "explode"; there are [kill stop drop error delay hold]`,
		"kill at midnight":                 `no moment "midnight"; there are [upstream-received`,
		"kill 9 at after-commit":           `kill takes nothing between it and "at"`,
		"error at before-commit":           `error code "": want five characters`,
		"error 40001 at after-commit":      "an error can be given at before-statement and before-commit, not at after-commit",
		"delay at after-commit":            "a delay wants a duration",
		"delay -1s at after-commit":        "want more than 0",
		"hold at before-response":          "can't be held back",
		"drop at before-statement(()":      "match \"(\"",
		"kill at before-statement(x, -1)":  "want 1 for the first",
		"kill at after-commit and so on":   `want "ACTION at MOMENT"`,
		"delay 1 at upstream-received(GET": `want "ACTION at MOMENT"`,
	}
	for text, want := range tests {
		if _, err := harness.ParseFault(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

func TestTransactions(t *testing.T) {
	unit := func(seq, session, tx int, before, after string, forwarded, answered time.Duration) harness.Unit {
		return harness.Unit{Seq: seq, Session: session, Tx: tx, Before: before, After: after, Forwarded: forwarded, Answered: answered, Server: "sut-1"}
	}
	begin, insert, commit := unit(1, 1, 1, "I", "T", 10, 20), unit(3, 1, 1, "T", "T", 30, 40), unit(4, 1, 1, "T", "I", 50, 60)
	insert.Op, commit.Committed = "op-7", true
	alone := unit(2, 2, 2, "I", "I", 25, 35)
	alone.Committed = true
	lost := unit(6, 3, 3, "T", "", 80, 0)
	lost.Err = "the connection ended"
	got := harness.Transactions([]harness.Unit{begin, alone, insert, commit, unit(5, 3, 3, "I", "T", 70, 75), lost, {Seq: 7, Before: "I", After: "I"}, unit(8, 4, 4, "I", "T", 90, 95)})
	want := []harness.Transaction{
		{Number: 1, Session: 1, Server: "sut-1", Op: "op-7", Open: 20, Closing: 50, Ended: 60, Outcome: "commit"},
		{Number: 2, Session: 2, Server: "sut-1", Open: 35, Closing: 25, Ended: 35, Outcome: "commit", Implicit: true},
		{Number: 3, Session: 3, Server: "sut-1", Open: 75, Closing: 80, Ended: 80, Outcome: "lost"},
		{Number: 4, Session: 4, Server: "sut-1", Open: 95},
	}
	for i := range got {
		got[i].Units = nil
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(harness.Transaction{})); diff != "" {
		t.Error(diff)
	}
}
