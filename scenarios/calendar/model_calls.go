package calendar

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
	"github.com/overbook/overbook/scenarios/answers"
)

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
