// Package scenarios is the built-in suite: one explicit list. It owns what is
// tried on the reference server and which invariants must hold; it must not
// start processes or open connections itself, the conductor does.
package scenarios

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/calendar"
	"github.com/overbook/overbook/scenarios/library"
	"github.com/overbook/overbook/scenarios/telescope"
	"github.com/overbook/overbook/scenarios/tickets"
)

// All gives every built-in scenario, in the order in which they run.
func All() []harness.Scenario {
	return slices.Concat(library.All(), telescope.All(), tickets.All(), calendar.All())
}

// Select gives the scenarios that match the patterns: names, globs over whole
// names ("library/*"), or all with the tag when there is no pattern. A pattern
// that matches nothing is an error that names the nearest scenario.
func Select(all []harness.Scenario, patterns []string, tag string) ([]harness.Scenario, error) {
	var chosen []harness.Scenario
	add := func(match func(harness.Scenario) bool) int {
		n := 0
		for _, s := range all {
			if match(s) {
				n++
				if !slices.ContainsFunc(chosen, func(c harness.Scenario) bool { return c.Name == s.Name }) {
					chosen = append(chosen, s)
				}
			}
		}
		return n
	}
	if len(patterns) == 0 {
		if add(func(s harness.Scenario) bool { return s.HasTag(tag) }) == 0 {
			return nil, fmt.Errorf("no scenario has the tag %q; tags are %s", tag, strings.Join(Tags(all), ", "))
		}
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
		n := add(func(s harness.Scenario) bool {
			matched, _ := path.Match(p, s.Name) // the pattern was checked above
			return (matched || s.Name == p) && (tag == "" || tag == DefaultTag || s.HasTag(tag))
		})
		if n == 0 && slices.ContainsFunc(all, func(s harness.Scenario) bool { matched, _ := path.Match(p, s.Name); return matched || s.Name == p }) {
			return nil, fmt.Errorf("no scenario that matches %q has the tag %q", p, tag)
		}
		if n == 0 {
			return nil, fmt.Errorf("no scenario %q; did you mean %q? `overbook list` shows all", p, Nearest(all, p))
		}
	}
	return chosen, nil
}

// DefaultTag marks the scenarios that run when none is named.
const DefaultTag = "race"

// Tags gives every tag in use.
func Tags(all []harness.Scenario) []string {
	var tags []string
	for _, s := range all {
		tags = append(tags, s.Tags...)
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// Nearest gives the scenario whose name takes the fewest edits to become text;
// the part before the slash counts only if text has one.
func Nearest(all []harness.Scenario, text string) string {
	best, least := "", -1
	for _, s := range all {
		name := s.Name
		if !strings.Contains(text, "/") {
			name = path.Base(name)
		}
		if d := distance(name, text); least < 0 || d < least {
			best, least = s.Name, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Measured is the scenario of a burst on the direct path as a baseline is
// judged: without one winner a seat, but with an answer for everybody.
func Measured(s harness.Scenario) harness.Scenario { return library.Measured(s) }

// ReservePosts is what both observers counted for one seat of the library design.
func ReservePosts(rec harness.Record, seat string) harness.CountPair {
	return library.ReservePosts(rec, seat)
}
