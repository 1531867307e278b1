package check

import (
	"fmt"
	"strings"

	"github.com/overbook/overbook/harness"
)

// Judge gives one verdict per check: first whether the run can be judged at
// all (assumptions, delivery, witness, observers), then the scenario's own.
//
// When the run had trouble, a check that needs a settled system is Unknown
// with that reason: one cause, one line. Checks that hold at every instant are
// judged all the same, because a violation always wins.
func Judge(s harness.Scenario, rec harness.Record) []harness.Verdict {
	verdicts := []harness.Verdict{conduct(rec), delivered(rec), witnessed(rec), agree(rec)}
	for _, c := range s.Checks(rec.Plan.Params) {
		verdicts = append(verdicts, judgeOne(c, rec))
	}
	return verdicts
}

// judgeOne carries out one check. A check that panics or forgets to decide is
// Unknown, never lost and never a pass.
func judgeOne(c harness.Check, rec harness.Record) (v harness.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = harness.Undecided(harness.ReasonChecker, "the check itself broke: %v", p)
		}
		if v.Status < harness.Pass || v.Status > harness.Failed {
			v = harness.Undecided(harness.ReasonChecker, "the check came to no decision")
		}
		v.ID, v.Rule = c.ID, c.Rule
	}()
	if c.NeedsSettled && len(rec.Trouble) > 0 {
		t := rec.Trouble[0]
		return harness.Undecided(t.Reason, "not judged, for the run itself had trouble: %s", t.Text)
	}
	return c.Judge(rec)
}

// conduct says whether the run went as it should have gone.
func conduct(rec harness.Record) harness.Verdict {
	v := harness.Passed("started, driven and settled")
	if len(rec.Trouble) > 0 {
		texts := make([]string, 0, len(rec.Trouble))
		for _, t := range rec.Trouble {
			texts = append(texts, t.Text)
		}
		v = harness.Undecided(rec.Trouble[0].Reason, "%s", strings.Join(texts, "; "))
	}
	v.ID = "conduct"
	return v
}

// delivered says whether every burst was sent as it was planned.
func delivered(rec harness.Record) harness.Verdict {
	sent, spread := 0, int64(0)
	v := harness.Verdict{}
	for _, b := range rec.History.Bursts {
		sent += b.Sent
		spread = max(spread, b.Spread.Microseconds())
		switch {
		case b.Early > 0:
			v = harness.Undecided(harness.ReasonUndelivered, "burst %s: %d answers were readable before the release", b.Name, b.Early)
		case b.Requests == 0 || b.Ready != b.Requests || b.Sent != b.Requests:
			v = harness.Undecided(harness.ReasonUndelivered, "burst %s: %d planned, %d ready at the barrier, %d sent", b.Name, b.Requests, b.Ready, b.Sent)
		}
		if v.Status != 0 {
			v.ID = "delivered"
			return v
		}
	}
	if len(rec.History.Operations) == 0 {
		v = harness.Undecided(harness.ReasonUndelivered, "no request was sent at all")
	} else {
		v = harness.Passed("%s of %s, widest spread %d us", plural(len(rec.History.Bursts), "burst"), plural(sent, "request"), spread)
	}
	v.ID = "delivered"
	return v
}

// witnessed says whether the race took place. A scenario without any witness
// is vacuous: each Drive must say what it saw.
func witnessed(rec harness.Record) harness.Verdict {
	v := harness.Undecided(harness.ReasonVacuous, "the scenario recorded no witness of its race")
	seen := make([]string, 0, len(rec.Witness))
	for _, w := range rec.Witness {
		if !w.Holds() {
			v = harness.Undecided(harness.ReasonVacuous, "the race did not take place: %s is %g, needed at least %g", w.Kind, w.Got, w.Want)
			v.ID = "witnessed"
			return v
		}
		seen = append(seen, fmt.Sprintf("%s %g", w.Kind, w.Got))
	}
	if len(seen) > 0 {
		v = harness.Passed("%s", strings.Join(firstFew(seen, 6), ", "))
	}
	v.ID = "witnessed"
	return v
}

// agree says whether the two observers of the upstream counted the same.
func agree(rec harness.Record) harness.Verdict {
	v := harness.Verdict{}
	seen := make([]string, 0, len(rec.Counts))
	for _, c := range rec.Counts {
		name := fmt.Sprintf("%s %s %s", c.Upstream, c.Method, c.Path)
		switch {
		case c.Error != "":
			v = harness.Undecided(harness.ReasonDisagree, "%s: an observer could not be read: %s", name, c.Error)
		case c.Ledger != c.WireMock || c.Ledger < 0:
			v = harness.Undecided(harness.ReasonDisagree, "%s: the ledger counted %d, WireMock %d", name, c.Ledger, c.WireMock)
		default:
			seen = append(seen, fmt.Sprintf("%s: %d by both", name, c.Ledger))
			continue
		}
		v.ID = "observers"
		return v
	}
	if len(rec.Counts) == 0 {
		v = harness.Undecided(harness.ReasonDisagree, "no upstream call was counted by anybody")
	} else {
		v = harness.Passed("%s", strings.Join(seen, ", "))
	}
	v.ID = "observers"
	return v
}

// firstFew cuts a list and says how many are left out.
func firstFew(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(list[:n:n], fmt.Sprintf("and %d more", len(list)-n))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
