package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	verdicts := []harness.Verdict{conduct(s, rec), delivered(rec), witnessed(rec), agree(rec)}
	checks, err := checksOf(s, rec.Plan.Params)
	if err == nil && len(checks) == 0 {
		err = errors.New("the scenario has no check of its own")
	}
	if err != nil {
		v := harness.Undecided(harness.ReasonChecker, "nothing was judged: %s", err)
		v.ID = "checks"
		verdicts = append(verdicts, v)
	}
	for _, c := range checks {
		verdicts = append(verdicts, judgeOne(c, rec))
	}
	if len(rec.Trouble) > 0 {
		consequences(verdicts[1:4], rec.Trouble[0].Reason)
	}
	return verdicts
}

// consequences takes what a broken environment or an interruption kept from
// being observed together under that cause: an overlap that was not seen
// because Postgres died is no finding of its own.
func consequences(verdicts []harness.Verdict, cause harness.Reason) {
	if cause != harness.ReasonEnvironment && cause != harness.ReasonInterrupted {
		return
	}
	for i, v := range verdicts {
		if v.Status == harness.Unknown {
			verdicts[i].Reason, verdicts[i].Summary, verdicts[i].Evidence = cause, notJudged, []harness.Evidence{}
		}
	}
}

const notJudged = "not judged, for the run itself had trouble (see conduct)"

// checksOf asks the scenario for its checks. A stored plan without a
// parameter that they need makes it panic; that is an error here.
func checksOf(s harness.Scenario, params harness.Params) (checks []harness.Check, err error) {
	defer func() {
		if p := recover(); p != nil {
			checks, err = nil, fmt.Errorf("the scenario's checks could not be made: %v", p)
		}
	}()
	if s.Checks == nil {
		return nil, nil
	}
	return s.Checks(params), nil
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
		if v.Status == harness.Unknown && v.Reason == "" {
			v.Reason = harness.ReasonChecker
		}
		if v.Evidence == nil {
			v.Evidence = []harness.Evidence{}
		}
		v.ID, v.Rule = c.ID, c.Rule
	}()
	if c.NeedsSettled && len(rec.Trouble) > 0 {
		return harness.Undecided(rec.Trouble[0].Reason, notJudged)
	}
	return c.Judge(rec)
}

// phases are what a whole run goes through; the conductor notes each of them.
var phases = []string{"up", "drive", "settle", "collect", "down"}

// conduct says whether the run went as it should have gone, and whether it is
// a run of this scenario at all.
func conduct(s harness.Scenario, rec harness.Record) harness.Verdict {
	v := harness.Passed("started, driven and settled")
	if missing := missingPhases(rec.History); len(missing) > 0 {
		v = harness.Undecided(harness.ReasonEnvironment, "the history has no trace of %s: not a whole run", strings.Join(missing, ", "))
	}
	if p := rec.Plan; p.Scenario != s.Name || p.SchemaVersion != 1 {
		v = harness.Undecided(harness.ReasonAssumption, "the record is of scenario %q, plan schema %d; judged as %q, schema 1", p.Scenario, p.SchemaVersion, s.Name)
	}
	if len(rec.Trouble) > 0 {
		v = troubled(rec.Trouble)
	}
	v.ID = "conduct"
	return v
}

// troubled says what the trouble was, in one sentence; what a process printed
// at its end is the evidence.
func troubled(trouble []harness.Trouble) harness.Verdict {
	heads := make([]string, 0, len(trouble))
	evidence := []harness.Evidence{}
	for _, t := range trouble {
		head, _, more := strings.Cut(t.Text, "\n")
		heads = append(heads, head)
		if more {
			evidence = append(evidence, harness.Evidence{Text: t.Text})
		}
	}
	v := harness.Undecided(cmp.Or(trouble[0].Reason, harness.ReasonChecker), "%s", strings.Join(heads, "; "))
	v.Evidence = evidence
	return v
}

