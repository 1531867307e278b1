package tickets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// aCost is the record of two shows with a seat each: under quarantine it was
// kept for a payment that was declined after a minute, and somebody else was
// refused meanwhile; under release somebody else has bought it, and the late
// capture went back, two minutes after it was sent.
func aCost(t *testing.T) harness.Record {
	t.Helper()
	wave := func(n int, show int64, op func(harness.Request) harness.Operation) harness.Operation {
		return op(answers.As(kindSecondWave, claim(n, member(n), show, "S-1")))
	}
	metrics := replied(harness.Request{Kind: kindMetrics, Method: "GET", Path: "/metrics"}, 200,
		"other 1\noverbook_tickets_reconciliation_lag_seconds{quantile=\"0.95\"} 117.5\noverbook_tickets_reconciliation_lag_seconds{quantile=\"1\"} 120\n")
	rec := recordOf(
		wave(10, 1, func(r harness.Request) harness.Operation { return denied(r, 409, "seat-taken", "") }),
		wave(11, 2, func(r harness.Request) harness.Operation { return granted(r, 3, "S-1") }), metrics)
	hold := func(n int, show int64, policy string) {
		putRow(rec, "holds", harness.Row{"hold_id": uid("h", n), "show_id": float64(show), "policy": policy})
	}
	charge := func(n int, by, resolved string, settled any) {
		putRow(rec, "charges", harness.Row{
			"charge_id": uid("c", n), "hold_id": uid("h", n), "origin": "request", "resolved_by": by,
			"sent_at": "2031-01-01T00:00:00+00:00", "resolved_at": "2031-01-01T" + resolved + "+00:00", "settled_at": settled,
		})
	}
	hold(1, 1, policyQuarantine)
	hold(2, 2, policyRelease)
	hold(3, 2, policyRelease)
	charge(1, "callback", "00:01:10", nil)
	charge(2, "hard-timeout", "00:00:30", "2031-01-01T00:02:00+00:00")
	charge(3, "answer", "00:05:00", nil)
	putRow(rec, "refunds", harness.Row{"charge_id": uid("c", 2), "amount": 4501.0})
	putRow(rec, "seats", harness.Row{"show_id": 1.0, "seat": "S-1", "state": "FREE"})
	putRow(rec, "seats", harness.Row{"show_id": 2.0, "seat": "S-1", "state": "SOLD"})
	step := func(from, to, at string) {
		putRow(rec, "ticket_audit", harness.Row{"hold_id": uid("h", 1), "subject": "seat", "from_state": from, "to_state": to, "at": "2031-01-01T" + at + "+00:00"})
	}
	step("HELD", "QUARANTINED", "00:00:10")
	step("QUARANTINED", "FREE", "00:01:10.25")
	return casting(t, rec, costPlan{cast: playedBy("x"), Release: show{ID: 2}})
}

func costFigures(rec harness.Record) map[string]float64 {
	var c costPlan
	if err := rec.Plan.Decode(&c); err != nil {
		return nil
	}
	b, _ := booksOf(rec)
	return b.figures(c)
}

