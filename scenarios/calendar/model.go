package calendar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// linearTime bounds the search for an order.
const linearTime = 30 * time.Second

// linearizable is C-I1 as clients were told, of scenarios in which nobody else
// writes to the calendars, so that the server rejects nothing by itself.
func linearizable() harness.Check {
	const doc = "what clients were told of each resource can be explained by some order of their calls, each taking effect between request and answer"
	return linear.NewCheck("C-I1.told", doc, where+"/model.go", resourceModel(), resourceCalls, linearTime)
}

// An entry is an active appointment, its times in minutes of Unix time.
type entry struct {
	id         string
	start, end int64
}

func (e entry) overlaps(o entry) bool { return e.start < o.end && o.start < e.end }

func entryOf(id string, i interval) entry {
	return entry{id, i.Start.Unix() / 60, i.End.Unix() / 60}
}

// A diary is the active appointments of a resource in order of their ids, as a
// text, so that states can be compared.
type diary string

func (d diary) entries() []entry {
	var list []entry
	for line := range strings.SplitSeq(string(d), "\n") {
		var e entry
		if _, err := fmt.Sscan(line, &e.id, &e.start, &e.end); err == nil {
			list = append(list, e)
		}
	}
	return list
}

func diaryOf(list []entry) diary {
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%s %d %d\n", e.id, e.start, e.end)
	}
	return diary(b.String())
}

// What is asked of a resource.
const (
	doBook   = "book"
	doMove   = "move" // one, or several together
	doCancel = "cancel"
	doRead   = "read" // one appointment
	doBusy   = "busy" // all of a window
)

// An asked is what was asked of a resource: the appointments it is about with
// the times wanted (of a booking that was refused, without ids), or a window.
type asked struct {
	do      string
	entries []entry
	from    int64 // of doBusy
	to      int64
}

// What was answered, beside the words of refusals.
const (
	toldDone = "done"
	toldOver = "appointment-over"
	toldBusy = "overlap"
)

// A saidOf is what was answered: toldDone, the type of the refusal, or of a
// read what was shown.
type saidOf struct {
	told string
	busy string // of doBusy: the merged times
}

// resourceModel is the contract of one resource: nothing booked before the first call.
func resourceModel() linear.Model {
	return linear.Model{
		Name: "resource",
		Init: func(string) any { return diary("") },
		Step: func(state, input, output any, known bool) []any {
			list, in := state.(diary).entries(), input.(asked)
			if !known {
				if next, may := taken(list, in); may {
					return []any{next}
				}
				return nil
			}
			out := output.(saidOf)
			next, may := taken(list, in)
			switch {
			case in.do == doRead:
				may = shown(list, in.entries[0], out)
				next = state.(diary)
			case in.do == doBusy:
				may, next = merged(list, in.from, in.to) == out.busy, state.(diary)
			case out.told == toldDone: // as it is
			case out.told == toldOver:
				may, next = anyOver(list, in.entries), state.(diary)
			default: // overlap
				may, next = !may && !anyOver(list, in.entries), state.(diary)
			}
			if !may {
				return nil
			}
			return []any{next}
		},
		Observes: func(input, output any) bool {
			do := input.(asked).do
			return do == doRead || do == doBusy || output.(saidOf).told != toldDone
		},
		DescribeState: func(v any) string { return v.(diary).String() },
	}
}

// String says what is booked, to people.
func (d diary) String() string {
	var parts []string
	for _, e := range d.entries() {
		parts = append(parts, fmt.Sprintf("%s %s", e.id[:min(8, len(e.id))], interval{time.Unix(60*e.start, 0), time.Unix(60*e.end, 0)}))
	}
	if len(parts) == 0 {
		return "nothing booked"
	}
	return strings.Join(parts, ", ")
}

// anyOver says whether one of the appointments is not active: they have been
// booked, as somebody knows their ids. A booking names none.
func anyOver(list, wanted []entry) bool {
	return slices.ContainsFunc(wanted, func(w entry) bool {
		return w.id != "" && !slices.ContainsFunc(list, func(e entry) bool { return e.id == w.id })
	})
}

// taken gives the diary after a write took effect, and whether it can.
func taken(list []entry, in asked) (diary, bool) {
	ids := map[string]bool{}
	for _, w := range in.entries {
		ids[w.id] = true
	}
	if in.do != doBook && anyOver(list, in.entries) {
		return "", false
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return ids[e.id] })
	if in.do == doCancel {
		return diaryOf(rest), true
	}
	for _, w := range in.entries {
		if slices.ContainsFunc(rest, w.overlaps) {
			return "", false
		}
		rest = append(rest, w)
	}
	return diaryOf(rest), true
}

// shown says whether a read of an appointment can have shown this.
func shown(list []entry, e entry, out saidOf) bool {
	at := slices.IndexFunc(list, func(o entry) bool { return o.id == e.id })
	if out.told == toldOver {
		return at < 0
	}
	return at >= 0 && list[at] == e
}

// merged are the busy times in a window, those that touch made one.
func merged(list []entry, from, to int64) string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.start, b.start) })
	var out []entry
	for _, e := range list {
		e.start, e.end = max(e.start, from), min(e.end, to)
		switch {
		case e.start >= e.end:
		case len(out) > 0 && e.start <= out[len(out)-1].end:
			out[len(out)-1].end = max(out[len(out)-1].end, e.end)
		default:
			out = append(out, entry{start: e.start, end: e.end})
		}
	}
	return fmt.Sprint(out)
}
