package reports

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// faultsShown bounds the faults that are listed under a scenario.
const faultsShown = 12

// tookPlace reports whether an event is a fault that struck. One that was only
// put in place has done nothing yet.
func tookPlace(e harness.Event) bool {
	return e.Kind == harness.EventFault && !strings.HasPrefix(e.Text, "in place: ")
}

// struckFault is a fault in its text form, and what it struck behind it.
var struckFault = regexp.MustCompile(`^([a-z]+(?: [0-9A-Za-z.µ]+)? at [a-z-]+)(?:\(.*?\))?(?: of \S+)?: (.+)$`)

// faultText makes a fault readable: which statement it was looking for is left
// out, as what it found stands beside it.
func faultText(text string) string {
	if f, err := harness.ParseFault(text); err == nil {
		f.Match, f.Nth, f.Server = "", 0, ""
		return f.String()
	}
	return struckFault.ReplaceAllString(text, "$1: $2")
}

// faultLines lists the faults that took place, so that it can be read off at
// which moment which server was killed. Of many, those that struck while an
// operation of the evidence was under way come first.
func faultLines(r harness.Result, rec harness.Record) []string {
	var struck []harness.Event
	for _, e := range rec.History.Events {
		if tookPlace(e) {
			struck = append(struck, e)
		}
	}
	if len(struck) == 0 {
		return nil
	}
	byTime := func(a, b harness.Event) int { return cmp.Compare(a.At, b.At) }
	slices.SortStableFunc(struck, byTime)
	ids := badOps(r)
	from := originOf(ids, rec)
	head := fmt.Sprintf("faults that took place: %d%s", len(struck), from.words())
	shown := struck
	if len(struck) > faultsShown {
		spans := spansOf(rec, ids)
		shown = slices.Clone(struck)
		slices.SortStableFunc(shown, func(a, b harness.Event) int { return outside(spans, a.At) - outside(spans, b.At) })
		shown = shown[:faultsShown]
		slices.SortStableFunc(shown, byTime)
	}
	lines := []string{head}
	for _, e := range shown {
		lines = append(lines, fmt.Sprintf("  %14s  %-10s  %s", offset(e.At-from.at), shortened(oneLine(e.Subject), 20), shortened(faultText(oneLine(e.Text)), 120)))
	}
	if n := len(struck) - len(shown); n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more, all in the run directory", n))
	}
	return lines
}

// badOps is the operations that the checks which did not pass are about.
func badOps(r harness.Result) []string {
	var ids []string
	for _, v := range worstFirst(r.Checks) {
		if checked(v) != harness.Pass {
			ids = append(ids, named(v)...)
		}
	}
	return ids
}

// A lifetime is from when an operation was sent until it was answered.
type lifetime struct{ from, to time.Duration }

// spansOf is the lifetimes of the operations. One that was not answered ends
// with the first fault after it was sent, or never.
func spansOf(rec harness.Record, ids []string) []lifetime {
	var spans []lifetime
	among := setOf(ids)
	for _, op := range rec.History.Operations {
		if op.Sent == 0 || !among[op.ID] {
			continue
		}
		l := lifetime{op.Sent, op.Answered}
		for _, e := range rec.History.Events {
			if op.Answered == 0 && tookPlace(e) && e.At >= op.Sent && (l.to == 0 || e.At < l.to) {
				l.to = e.At
			}
		}
		spans = append(spans, l)
	}
	return spans
}

// outside is 0 for an instant within one of the lifetimes, else 1.
func outside(spans []lifetime, at time.Duration) int {
	if slices.ContainsFunc(spans, func(l lifetime) bool { return at >= l.from && at <= l.to }) {
		return 0
	}
	return 1
}
