package check_test

import (
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// statement is one unit of a transaction that begins or ends with it.
func statement(seq, session, tx int, sql, before, after string, forwarded, answered float64) harness.Unit {
	return harness.Unit{
		Seq: seq, Session: session, Server: "sut-1", PID: 70 + session, Tx: tx, Before: before, After: after,
		Statements: []harness.Statement{{SQL: sql}}, Arrived: at(forwarded), Forwarded: at(forwarded), Answered: at(answered),
	}
}

// TestTransactionAcrossACall judges records whose one upstream call came at
// 110 ms and went on at 111 ms, or later when it was held in vain.
func TestTransactionAcrossACall(t *testing.T) {
	const doc = "no transaction is open in a server session while that server waits for an upstream call"
	short := []harness.Unit{statement(1, 1, 1, "begin", "I", "T", 101, 102), statement(2, 1, 1, "commit", "T", "I", 103, 110.5)}
	held := []harness.Unit{
		statement(1, 1, 1, "begin", "I", "T", 101, 102), statement(2, 1, 1, "update rooms", "T", "T", 103, 104), statement(3, 1, 1, "commit", "T", "I", 2300, 2301),
	}
	waits := []harness.Unit{
		statement(1, 2, 1, "begin", "I", "T", 101, 102), statement(2, 2, 1, "select 1 for update", "T", "T", 105, 2205), statement(3, 2, 1, "commit", "T", "I", 2206, 2207),
	}
	open := []harness.Unit{statement(1, 1, 1, "begin", "I", "T", 101, 102), statement(2, 1, 1, "update rooms", "T", "T", 103, 104)}
	alone := []harness.Unit{statement(1, 1, 1, "select 1", "I", "I", 101, 2300)}
	other := []harness.Unit{statement(1, 1, 1, "begin", "I", "T", 101, 102)}
	other[0].Server = "sut-2"
	tests := []struct {
		name      string
		units     []harness.Unit
		forwarded float64
		fault     string
		status    harness.Status
		reason    harness.Reason
		sentence  string
	}{
		{"ended before the call went on", short, 111, check.QuietFirst, harness.Pass, "", doc + ": 1 upstream call, 1 transaction on the Postgres wire"},
		{"open across the call", held, 2110, check.QuietFirst, harness.Failed, "", "a transaction was open during 1 upstream call of 1"},
		{"open to the end of the record", open, 2110, check.QuietFirst, harness.Failed, "", "a transaction was open during 1 upstream call of 1"},
		{"waits in Postgres", waits, 2110, check.QuietFirst, harness.Unknown, harness.ReasonVacuous, "transaction 1 of sut-1 was open through call 1, but Postgres was at work on it"},
		{"one statement alone", alone, 2110, check.QuietFirst, harness.Pass, "", doc + ": 1 upstream call, 1 transaction on the Postgres wire"},
		{"of another server", other, 2110, check.QuietFirst, harness.Pass, "", doc + ": 1 upstream call, 1 transaction on the Postgres wire"},
		{"the call was not held", short, 111, "", harness.Unknown, harness.ReasonVacuous, "call 1 was not held until transactions had ended"},
		{"the wire saw nothing", []harness.Unit{}, 111, check.QuietFirst, harness.Unknown, harness.ReasonVacuous, "the Postgres wire saw no transaction at all"},
		{"no wire", nil, 111, check.QuietFirst, harness.Unknown, harness.ReasonAssumption, "the Postgres wire was not in the path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := whole()
			rec.Postgres = tt.units
			rec.Upstream[0].Forwarded, rec.Upstream[0].Fault = at(tt.forwarded), tt.fault
			s := harness.Scenario{Checks: func(harness.Params) []harness.Check {
				return []harness.Check{check.NoTransactionDuringCall("open", "desk")}
			}}
			v := judged(t, s, rec, "open")
			expect(t, v, tt.status, tt.reason, tt.sentence)
			if tt.status == harness.Failed && len(v.Evidence) != 1 {
				t.Errorf("evidence %v, want the one transaction", v.Evidence)
			}
		})
	}
	rec := whole()
	rec.Postgres, rec.Upstream = short, nil
	expect(t, judged(t, harness.Scenario{Checks: func(harness.Params) []harness.Check {
		return []harness.Check{check.NoTransactionDuringCall("open", "desk")}
	}}, rec, "open"), harness.Unknown, harness.ReasonVacuous, "there was no upstream call to judge")
}
