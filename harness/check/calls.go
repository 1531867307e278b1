package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A Bounds is how many calls are allowed for one key.
type Bounds struct {
	Min, Max int
	_        struct{}
}

// Exactly allows n and nothing else.
func Exactly(n int) Bounds { return Bounds{Min: n, Max: n} }

// AtMost allows up to n.
func AtMost(n int) Bounds { return Bounds{Max: n} }

// A CallRule counts upstream calls by key and compares each count with its bounds.
type CallRule struct {
	ID, Doc, Rule          string
	Upstream, Method, Path string

	// Key sorts calls; calls with an empty key are a violation, as nobody can
	// say what they were for.
	Key func(harness.UpstreamCall) string

	// Want gives the keys that are expected and their bounds. A call with
	// another key is a violation. Nil: every key that occurs has bounds Each.
	Want func(harness.Record) map[string]Bounds
	Each Bounds
	_    struct{}
}

// Calls makes a check of the rule. It counts on the ledger and is Unknown
// when the two observers do not agree on the sum, when no call was made that
// it could count, or when the run had trouble: more calls might have come.
func Calls(r CallRule) harness.Check {
	return harness.Check{ID: r.ID, Doc: r.Doc, Rule: r.Rule, NeedsSettled: false, Judge: r.judge}
}

func (r CallRule) judge(rec harness.Record) harness.Verdict {
	name := r.Method + " " + r.Path
	byKey := map[string][]harness.UpstreamCall{}
	for _, c := range rec.Calls(r.Upstream, r.Method, r.Path) {
		byKey[r.Key(c)] = append(byKey[r.Key(c)], c)
	}
	want := map[string]Bounds{}
	if r.Want != nil {
		want = r.Want(rec)
	} else {
		for k := range byKey {
			want[k] = r.Each
		}
	}
	var wrong []harness.Evidence
	short := 0                    // keys with too few calls, where that is no violation:
	complete := r.vouchedFor(rec) // a call may be missing on our side, or may not have come yet
	for _, k := range slices.Sorted(maps.Keys(union(byKey, want))) {
		b, expected := want[k]
		n := len(byKey[k])
		switch {
		case n > 0 && (!expected || k == ""):
			wrong = append(wrong, callEvidence(fmt.Sprintf("%s for %q: %d, none expected", name, k, n), byKey[k]))
		case n > b.Max:
			wrong = append(wrong, callEvidence(fmt.Sprintf("%s for %s: %d, at most %d allowed", name, k, n, b.Max), byKey[k]))
		case n < b.Min:
			if !complete || len(rec.Trouble) > 0 {
				short++
			} else {
				wrong = append(wrong, callEvidence(fmt.Sprintf("%s for %s: %d, at least %d expected", name, k, n, b.Min), byKey[k]))
			}
		}
	}
	if len(wrong) > 0 {
		return harness.Violated(firstEvidence(wrong), "%s: %s", r.Doc, strings.SplitN(wrong[0].Text, "\n", 2)[0])
	}
	return r.observed(rec, byKey, short)
}

// vouchedFor says whether both observers counted as many calls as the ledger has.
func (r CallRule) vouchedFor(rec harness.Record) bool {
	i := slices.IndexFunc(rec.Counts, func(c harness.UpstreamCount) bool {
		return c.Upstream == r.Upstream && c.Method == r.Method && c.Path == r.Path && c.Key == ""
	})
	if i < 0 || rec.Counts[i].Error != "" {
		return false
	}
	n := forwarded(rec, r.Upstream, r.Method, r.Path)
	return rec.Counts[i].Ledger == n && rec.Counts[i].WireMock == n
}

// observed turns "nothing wrong on the ledger" into a pass only if the other
// observer saw the same and the run was whole.
func (r CallRule) observed(rec harness.Record, byKey map[string][]harness.UpstreamCall, short int) harness.Verdict {
	name := r.Method + " " + r.Path
	switch {
	case short > 0 && len(rec.Trouble) > 0:
		return harness.Undecided(rec.Trouble[0].Reason, "%s: fewer calls than expected in a run that was not whole", name)
	case len(rec.Trouble) > 0:
		return harness.Undecided(rec.Trouble[0].Reason, "%s: not too many so far, in a run that was not whole", name)
	case !r.vouchedFor(rec):
		return harness.Undecided(harness.ReasonDisagree, "%s: the two observers do not agree", name)
	case r.Want == nil && len(byKey) == 0:
		return harness.Undecided(harness.ReasonVacuous, "%s: there was no call to judge", name)
	}
	counts := make([]string, 0, len(byKey))
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		counts = append(counts, fmt.Sprintf("%s %d", k, len(byKey[k])))
	}
	return harness.Passed("%s: %s (%s)", r.Doc, name, strings.Join(firstFew(counts, 4), ", "))
}

func union(calls map[string][]harness.UpstreamCall, want map[string]Bounds) map[string]bool {
	keys := map[string]bool{}
	for k := range calls {
		keys[k] = true
	}
	for k := range want {
		keys[k] = true
	}
	return keys
}

// callEvidence lists calls with the times that a person needs to see them race.
func callEvidence(headline string, calls []harness.UpstreamCall) harness.Evidence {
	e := harness.Evidence{Text: headline}
	for i, c := range calls {
		if i == 5 {
			e.Text += fmt.Sprintf("\n  and %d more", len(calls)-i)
			break
		}
		e.Text += fmt.Sprintf("\n  call %d by %s at +%.3f ms, answered %d after %.1f ms  %s", c.Seq, c.Caller,
			ms(c.Received), c.Status, ms(max(0, c.Accepted-c.Received)), cell(c.Request))
		if c.Op != "" {
			e.Ops = append(e.Ops, c.Op)
		}
	}
	return e
}

// firstEvidence bounds the evidence; the rest is in the run directory.
func firstEvidence(all []harness.Evidence) []harness.Evidence {
	const most = 10
	if len(all) <= most {
		return all
	}
	return append(all[:most:most], harness.Evidence{Text: fmt.Sprintf("and %d more", len(all)-most)})
}
