package calendar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// eventInPath is the event id that a call of the provider names in its path.
func eventInPath(c harness.UpstreamCall) (id string, ok bool) {
	_, id, ok = strings.Cut(c.Path, "/events/")
	return id, ok && id != ""
}

// neverSilent is C-I4: an external event that was there when ours was made or
// moved, or that stands over one of ours at the end, was acted on.
func neverSilent() harness.Check {
	const doc = "an external event over one of ours means that this was rejected, or that the conflict is on record; never silence"
	return bookCheck("C-I4", doc, "conflicting.go", true, func(b books) (wrong []harness.Evidence, judged int) {
		for _, c := range b.provider.Calls {
			if (c.Call != provider.Create && c.Call != provider.Update) || !c.Overlapped || !tookEffect(c) {
				continue
			}
			judged++
			a := b.byEvent[c.EventID]
			if problem := b.silent(a, c); problem != "" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d, %s of event %s at %s: %s", c.N, c.Call, c.EventID, interval{c.Start, c.End}, problem), Ops: opOf(a)})
			}
		}
		for _, e := range b.provider.Events {
			if e.Source != provider.TheOther {
				continue
			}
			for _, a := range b.appointments {
				at, readable := during(a, "during")
				if !readable || b.calendarOf(a) != e.Calendar || !at.overlaps(interval{e.Start, e.End}) {
					continue
				}
				judged++
				if problem := b.ignored(a, e); problem != "" {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("external event %s stands at %s, and appointment %s at %s %s", e.EventID, interval{e.Start, e.End}, text(a, "appointment_id"), at, problem), Ops: opOf(a)})
				}
			}
		}
		return wrong, judged
	})
}

// tookEffect says whether a create or an update was carried out.
func tookEffect(c provider.Call) bool { return c.Outcome == "created" || c.Outcome == "updated" }

// silent says what is missing after a call that was carried out although an
// external event overlapped, "" for nothing. An external event that went or
// moved after the call, or an appointment that moved away from it, may never
// have been seen by the look that followed.
func (b books) silent(a harness.Row, c provider.Call) string {
	if a == nil {
		return "" // of nobody's: that is C-I2's
	}
	at, _ := during(a, "during")
	if !active[text(a, "state")] || !at.overlaps(interval{c.Start, c.End}) {
		return ""
	}
	for _, id := range c.Externals {
		known := slices.ContainsFunc(b.conflicts[text(a, "appointment_id")], func(k harness.Row) bool { return text(k, "external_event") == id })
		changed := slices.ContainsFunc(b.provider.Calls, func(o provider.Call) bool { return o.N > c.N && o.Call == provider.Appear && o.EventID == id })
		if !known && !changed {
			return fmt.Sprintf("external event %s was there, the appointment is %s, and there is no conflict with it", id, text(a, "state"))
		}
	}
	return ""
}

// ignored says what is wrong with an appointment over which an external event
// stands at the end, "" for nothing. What is only booked, or in a calendar that
// the servers do not look at, is still to be judged by them.
func (b books) ignored(a harness.Row, e provider.Event) string {
	resource := b.resources[whole(a, "resource_id")]
	if text(a, "state") != "CREATED" || !b.worksOn(resource) || b.pending[text(a, "appointment_id")] > 0 {
		return ""
	}
	kept, open := false, false
	for _, c := range b.conflicts[text(a, "appointment_id")] {
		if text(c, "external_event") == e.EventID && text(c, "kind") == "overlap" {
			kept = kept || text(c, "resolution") == "kept"
			open = open || c["resolved_at"] == nil
		}
	}
	switch {
	case kept:
		return ""
	case text(resource, "conflict_policy") == policyReject:
		return "is still CREATED under the policy reject"
	case !open:
		return "has no unresolved conflict with it"
	}
	return ""
}

// conflictsAreListed is C-I5: at the end staff are shown exactly the conflicts
// that are not resolved.
func conflictsAreListed() harness.Check {
	const doc = "at the end staff are shown exactly the conflicts that are not resolved, as they are stored"
	return funcCheck("C-I5.listed", doc, "conflicting.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:conflicts")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the conflicts could not be read")
		}
		var last *harness.Operation
		for i, op := range rec.History.Operations {
			if callOf(op) == callConflicts && op.Status == 200 {
				last = &rec.History.Operations[i]
			}
		}
		if last == nil {
			return harness.Undecided(harness.ReasonUndelivered, "staff were not shown the conflicts")
		}
		if len(last.Output) >= outputCap {
			return harness.Undecided(harness.ReasonAssumption, "the list of conflicts is too long to be kept whole")
		}
		list, err := conflictsOf(*last)
		if err != nil {
			return harness.Violated([]harness.Evidence{answers.About(*last, "can't be read")}, "%s: the list can't be read", doc)
		}
		shown := map[string]conflictAnswer{}
		for _, c := range list {
			shown[c.ID] = c
		}
		var wrong []harness.Evidence
		unresolved := 0
		for _, r := range rows.Rows {
			c, is := shown[text(r, "conflict_id")]
			delete(shown, text(r, "conflict_id"))
			if r["resolved_at"] == nil {
				unresolved++
			}
			switch {
			case r["resolved_at"] == nil && !is:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("conflict %s of appointment %s with %s is not listed", text(r, "conflict_id"), text(r, "appointment_id"), text(r, "external_event"))})
			case r["resolved_at"] != nil && is:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("conflict %s is listed, and was resolved (%s)", text(r, "conflict_id"), text(r, "resolution"))})
			case is && (c.AppointmentID != text(r, "appointment_id") || c.Kind != text(r, "kind") || c.ExternalEvent != text(r, "external_event") || c.FoundBy != text(r, "found_by") || c.ResourceID != whole(r, "resource_id")):
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("conflict %s is listed as %+v", text(r, "conflict_id"), c)})
			}
		}
		for id := range shown {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("conflict %s is listed, and is not stored", id)})
		}
		if len(wrong) > 0 || len(list) != unresolved {
			return harness.Violated(answers.Few(wrong), "%s: %d are listed, %d are unresolved", doc, len(list), unresolved)
		}
		return harness.Passed("%s: %d of %d", doc, unresolved, len(rows.Rows))
	})
}
