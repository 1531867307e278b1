package tickets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/scenarios/answers"
)

// recoveredAt: every point was tried, and the same request again was told what
// belongs to how far the first one had come. A retry that was not answered is
// no violation.
func recoveredAt(e enumerated) harness.Check {
	doc := fmt.Sprintf("who asks for a %s again after a crash is told what the rows had come to: %s", e.name, retryText(e))
	return funcCheck("S-I8.points", doc, "crash_points_checks.go", false, func(rec harness.Record) harness.Verdict {
		points := explore.PointsOf(rec, e.name)
		if len(points) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		ops := map[string]harness.Operation{}
		for _, op := range rec.History.Operations {
			ops[op.ID] = op
		}
		var wrong []harness.Evidence
		tried, open := map[int]bool{}, 0
		for _, p := range points {
			again := ops[p.Again]
			want, known := e.retry[p.State]
			switch {
			case !known:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("point %d (%s %s) left %q, which is nothing that a %s goes through", p.Number, p.Action, p.Label, p.State, e.name), Ops: []string{p.Again}})
			case again.Status == 0 || (again.Status >= 500 && check.Broken(rec)):
				open++
			case answers.Word(again) != want:
				wrong = append(wrong, answers.About(again, fmt.Sprintf("point %d (%s %s) left %q, want %s", p.Number, p.Action, p.Label, p.State, want)))
			default:
				tried[p.Number] = true
			}
		}
		switch of := points[0].Of; {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%d of %d points of a %s are not recovered: %s", len(wrong), len(points), e.name, wrong[0].Text)
		case open > 0:
			return harness.Undecided(harness.ReasonUndelivered, "at %d of %d points of a %s the retry was not answered, or not by a sound server", open, len(points), e.name)
		case len(tried) != of:
			return harness.Undecided(harness.ReasonVacuous, "%d of %d points of a %s were tried", len(tried), of, e.name)
		default:
			return harness.Passed("%d of %d points of a %s: %s", len(tried), of, e.name, stateText(points))
		}
	})
}

func retryText(e enumerated) string {
	parts := make([]string, 0, len(e.states))
	for _, s := range e.states {
		parts = append(parts, s+": "+e.retry[s])
	}
	return strings.Join(parts, ", ")
}

// stateText tallies how far the request had come.
func stateText(points []explore.Point) string {
	n := map[string]int{}
	for _, p := range points {
		n[p.State]++
	}
	parts := make([]string, 0, len(n))
	for _, s := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s at %d", s, n[s]))
	}
	return strings.Join(parts, ", ")
}

// statesChangeAtCommit: in the order of the moments the rows go through the
// request's states, and each step is at a COMMIT. What a worker does belongs to
// it where the request goes on beyond its answer: the worker may be further along
// when the rows are looked at, by itself when its server lost a connection alone,
// and when it was killed, by what it did between the COMMIT and its death.
func statesChangeAtCommit(e enumerated, actions []harness.Action) harness.Check {
	doc := fmt.Sprintf("a %s takes effect at its COMMITs alone, in this order: %s", e.name, strings.Join(e.states, ", "))
	return funcCheck("S-I3.commit", doc, "crash_points_checks.go", false, func(rec harness.Record) harness.Verdict {
		points := explore.PointsOf(rec, e.name)
		if len(points) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		var wrong []harness.Evidence
		seen := map[string]bool{}
		for _, action := range actions {
			at := 0
			for _, p := range points {
				if p.Action != action {
					continue
				}
				seen[p.State] = true
				now, step := slices.Index(e.states, p.State), p.Fault.At == harness.AfterCommit
				goesOn := e.until != nil && (action == harness.ActionDrop || step || p.Fault.At == harness.BeforeResponse)
				if now < at || (now > at && !step && !goesOn) || (now > at+1 && !goesOn) {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("point %d of %d, %s at %q: the rows say %q, after %q", p.Number, p.Of, p.Action, p.Label, p.State, e.states[at])})
				}
				if now > at && step {
					at++
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d points differ: %s", doc, len(wrong), len(points), wrong[0].Text)
		case len(seen) != len(e.states):
			return harness.Undecided(harness.ReasonVacuous, "%d of %d states were seen", len(seen), len(e.states))
		}
		return harness.Passed("%s: %s", doc, stateText(points))
	})
}

// oneChargeAnOrder: whatever was crashed and asked again, the provider has at
// most one payment of an order.
func oneChargeAnOrder() harness.Check {
	const doc = "the provider has at most one payment of an order, whatever was crashed and asked for again"
	return funcCheck("S-I5.payments", doc, "crash_points_checks.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		by := map[string]int{}
		var wrong []harness.Evidence
		for _, p := range l.provider.Payments {
			if by[p.Intent]++; by[p.Intent] > 1 {
				wrong = append(wrong, l.about(p, "is payment "+fmt.Sprint(by[p.Intent])+" of its order"))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d are more, such as: %s", doc, len(wrong), wrong[0].Text)
		case len(l.holds) == 0:
			return harness.Undecided(harness.ReasonVacuous, "there was no order to judge")
		}
		return harness.Passed("%s: %d payments of %d orders", doc, len(l.provider.Payments), len(l.holds))
	})
}
