package calendar

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// recoveredAt: every point was tried, and the same request again got the
// decision. A retry that was not answered is no violation.
func recoveredAt(e enumerated) harness.Check {
	doc := fmt.Sprintf("who asks for a %s again with its key after a crash is told %s, wherever it was crashed", e.name, e.retry)
	return funcCheck("C-I2.points", doc, "crash_points_checks.go", false, func(rec harness.Record) harness.Verdict {
		points := explore.PointsOf(rec, e.name)
		if len(points) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		ops := operationsByID(rec)
		var wrong []harness.Evidence
		tried, open := map[int]bool{}, 0
		for _, p := range points {
			again := ops[p.Again]
			switch {
			case !slices.Contains(e.states, p.State):
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("point %d (%s %s) left %q, which is nothing that a %s goes through", p.Number, p.Action, p.Label, p.State, e.name), Ops: []string{p.Again}})
			case again.Status == 0 || (again.Status >= 500 && check.Broken(rec)):
				open++
			case answers.Word(again) != e.retry:
				wrong = append(wrong, answers.About(again, fmt.Sprintf("point %d (%s %s) left %q, want %s", p.Number, p.Action, p.Label, p.State, e.retry)))
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

func operationsByID(rec harness.Record) map[string]harness.Operation {
	ops := map[string]harness.Operation{}
	for _, op := range rec.History.Operations {
		ops[op.ID] = op
	}
	return ops
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
// request's states, and each step is at a COMMIT. The synchroniser may be further
// along when the rows are looked at: by itself when its server lost a connection
// alone, and when it was killed, once it lives again, unless it had claimed the
// appointment.
func statesChangeAtCommit(e enumerated, actions []harness.Action) harness.Check {
	doc := fmt.Sprintf("a %s takes effect at its COMMITs alone, in this order: %s", e.name, strings.Join(e.states, ", "))
	return funcCheck("C-I3.commit", doc, "crash_points_checks.go", false, func(rec harness.Record) harness.Verdict {
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
				goesOn := at > 0 && action == harness.ActionDrop || step || p.Fault.At == harness.BeforeResponse
				if now < at || (now > at && !goesOn) {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("point %d of %d, %s at %q: the rows say %q, after %q", p.Number, p.Of, p.Action, p.Label, p.State, e.states[at])})
				}
				if now > at && step && (at == 0 || action != harness.ActionDrop) {
					at++ // beyond the request's own COMMIT who lives goes on by itself, sooner or later
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

// endedAt is C-I3 point by point: when all is settled each point's appointments
// are as they should be, here and at the provider, and none is lost or doubled.
func endedAt(e enumerated) harness.Check {
	doc := fmt.Sprintf("the appointments of each point of a %s end as %s, with one creation event, and the provider agrees: made once, and standing while active", e.name, e.ends)
	return funcCheck("C-I3.points", doc, "crash_points_checks.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		points, ops := explore.PointsOf(rec, e.name), operationsByID(rec)
		var wrong []harness.Evidence
		judged := 0
		for _, p := range points {
			again := ops[p.Again]
			if answers.Word(again) != e.retry {
				continue // nobody was told which they are, or that is another check's
			}
			list, err := appointmentsTold(again)
			if err != nil || len(list) == 0 {
				wrong = append(wrong, answers.About(again, "tells of no appointment"))
			}
			for _, a := range list {
				judged++
				if problem := b.endedWrongly(a.ID, e.ends); problem != "" {
					wrong = append(wrong, answers.About(again, fmt.Sprintf("point %d (%s %s), appointment %s: %s", p.Number, p.Action, p.Label, a.ID, problem)))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d differ: %s", doc, len(wrong), wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		return harness.Passed("%s: %d appointments of %d points", doc, judged, len(points))
	})
}

// endedWrongly says what is wrong with a settled appointment, "" for nothing.
func (b books) endedWrongly(id, state string) string {
	a := b.appointments[id]
	made, standing := 0, 0
	for _, c := range b.provider.Calls {
		if c.Call == provider.Create && c.EventID == text(a, "event_id") && c.Outcome == "created" {
			made++
		}
	}
	for _, e := range b.provider.Events {
		if e.EventID == text(a, "event_id") {
			standing++
		}
	}
	want := 0
	if active[state] {
		want = 1
	}
	switch {
	case text(a, "state") != state:
		return "it is " + orNone(text(a, "state"))
	case b.pending[id] > 0:
		return "the provider is still to be told"
	case made != 1:
		return fmt.Sprintf("its event was made %d times", made)
	case standing != want:
		return fmt.Sprintf("%d events of it stand, want %d", standing, want)
	}
	return ""
}
