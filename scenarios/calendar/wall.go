package calendar

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// wallClock is C-I6: a wall-clock time is the one instant at which clocks in its
// zone show it, or the answer says why there is none or more than one.
func wallClock() harness.Check {
	const doc = "a wall-clock time is taken as the one instant at which clocks in its zone show it; one in a gap, or in a fold without a word for which, is 422 and says so"
	return funcCheck("C-I6", doc, "wall.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			call := callOf(op)
			w, readable := askedOf(op)
			if (call != callBook && call != callMove && call != callMoveSeries) || !readable || op.Status == 0 {
				continue
			}
			judged++
			if problem := misread(op, w); problem != "" {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%s to %s in %s: %s", w.Start, w.End, w.Zone, problem)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d are not; %s", doc, len(wrong), judged, wrong[0].Text)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody asked for a time")
		}
		return harness.Passed("%s: %d times", doc, judged)
	})
}

// misread says what is wrong with the answer to a wall-clock time, "" for nothing.
func misread(op harness.Operation, w when) string {
	times, exact := w.intervals()
	switch answers.Word(op) {
	case "200", "201":
		list, err := appointmentsTold(op)
		switch {
		case err != nil:
			return "the answer can't be read"
		case !exact:
			return "taken, although it is no instant, or two"
		case callOf(op) == callMoveSeries:
			return misplacedInSeries(w, list)
		case len(list) != len(times):
			return fmt.Sprintf("%d appointments, asked for %d", len(list), len(times))
		}
		for i, a := range list {
			if !a.Start.Equal(times[i].Start) || !a.End.Equal(times[i].End) {
				return fmt.Sprintf("taken as %s, it is %s (the %d. of %d)", a.interval(), times[i], i+1, len(list))
			}
		}
	case "409 overlap", "422 bad-range":
		if !exact && op.Status == http.StatusConflict {
			return "judged, although it is no instant, or two"
		}
	case "422 time-gap":
		if !w.somewhere(func(n int) bool { return n == 0 }) {
			return "said to be in a gap"
		}
	case "422 time-ambiguous":
		return ambiguous(op, w)
	}
	return ""
}

// misplacedInSeries says which appointment of a series that was moved is not
// where it should be, "" for none: each is as many weeks after the first as it
// is in the series, whatever became of those before it. What is over stays where
// it was; that nothing has begun is the scenarios' business.
func misplacedInSeries(w when, list []appointmentAnswer) string {
	for i, a := range list {
		want, exact := w.weeksLater(i).interval()
		if active[a.State] && exact && (!a.Start.Equal(want.Start) || !a.End.Equal(want.End)) {
			return fmt.Sprintf("the %d. of the series is moved to %s, it is %s", i+1, a.interval(), want)
		}
	}
	return ""
}

// somewhere says whether a time of one of the appointments that are asked for
// has so many instants to choose from.
func (w when) somewhere(so func(n int) bool) bool {
	for week := range max(1, w.Weekly) {
		l := w.weeksLater(week)
		_, n, ok := pick(l.Zone, l.Start, l.StartFold)
		_, m, ok2 := pick(l.Zone, l.End, l.EndFold)
		if ok && ok2 && (so(n) || so(m)) {
			return true
		}
	}
	return false
}

// ambiguous says what is wrong with an answer that there are two such times.
func ambiguous(op harness.Operation, w when) string {
	var doc struct {
		Choices []time.Time `json:"choices"`
	}
	if op.Decode(&doc) != nil || len(doc.Choices) != 2 {
		return "said to be ambiguous, without two choices"
	}
	for week := range max(1, w.Weekly) {
		l := w.weeksLater(week)
		for _, t := range []struct{ text, fold string }{{l.Start, l.StartFold}, {l.End, l.EndFold}} {
			list, ok := instantsOf(l.Zone, t.text)
			if ok && t.fold == "" && len(list) == 2 && slices.EqualFunc(list, doc.Choices, time.Time.Equal) {
				return ""
			}
		}
	}
	return fmt.Sprintf("said to be one of %v", doc.Choices)
}
