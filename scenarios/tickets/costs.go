package tickets

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// costBooks are what the costs of a policy are counted from.
type costBooks struct {
	seats, holds, charges, refunds, audit []harness.Row
	claims                                []harness.Operation // of the second wave
}

// tables are the books by the name of their table.
func (b *costBooks) tables() iter.Seq2[string, *[]harness.Row] {
	return maps.All(map[string]*[]harness.Row{"seats": &b.seats, "holds": &b.holds, "charges": &b.charges, "refunds": &b.refunds, "ticket_audit": &b.audit})
}

// booksOf reads the books from a record; what could not be read is said.
func booksOf(rec harness.Record) (b costBooks, missing string) {
	for table, rows := range b.tables() {
		found, ok := rec.Find("table:" + table)
		if !ok {
			missing = table + " could not be read"
		}
		*rows = found.Rows
	}
	b.claims = rec.History.OfKind(kindSecondWave)
	return b, missing
}

// The figures of a policy; each is measured as "name@policy".
const (
	figureRefunds    = "refunds"
	figureMoneyBack  = "refunded minor units"
	figureLostSales  = "lost sales"
	figureQuarantine = "quarantined seat-seconds"
	figureSold       = "seats sold"
	figureRefused    = "second wave refused"
	figureLag95      = "reconciliation lag p95 (s)"
	figureLagMost    = "reconciliation lag max (s)"
)

// figures counts what each policy has cost, by name@policy.
func (b costBooks) figures(c costPlan) map[string]float64 {
	f := map[string]float64{}
	add := func(name, policy string, v float64) { f[name+"@"+policy] += v }
	policyOf := map[int64]string{c.Show.ID: policyQuarantine, c.Release.ID: policyRelease}
	for _, policy := range policies {
		for _, name := range []string{figureRefunds, figureMoneyBack, figureLostSales, figureQuarantine, figureSold, figureRefused} {
			add(name, policy, 0)
		}
		f[figureLag95+"@"+policy], f[figureLagMost+"@"+policy] = lagsOf(b.lags(policy))
	}
	refused := map[string]bool{}
	for _, op := range b.claims {
		if show := showOf(op); answers.Word(op) == "409 seat-taken" {
			refused[seatKey(show, fmt.Sprint(inputOf(op)["seat"]))] = true
			add(figureRefused, policyOf[show], 1)
		}
	}
	for _, s := range b.seats {
		show := whole(s, "show_id")
		switch {
		case text(s, "state") == "SOLD":
			add(figureSold, policyOf[show], 1)
		case refused[seatKey(show, text(s, "seat"))]:
			add(figureLostSales, policyOf[show], 1)
		}
	}
	policyOfCharge, policyOfHold := b.policies()
	for _, r := range b.refunds {
		add(figureRefunds, policyOfCharge[text(r, "charge_id")], 1)
		add(figureMoneyBack, policyOfCharge[text(r, "charge_id")], float64(whole(r, "amount")))
	}
	for hold, seconds := range b.quarantined() {
		add(figureQuarantine, policyOfHold[hold], seconds)
	}
	for name, v := range f {
		f[name] = math.Round(v*1000) / 1000 // machine time is in these seconds: more digits say nothing
	}
	return f
}

// policies gives the policy of each charge and of each hold.
func (b costBooks) policies() (ofCharge, ofHold map[string]string) {
	ofCharge, ofHold = map[string]string{}, map[string]string{}
	for _, h := range b.holds {
		ofHold[text(h, "hold_id")] = text(h, "policy")
	}
	for _, c := range b.charges {
		ofCharge[text(c, "charge_id")] = ofHold[text(c, "hold_id")]
	}
	return ofCharge, ofHold
}

// quarantined gives the seconds of server time that the seat of each hold was
// in quarantine, by the history.
func (b costBooks) quarantined() map[string]float64 {
	seconds := map[string]float64{}
	for _, a := range b.audit {
		if text(a, "subject") != "seat" {
			continue
		}
		at := float64(instant(a, "at").UnixMicro()) / 1e6
		switch {
		case text(a, "to_state") == "QUARANTINED":
			seconds[text(a, "hold_id")] -= at
		case text(a, "from_state") == "QUARANTINED":
			seconds[text(a, "hold_id")] += at
		}
	}
	return seconds
}

// lags are the seconds from when each charge was sent to when its outcome was
// stored, of those that the answer itself did not settle, in order; of one that
// was given up, to what the provider decided after all, if it did. Of one
// policy, or of all ("").
func (b costBooks) lags(policy string) []float64 {
	_, ofHold := b.policies()
	var list []float64
	for _, c := range b.charges {
		by := text(c, "resolved_by")
		if text(c, "origin") != "request" || by == "answer" || by == "" || (policy != "" && ofHold[text(c, "hold_id")] != policy) {
			continue
		}
		until := instant(c, "resolved_at")
		if settled := instant(c, "settled_at"); by == "hard-timeout" && !settled.IsZero() {
			until = settled
		}
		list = append(list, until.Sub(instant(c, "sent_at")).Seconds())
	}
	slices.Sort(list)
	return list
}

// lagsOf gives the 95th percentile, by nearest rank, and the greatest of sorted lags.
func lagsOf(sorted []float64) (p95, most float64) {
	if len(sorted) == 0 {
		return 0, 0
	}
	rank := (95*len(sorted) + 99) / 100
	return sorted[rank-1], sorted[len(sorted)-1]
}

