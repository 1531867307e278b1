package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// loaded is the whole record with an open loop of two clients, three calls:
// the last of them found nobody who took a connection.
func loaded() harness.Record {
	rec := whole()
	rec.History.Loads = []harness.OpenLoopReport{{
		Name: "sale", Planned: 2, Arrived: 2, Left: 2, Calls: 3, Sent: 2, Answered: 2, Refused: 1, LateP99: 4 * time.Millisecond, Slack: 100 * time.Millisecond,
	}}
	for _, op := range []harness.Operation{
		{ID: "op-11", Process: 1, Sent: at(300), Answered: at(301), Status: 201, Outcome: harness.OK},
		{ID: "op-12", Process: 1, Sent: at(302), Answered: at(303), Status: 409, Outcome: harness.Fail},
		{ID: "op-13", Process: 2, Outcome: harness.Fail, Err: "refused: nobody listens"},
	} {
		op.Kind, op.Load = "hold", "sale"
		rec.History.Operations = append(rec.History.Operations, op)
	}
	return rec
}

func delivery(t *testing.T, rec harness.Record) harness.Verdict {
	t.Helper()
	verdicts := check.Judge(fixture(), rec)
	i := slices.IndexFunc(verdicts, func(v harness.Verdict) bool { return v.ID == "delivered" })
	if i < 0 {
		t.Fatal("delivery was not judged")
	}
	return verdicts[i]
}

func TestAnOpenLoopThatWasDelivered(t *testing.T) {
	const loads = "1 open loop of 2 clients and 3 calls, 99 in 100 started at most 4ms late"
	rec := loaded()
	if v := delivery(t, rec); v.Status != harness.Pass || !strings.HasSuffix(v.Summary, "; "+loads) || !strings.HasPrefix(v.Summary, "1 burst of 4 requests") {
		t.Errorf("%v: %s", v.Status, v.Summary)
	}
	rec.History.Bursts = nil
	rec.History.Operations = slices.DeleteFunc(rec.History.Operations, func(op harness.Operation) bool { return op.Burst != "" })
	if v := delivery(t, rec); v.Status != harness.Pass || v.Summary != loads {
		t.Errorf("without bursts: %v: %s", v.Status, v.Summary)
	}
}

// A load that was not offered as planned is never a pass.
func TestAnOpenLoopThatWasNot(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(rec *harness.Record, l *harness.OpenLoopReport)
		want   string
	}{
		"nobody planned":     {func(_ *harness.Record, l *harness.OpenLoopReport) { *l = harness.OpenLoopReport{Name: "sale"} }, "0 clients, 0 calls: nothing was offered"},
		"no call":            {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Calls = 0 }, "2 clients, 0 calls: nothing was offered"},
		"one never came":     {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Arrived, l.Left = 1, 1 }, "1 of 2 clients came"},
		"one was cut off":    {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Left, l.CutOff = 1, 1 }, "1 of 2 clients were cut off before they were done"},
		"one got lost":       {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Left = 1 }, "1 of 2 clients were cut off before they were done"},
		"not sent by us":     {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Refused, l.Unsent = 0, 1 }, "3 calls, of which this machine did not send 1"},
		"adds up to less":    {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Refused = 0 }, "3 calls, of which this machine did not send 1"},
		"contradicts itself": {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Unsent = 1 }, "3 calls, of which this machine did not send 1"},
		"fell behind": {
			func(_ *harness.Record, l *harness.OpenLoopReport) { l.LateP99 = l.Slack + time.Millisecond },
			"the generator fell behind its schedule: 1 in 100 clients started 101ms late or more, at most 100ms is allowed",
		},
		"no bound on lateness": {func(_ *harness.Record, l *harness.OpenLoopReport) { l.Slack = 0 }, "fell behind"},
		"a call is lost": {
			func(rec *harness.Record, _ *harness.OpenLoopReport) {
				rec.History.Operations = rec.History.Operations[:len(rec.History.Operations)-1]
			}, "3 calls and 2 of them sent by its report, 2 and 2 recorded",
		},
		"a call was not sent after all": {
			func(rec *harness.Record, _ *harness.OpenLoopReport) {
				rec.History.Operations[len(rec.History.Operations)-2].Sent = 0
			}, "3 calls and 2 of them sent by its report, 3 and 1 recorded",
		},
		"the report is lost": {
			func(rec *harness.Record, _ *harness.OpenLoopReport) { rec.History.Loads = nil },
			"0 calls and 0 of them sent by its report, 3 and 2 recorded",
		},
	} {
		rec := loaded()
		tc.breaks(&rec, &rec.History.Loads[0])
		v := delivery(t, rec)
		if v.Status != harness.Unknown || v.Reason != harness.ReasonUndelivered || !strings.Contains(v.Summary, "open loop sale: ") || !strings.Contains(v.Summary, tc.want) {
			t.Errorf("%s: %v (%s): %s, want %q", name, v.Status, v.Reason, v.Summary, tc.want)
		}
	}
}
