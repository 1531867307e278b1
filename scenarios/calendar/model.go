package calendar

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
	"github.com/overbook/overbook/scenarios/answers"
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

// resourceCalls makes the calls of a history, by resource. Of which resource an
// appointment is, and what an unanswered booking made, its row says.
func resourceCalls(rec harness.Record) ([]linear.Call, error) {
	rows, ok := rec.Find("table:appointments")
	if !ok {
		return nil, fmt.Errorf("the appointments could not be read")
	}
	k := knownOf(rows.Rows)
	var calls []linear.Call
	seen := map[string]bool{} // copies under one key have one effect: the first that was answered stands for all
	for _, op := range rec.History.Operations {
		if scope := op.Caller + " " + callOf(op) + " " + op.Key; op.Key != "" {
			if seen[scope] && op.Status != 0 {
				continue
			}
			seen[scope] = true
		}
		list, err := linearCalls(op, k)
		if err != nil {
			return nil, err
		}
		calls = append(calls, list...)
	}
	return calls, nil
}

// A known is what the rows say of appointments: of which resource each is, and
// which a booking made or a series has, in the order of the series.
type known struct {
	of           map[string]int64
	byOp, series map[string][]string
}

func knownOf(rows []harness.Row) known {
	k := known{map[string]int64{}, map[string][]string{}, map[string][]string{}}
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b harness.Row) int {
		return cmp.Compare(whole(a, "series_no"), whole(b, "series_no"))
	})
	for _, r := range rows {
		id := text(r, "appointment_id")
		k.of[id] = whole(r, "resource_id")
		if op := text(r, "overbook_op"); op != "" {
			k.byOp[op] = append(k.byOp[op], id)
		}
		if series := text(r, "series_id"); series != "" {
			k.series[series] = append(k.series[series], id)
		}
	}
	return k
}

// seriesOf is a move of a whole series, of which none was given up.
func (k known) seriesOf(series string, w when) map[string]asked {
	in := asked{do: doMove}
	resource := ""
	for week, id := range k.series[series] {
		at, exact := w.weeksLater(week).interval()
		if !exact {
			return nil
		}
		in.entries, resource = append(in.entries, entryOf(id, at)), fmt.Sprint(k.of[id])
	}
	if resource == "" {
		return nil
	}
	return map[string]asked{resource: in}
}

// linearCalls makes the calls of an operation, one for each resource that it is
// of; none when it says nothing of a resource's appointments.
func linearCalls(op harness.Operation, k known) (calls []linear.Call, err error) {
	parts := askedFor(op, k)
	if op.Sent == 0 {
		return nil, nil
	}
	for resource, in := range parts {
		c := linear.Call{
			ID: op.ID, Process: -1, Key: "resource " + resource, Input: in, Call: op.Sent, Outcome: harness.Info,
			Text: fmt.Sprintf("%s by %s -> %s", callOf(op), op.Caller, answers.Word(op)),
		}
		reads := in.do == doRead || in.do == doBusy
		if op.Status == 0 || op.Status >= 500 {
			if !reads && (in.do != doBook || in.entries[0].id != "") {
				calls = append(calls, c)
			}
			continue
		}
		c.Return, c.Outcome = op.Answered, op.Outcome
		out := saidOf{told: answers.ProblemType(op)}
		switch {
		case op.Status == http.StatusOK || op.Status == http.StatusCreated:
			out.told = toldDone
			if c.Input, out, err = granted(op, in, out, resource); err != nil {
				return nil, err
			}
		case out.told != toldBusy && out.told != toldOver, len(parts) > 1: // of several it is not told which
			continue
		}
		c.Output = out
		calls = append(calls, c)
	}
	return calls, nil
}

// granted reads what an answer that is no refusal tells.
func granted(op harness.Operation, in asked, out saidOf, resource string) (asked, saidOf, error) {
	switch in.do {
	case doBook, doMove:
		list, err := appointmentsTold(op)
		if err != nil {
			return in, out, err
		}
		in.entries = nil
		for _, a := range list {
			if fmt.Sprint(a.ResourceID) == resource {
				in.entries = append(in.entries, entryOf(a.ID, a.interval()))
			}
		}
	case doRead:
		a, err := appointmentOf(op)
		if err != nil {
			return in, out, err
		}
		if in.entries = []entry{entryOf(a.ID, a.interval())}; !active[a.State] {
			out.told = toldOver
		}
	case doBusy:
		var a availabilityAnswer
		if err := op.Decode(&a); err != nil {
			return in, out, err
		}
		var list []entry
		for _, i := range a.Busy {
			list = append(list, entryOf("", i))
		}
		out.busy = merged(list, in.from, in.to)
	}
	return in, out, nil
}

// askedFor reads what an operation asks for, by resource.
func askedFor(op harness.Operation, k known) map[string]asked {
	id := target(op)
	w, readable := askedOf(op)
	one := func(in asked) map[string]asked {
		if k.of[id] == 0 {
			return nil
		}
		return map[string]asked{fmt.Sprint(k.of[id]): in}
	}
	switch callOf(op) {
	case callBook:
		times, exact := w.intervals()
		if !readable || !exact {
			return nil
		}
		in := asked{do: doBook}
		ids := k.byOp[op.ID] // none of one that was refused
		for i, at := range times {
			e := entryOf("", at)
			if i < len(ids) && op.Status != http.StatusConflict {
				e.id = ids[i]
			}
			in.entries = append(in.entries, e)
		}
		return map[string]asked{id: in}
	case callMove:
		if i, exact := w.interval(); exact && readable {
			return one(asked{do: doMove, entries: []entry{entryOf(id, i)}})
		}
	case callReschedule:
		return togetherOf(op, k.of)
	case callMoveSeries:
		return k.seriesOf(id, w)
	case callCancel:
		return one(asked{do: doCancel, entries: []entry{{id: id}}})
	case callRead:
		return one(asked{do: doRead, entries: []entry{{id: id}}})
	case callAvailability:
		if from, to, ok := windowOf(op); ok && op.Kind != kindBusyWithOthers { // of others the model knows nothing
			return map[string]asked{id: {do: doBusy, from: from, to: to}}
		}
	}
	return nil
}

// togetherOf reads a reschedule.
func togetherOf(op harness.Operation, of map[string]int64) map[string]asked {
	parts := map[string]asked{}
	for _, m := range movesOf(op) {
		i, exact := m.interval()
		if !exact || of[m.AppointmentID] == 0 {
			return nil
		}
		key := fmt.Sprint(of[m.AppointmentID])
		in := parts[key]
		in.do, in.entries = doMove, append(in.entries, entryOf(m.AppointmentID, i))
		parts[key] = in
	}
	return parts
}

// windowOf reads from when to when an availability is asked for, in minutes.
func windowOf(op harness.Operation) (from, to int64, ok bool) {
	u, err := url.Parse(op.Path)
	if err != nil {
		return 0, 0, false
	}
	start, err1 := time.Parse(time.RFC3339, u.Query().Get("from"))
	end, err2 := time.Parse(time.RFC3339, u.Query().Get("to"))
	return start.Unix() / 60, end.Unix() / 60, err1 == nil && err2 == nil
}