func missingPhases(h harness.History) []string {
	var missing []string
	for _, name := range phases {
		if !slices.ContainsFunc(h.Events, func(e harness.Event) bool { return e.Kind == harness.EventPhase && e.Subject == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// delivered says whether every burst and every open loop was sent as it was planned.
func delivered(rec harness.Record) harness.Verdict {
	v := burstsSent(rec.History.Bursts)
	if v.Status == 0 {
		v = loadsSent(rec.History.Loads)
	}
	if v.Status == 0 {
		v = accounted(rec.History)
	}
	if v.Status == 0 {
		v = harness.Passed("%s", deliveryText(rec.History))
	}
	v.ID = "delivered"
	return v
}

// burstsSent finds a burst that was not sent as planned. Like those below, it
// gives the zero verdict when there is nothing to object to.
func burstsSent(bursts []harness.BurstReport) harness.Verdict {
	for _, b := range bursts {
		switch {
		case b.Early > 0:
			return harness.Undecided(harness.ReasonUndelivered, "burst %s: %d answers were readable before the release", b.Name, b.Early)
		case b.Requests == 0 || b.Ready != b.Requests || b.Sent != b.Requests:
			return harness.Undecided(harness.ReasonUndelivered, "burst %s: %d planned, %d ready at the barrier, %d sent", b.Name, b.Requests, b.Ready, b.Sent)
		}
	}
	return harness.Verdict{}
}

// accounted compares the operations with the bursts and the open loops that
// they say they were part of.
func accounted(h harness.History) harness.Verdict {
	planned, recorded, sent := map[string]int{}, map[string]int{}, 0
	for _, b := range h.Bursts {
		planned[b.Name] += b.Requests
	}
	for _, op := range h.Operations {
		if op.Outcome < harness.OK || op.Outcome > harness.Info {
			return harness.Undecided(harness.ReasonUndelivered, "operation %s has no outcome", op.ID)
		}
		if op.Burst != "" {
			recorded[op.Burst]++
		}
		if op.Sent != 0 {
			sent++
		}
	}
	if sent == 0 {
		return harness.Undecided(harness.ReasonUndelivered, "no request was sent at all")
	}
	for name := range planned {
		recorded[name] += 0 // a burst without any operation is compared too
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if recorded[name] != planned[name] {
			return harness.Undecided(harness.ReasonUndelivered, "burst %s: %d planned, %d recorded", name, planned[name], recorded[name])
		}
	}
	return loadsAccounted(h)
}

// witnessed says whether the race took place. A scenario without any witness
// is vacuous: each Drive must say what it saw.
func witnessed(rec harness.Record) harness.Verdict {
	v := harness.Undecided(harness.ReasonVacuous, "the scenario recorded no witness of its race")
	seen := make([]string, 0, len(rec.Witness))
	for _, w := range rec.Witness {
		if w.Kind == "" || !(w.Want > 0) {
			v = harness.Undecided(harness.ReasonVacuous, "a witness without a kind, or that needs nothing (%q, at least %g), is no evidence", w.Kind, w.Want)
			v.ID = "witnessed"
			return v
		}
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
		if c.Key != "" {
			name += " of " + c.Key
		}
		switch {
		case c.Error != "":
			v = harness.Undecided(harness.ReasonDisagree, "%s: an observer could not be read: %s", name, c.Error)
		case c.Upstream == "" || c.Method == "" || c.Path == "":
			v = harness.Undecided(harness.ReasonDisagree, "a count does not say of what: %q", name)
		case c.Ledger != c.WireMock || c.Ledger < 0:
			v = harness.Undecided(harness.ReasonDisagree, "%s: the ledger counted %d, WireMock %d", name, c.Ledger, c.WireMock)
		case c.Key == "" && forwarded(rec, c.Upstream, c.Method, c.Path) < c.Ledger:
			v = harness.Undecided(harness.ReasonDisagree, "%s: %d were counted, the stored ledger has only %d of them", name, c.Ledger,
				forwarded(rec, c.Upstream, c.Method, c.Path))
		default:
			if c.Key == "" { // the totals say it; the keys were compared all the same
				seen = append(seen, fmt.Sprintf("%s: %d by both", name, c.Ledger))
			}
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

// forwarded counts the ledger's lines of calls that reached the upstream:
// those that the other observer can have seen.
func forwarded(rec harness.Record, upstream, method, path string) int {
	n := 0
	for _, c := range rec.Calls(upstream, method, path) {
		if c.Forwarded != 0 {
			n++
		}
	}
	return n
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
