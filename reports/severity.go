package reports

import (
	"maps"
	"slices"

	"github.com/overbook/overbook/harness"
)

// severity is the verdict under which a result is shown: its own, or that of
// its worst check when that is more severe. No checks at all is Unknown.
func severity(r harness.Result) harness.Status {
	return harness.Worst(r.Verdict, harness.WorstOf(r.Checks))
}

// checked is the verdict under which a check is shown; an undecided zero is Unknown.
func checked(v harness.Verdict) harness.Status { return harness.Worst(v.Status) }

// overall is the verdict under which a suite is shown.
func overall(s harness.Suite) harness.Status {
	if len(s.Scenarios) == 0 {
		return harness.Worst(s.Verdict, harness.Unknown)
	}
	statuses := []harness.Status{s.Verdict}
	for _, r := range s.Scenarios {
		statuses = append(statuses, severity(r))
	}
	return harness.Worst(statuses...)
}

// settled is a copy of the suite that is fit to be stored and drawn: verdicts
// as shown, and no nil where a reader expects a list or an object.
func settled(s harness.Suite) harness.Suite {
	s.Verdict = overall(s)
	s.Scenarios = append([]harness.Result{}, s.Scenarios...)
	for i, r := range s.Scenarios {
		r.Verdict = severity(r)
		r.Params = filled(r.Params)
		r.PhasesMS = filled(r.PhasesMS)
		r.Responses = filled(r.Responses)
		r.Outcomes = filled(r.Outcomes)
		r.Upstream = filled(r.Upstream)
		r.Measurements = filled(r.Measurements)
		r.Bursts = append([]harness.BurstReport{}, r.Bursts...)
		r.Latencies = maps.Clone(r.Latencies)
		maps.DeleteFunc(r.Latencies, func(_ string, l *harness.Latency) bool { return l == nil })
		r.Witness = append([]harness.Witness{}, r.Witness...)
		r.Checks = append([]harness.Verdict{}, r.Checks...)
		for j, v := range r.Checks {
			r.Checks[j].Status = checked(v)
			r.Checks[j].Evidence = append([]harness.Evidence{}, v.Evidence...)
		}
		for name, counts := range r.Upstream {
			if counts == nil {
				r.Upstream = maps.Clone(r.Upstream)
				r.Upstream[name] = map[string]harness.CountPair{}
			}
		}
		s.Scenarios[i] = r
	}
	return s
}

func filled[M ~map[K]V, K comparable, V any](m M) M {
	if m == nil {
		return M{}
	}
	return m
}

// tally counts scenarios for the last line. What is not a pass counts as failed.
type tally struct{ passed, failed, unknown int }

func count(s harness.Suite) tally {
	var t tally
	for _, r := range s.Scenarios {
		switch severity(r) {
		case harness.Pass:
			t.passed++
		case harness.Unknown:
			t.unknown++
			t.failed++
		case harness.Failed:
			t.failed++
		}
	}
	return t
}

// worstFirst gives the verdicts in order of severity, otherwise as they were.
func worstFirst(checks []harness.Verdict) []harness.Verdict {
	sorted := slices.Clone(checks)
	slices.SortStableFunc(sorted, func(a, b harness.Verdict) int { return int(checked(b)) - int(checked(a)) })
	return sorted
}

// advice says what to do about each reason for Unknown.
var advice = map[harness.Reason]string{
	harness.ReasonVacuous:     "see the burst and witness lines for what was missing, then run again, on a quieter machine or with other parameters (overbook list -v NAME); nothing was shown so far",
	harness.ReasonDisagree:    "compare upstream.jsonl with the double's own account in the run directory: a call went around the upstream wire, or one observer lost it",
	harness.ReasonUndelivered: "the load was not sent as planned: lower the number of users or the rate, or give the harness more cores",
	harness.ReasonTimeout:     "see what was waited for in logs/ of the run directory, then raise the deadline or find what keeps the server busy",
	harness.ReasonAssumption:  "put right what the sentence names, then run again: nothing else was judged",
	harness.ReasonEnvironment: "see the last lines in logs/ of the run directory and run 'overbook doctor'",
	harness.ReasonInterrupted: "the run was stopped early: run it again to the end",
	harness.ReasonChecker:     "the check itself broke: judge the stored run again with 'overbook check' once it is mended",
}

// adviceFor is what to do about an Unknown with the reason.
func adviceFor(reason harness.Reason) string {
	if a, ok := advice[reason]; ok {
		return a
	}
	return "no reason was recorded: read logs/ in the run directory, then judge the stored run again with 'overbook check'"
}

// unknownReason is the reason of a result that is shown as Unknown: its own,
// else that of its first undecided check.
func unknownReason(r harness.Result) harness.Reason {
	if r.Reason != "" {
		return r.Reason
	}
	for _, v := range r.Checks {
		if checked(v) == harness.Unknown && v.Reason != "" {
			return v.Reason
		}
	}
	return ""
}

// sentence is the one sentence about a result, taken from its worst check
// when it has none of its own.
func sentence(r harness.Result) string {
	if len(r.Checks) == 0 {
		if r.Summary == "" {
			return "no check judged this run"
		}
		return r.Summary
	}
	if worst := worstFirst(r.Checks)[0]; severity(r) != harness.Pass && checked(worst) == severity(r) {
		return worst.ID + ": " + worst.Summary
	}
	return r.Summary
}