func TestFiguresOfCosts(t *testing.T) {
	want := map[string]float64{
		"refunds@quarantine": 0, "refunds@release": 1, "refunded minor units@quarantine": 0, "refunded minor units@release": 4501,
		"lost sales@quarantine": 1, "lost sales@release": 0, "quarantined seat-seconds@quarantine": 60.25, "quarantined seat-seconds@release": 0,
		"seats sold@quarantine": 0, "seats sold@release": 1, "second wave refused@quarantine": 1, "second wave refused@release": 0,
		"reconciliation lag p95 (s)@quarantine": 70, "reconciliation lag max (s)@quarantine": 70,
		"reconciliation lag p95 (s)@release": 120, "reconciliation lag max (s)@release": 120,
	}
	if diff := cmp.Diff(want, costFigures(aCost(t))); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func TestFiguresAreStored(t *testing.T) {
	judge := figuresAreStored().Judge
	rec := aCost(t)
	rec.Measured = costFigures(rec)
	expectVerdict(t, judge(rec), harness.Pass, "16 figures")
	rec.Measured["refunds@release"] = 2
	expectVerdict(t, judge(rec), harness.Failed, "refunds@release is not")
	delete(rec.Measured, "refunds@release")
	expectVerdict(t, judge(rec), harness.Unknown, "refunds@release was not measured")
	expectVerdict(t, judge(without(aCost(t), "table:seats")), harness.Unknown, "seats could not be read")
}

func TestEachCostsItsOwn(t *testing.T) {
	judge := eachCostsItsOwn().Judge
	expectVerdict(t, judge(aCost(t)), harness.Pass, "refunds 1 under release, 0 under quarantine; lost sales 1 under quarantine, 0 under release")
	rec := aCost(t)
	rec.Rows["table:refunds"].Rows[0]["charge_id"] = uid("c", 1)
	expectVerdict(t, judge(rec), harness.Failed, "refunds 0 under release, 1 under quarantine")
	rec = aCost(t)
	rec.Rows["table:seats"].Rows[0]["state"] = "SOLD"
	expectVerdict(t, judge(rec), harness.Unknown, "no lost sale under quarantine")
	rec.History.Operations[0].Path, rec.Rows["table:seats"].Rows[1]["state"] = "/tickets/shows/2/holds", "FREE"
	expectVerdict(t, judge(rec), harness.Failed, "0 under quarantine, 1 under release")
	rec = aCost(t)
	rec.Rows["table:refunds"] = harness.Rows{Rows: []harness.Row{}}
	expectVerdict(t, judge(rec), harness.Unknown, "no refund under release")
	rec.Plan.Choices = nil
	expectVerdict(t, judge(rec), harness.Unknown, "the plan has no two shows")
}

func TestLagAgrees(t *testing.T) {
	judge := lagAgrees().Judge
	expectVerdict(t, judge(aCost(t)), harness.Pass, "p95 117.500 s, max 120.000 s of 2 charges")
	say := func(p95, most string) harness.Record {
		rec := aCost(t)
		rec.History.Operations[2].Output = fmt.Sprintf("overbook_tickets_reconciliation_lag_seconds{quantile=\"0.95\"} %s\noverbook_tickets_reconciliation_lag_seconds{quantile=\"1\"} %s\n", p95, most)
		return rec
	}
	expectVerdict(t, judge(say("120", "120.001")), harness.Pass, "of 2 charges")
	expectVerdict(t, judge(say("69", "120")), harness.Failed, "p95 between 70 s and 120 s")
	expectVerdict(t, judge(say("121", "120")), harness.Failed, "p95 121 s")
	expectVerdict(t, judge(say("120", "119")), harness.Failed, "max 119 s in /metrics")
	expectVerdict(t, judge(say("", "120")), harness.Failed, "max 120 s")
	rec := say("69", "120") // and then no answer: the one before counts
	unanswered := rec.History.Operations[2]
	unanswered.Status, unanswered.Output = 0, ""
	rec.History.Operations = append(rec.History.Operations, unanswered)
	expectVerdict(t, judge(rec), harness.Failed, "p95 69 s")
	rec = aCost(t)
	rec.History.Operations[2].Status = 503
	expectVerdict(t, judge(rec), harness.Unknown, "the metrics were not answered 200")
	rec.History.Operations = rec.History.Operations[:2]
	expectVerdict(t, judge(rec), harness.Unknown, "2 charges had a lag, and the metrics were asked for 0 times")
	expectVerdict(t, judge(without(aCost(t), "table:charges")), harness.Unknown, "charges could not be read")
}

func TestPercentileIsARank(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(i+1))
	}
	for n, want := range map[int]float64{1: 1, 19: 19, 20: 19, 21: 20, 100: 95} {
		if p95, most := lagsOf(hundred[:n]); p95 != want || most != float64(n) {
			t.Errorf("of %d: p95 %g, max %g; want %g and %d", n, p95, most, want, n)
		}
	}
	if p95, most := lagsOf(nil); p95 != 0 || most != 0 {
		t.Errorf("of none: %g, %g", p95, most)
	}
}

// Both shows get the same traffic, and each kind of payment.
func TestCostPlan(t *testing.T) {
	drawn, err := chooseCost(rand.New(rand.NewPCG(1, 2)), harness.Params{"seats": "12"}) //nolint:gosec // a plan, not a secret
	c, is := drawn.(costPlan)
	if err != nil || !is || len(c.Parts) != 24 || len(c.Wave) != 12-promptOf(12) || c.Show.ID == c.Release.ID {
		t.Fatalf("drawn: %v %+v", err, drawn)
	}
	for i := range 12 {
		part := c.Parts[i][:len(c.Parts[i])-len("@"+policyQuarantine)]
		if c.Parts[12+i] != part+"@"+policyRelease {
			t.Errorf("seat %d: %s and %s", i, c.Parts[i], c.Parts[12+i])
		}
		if slices.Contains(c.Wave, i) == (part == partPrompt) {
			t.Errorf("seat %d of %s: wanted by the second wave: %t", i, part, part != partPrompt)
		}
		if _, ok := costEnds()[c.Parts[i]]; !ok {
			t.Errorf("nothing says how %s ends", c.Parts[i])
		}
	}
}