// showOf is the show that a claim names in its path.
func showOf(op harness.Operation) (id int64) {
	if _, err := fmt.Sscanf(op.Path, "/tickets/shows/%d/holds", &id); err != nil {
		return 0
	}
	return id
}

// near compares two numbers of seconds; a figure may be cut to milliseconds.
func near(a, b float64) bool { return a-b < 0.002 && b-a < 0.002 }

// lagTold reads the reconciliation lag from the metrics.
func lagTold(op harness.Operation) (p95, most float64, ok bool) {
	found := 0
	for line := range strings.Lines(op.Output) {
		if _, err := fmt.Sscanf(line, `overbook_tickets_reconciliation_lag_seconds{quantile="0.95"} %g`, &p95); err == nil {
			found++
		}
		if _, err := fmt.Sscanf(line, `overbook_tickets_reconciliation_lag_seconds{quantile="1"} %g`, &most); err == nil {
			found++
		}
	}
	return p95, most, op.Status == http.StatusOK && found == 2
}

// costed reads the plan and the books of a record. A verdict says why not.
func costed(rec harness.Record) (c costPlan, b costBooks, no *harness.Verdict) {
	if err := rec.Plan.Decode(&c); err != nil {
		v := harness.Undecided(harness.ReasonChecker, "the plan has no two shows: %s", err)
		return c, b, &v
	}
	b, missing := booksOf(rec)
	if missing != "" {
		v := harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		return c, b, &v
	}
	return c, b, nil
}

// eachCostsItsOwn: what one policy saves, the other one pays, and both did.
func eachCostsItsOwn() harness.Check {
	const doc = "release refunds no less than quarantine, quarantine loses no less sales than release, and both took place"
	return funcCheck("costs", doc, "costs.go", true, func(rec harness.Record) harness.Verdict {
		c, b, no := costed(rec)
		if no != nil {
			return *no
		}
		f := b.figures(c)
		at := func(name, policy string) float64 { return f[name+"@"+policy] }
		told := fmt.Sprintf("refunds %g under release, %g under quarantine; lost sales %g under quarantine, %g under release",
			at(figureRefunds, policyRelease), at(figureRefunds, policyQuarantine), at(figureLostSales, policyQuarantine), at(figureLostSales, policyRelease))
		switch {
		case at(figureRefunds, policyRelease) < at(figureRefunds, policyQuarantine), at(figureMoneyBack, policyRelease) < at(figureMoneyBack, policyQuarantine),
			at(figureLostSales, policyQuarantine) < at(figureLostSales, policyRelease):
			return harness.Violated([]harness.Evidence{{Text: told}}, "%s: %s", doc, told)
		case at(figureRefunds, policyRelease) == 0, at(figureLostSales, policyQuarantine) == 0:
			return harness.Undecided(harness.ReasonVacuous, "no refund under release, or no lost sale under quarantine: %s", told)
		}
		return harness.Passed("%s: %s", doc, told)
	})
}

// figuresAreStored: what was measured is what the rows say.
func figuresAreStored() harness.Check {
	const doc = "the figures that were measured are those of the stored rows"
	return funcCheck("costs.figures", doc, "costs.go", true, func(rec harness.Record) harness.Verdict {
		c, b, no := costed(rec)
		if no != nil {
			return *no
		}
		want := b.figures(c)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			got, measured := rec.Measured[name]
			if !measured {
				return harness.Undecided(harness.ReasonUndelivered, "%s was not measured", name)
			}
			if got != want[name] {
				return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("%s: measured %g, by the rows %g", name, got, want[name])}}, "%s: %s is not", doc, name)
			}
		}
		return harness.Passed("%s: %d figures", doc, len(want))
	})
}

// lagAgrees: the reconciliation lag that the server publishes is that of its rows.
func lagAgrees() harness.Check {
	const doc = "the reconciliation lag in /metrics is the one of the stored charges, p95 and max"
	return funcCheck("lag", doc, "costs.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		lags, asked := b.lags(""), rec.History.OfKind(kindMetrics)
		if len(lags) == 0 || len(asked) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "%d charges had a lag, and the metrics were asked for %d times", len(lags), len(asked))
		}
		asked = slices.DeleteFunc(asked, func(op harness.Operation) bool { return op.Status != http.StatusOK })
		if len(asked) == 0 {
			return harness.Undecided(harness.ReasonUndelivered, "the metrics were not answered 200")
		}
		op := asked[len(asked)-1]
		p95, most, ok := lagTold(op)
		// Any definition of a percentile gives a value between these two.
		at := 0.95 * float64(len(lags)-1)
		low, high := lags[int(math.Floor(at))], lags[int(math.Ceil(at))]
		if !ok || !near(most, lags[len(lags)-1]) || (p95 < low && !near(p95, low)) || (p95 > high && !near(p95, high)) {
			e := harness.Evidence{Text: fmt.Sprintf("p95 %g s, max %g s in /metrics; p95 between %g s and %g s, max %g s of %d stored charges", p95, most, low, high, lags[len(lags)-1], len(lags)), Ops: []string{op.ID}}
			return harness.Violated([]harness.Evidence{e}, "%s: %s", doc, e.Text)
		}
		return harness.Passed("%s: p95 %.3f s, max %.3f s of %d charges", doc, p95, most, len(lags))
	})
}
