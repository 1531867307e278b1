package calendar

import (
	"fmt"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// bookCheck makes a check that judges both sides; judge gives what is wrong,
// and how much it has looked at.
func bookCheck(id, doc, file string, settled bool, judge func(b books) (wrong []harness.Evidence, judged int)) harness.Check {
	return funcCheck(id, doc, file, settled, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		if len(rec.History.Operations) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		}
		wrong, judged := judge(b)
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d are not so, such as: %s", doc, len(wrong), wrong[0].Text)
		}
		return harness.Passed("%s: %d judged", doc, judged)
	})
}

// createdOnce is C-I2 at the provider: it makes one event an appointment, under
// the id that the appointment has, and once more for each time that somebody
// else has removed it; for nothing else it makes any.
func createdOnce() harness.Check {
	const doc = "the provider makes one event an appointment, under its own id, and none for anybody else"
	return bookCheck("C-I2.provider", doc, "provider.go", false, func(b books) (wrong []harness.Evidence, judged int) {
		lost := map[string]int{}
		for _, c := range b.provider.Calls {
			if c.Call == provider.Lose {
				lost[c.EventID]++
			}
		}
		made := map[string]int{}
		for _, c := range b.provider.Calls {
			if c.Call != provider.Create || c.Created == 0 {
				continue
			}
			made[c.EventID] = max(made[c.EventID], c.Created)
			if a, known := b.byEvent[c.EventID]; known && b.calendarOf(a) != c.Calendar {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s was made in calendar %s, its appointment is of %s", c.EventID, c.Calendar, b.calendarOf(a)), Ops: opOf(a)})
			}
		}
		for id, n := range made {
			a, known := b.byEvent[id]
			switch {
			case !known:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s was made, and is no appointment's", id)})
			case n > 1+lost[id]:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s of appointment %s was made %d times", id, text(a, "appointment_id"), n), Ops: opOf(a)})
			}
		}
		return wrong, len(made)
	})
}

// standsOnce is C-I3: what stands in the calendars is what the rows say.
func standsOnce() harness.Check {
	const doc = "each created appointment has exactly its event in its calendar, at its time; nothing that is over, refused or unknown has one"
	return bookCheck("C-I3", doc, "provider.go", true, func(b books) (wrong []harness.Evidence, judged int) {
		standing := map[string][]provider.Event{}
		for _, e := range b.provider.Events {
			if e.Source == provider.Ours {
				standing[e.EventID] = append(standing[e.EventID], e)
			}
		}
		for id, a := range b.byEvent {
			judged++
			if problem := b.misplaced(a, standing[id]); problem != "" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s, %s at %s: %s", text(a, "appointment_id"), text(a, "state"), text(a, "during"), problem), Ops: opOf(a)})
			}
		}
		for _, c := range b.provider.Calls {
			if a := b.byEvent[c.EventID]; a != nil && c.Call == provider.Delete && b.syncs[text(a, "appointment_id")]["touched_at"] == nil {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d deletes the event of appointment %s, and nobody has ever been at it", c.N, text(a, "appointment_id")), Ops: opOf(a)})
			}
		}
		for id, list := range standing {
			if b.byEvent[id] == nil && b.worksOn(b.calendars[list[0].Calendar]) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s stands in calendar %s, and is no appointment's", id, list[0].Calendar)})
			}
		}
		return wrong, judged
	})
}

// worksOn says whether the servers work on a resource's calendar at all at the
// end: activated once, authorised, and not asked to be quiet any more.
func (b books) worksOn(resource harness.Row) bool {
	account := b.accounts[whole(resource, "resource_id")]
	if resource == nil || resource["activated_at"] == nil || text(account, "state") != "OK" {
		return false
	}
	until, quiet := instant(text(account, "quiet_until"))
	return !quiet || (!b.now.IsZero() && !until.After(b.now))
}

// misplaced says what is wrong with the events that stand for an appointment,
// "" for nothing. Where something is still to be told to the provider (parked,
// paused, without authorisation), only what can't be so is wrong.
func (b books) misplaced(a harness.Row, events []provider.Event) string {
	id, calendar := text(a, "appointment_id"), b.calendarOf(a)
	told := b.pending[id] == 0
	touched := b.syncs[id]["touched_at"] != nil
	for _, e := range events {
		if e.Calendar != calendar {
			return fmt.Sprintf("its event stands in calendar %s, not in %s", e.Calendar, calendar)
		}
	}
	at, readable := during(a, "during")
	switch state := text(a, "state"); {
	case !readable:
		return "its time can't be read"
	case len(events) > 1:
		return fmt.Sprintf("it has %d events", len(events))
	case !touched && len(events) > 0:
		return "it has an event, and nobody has ever been at it"
	case state == "BOOKED" && told:
		return "nothing is left to be told to the provider, and it was never created"
	case !active[state] && told && len(events) > 0:
		return "its event stands, at " + interval{events[0].Start, events[0].End}.String()
	case state == "CREATED" && len(events) == 0 && !b.missingIsKnown(id):
		return "it has no event"
	case state == "CREATED" && told && len(events) == 1 && (!events[0].Start.Equal(at.Start) || !events[0].End.Equal(at.End)):
		return "its event stands at " + interval{events[0].Start, events[0].End}.String()
	}
	return ""
}

// missingIsKnown says whether it is on record that somebody else has removed
// the appointment's event: found and not resolved yet, or kept and to be
// created again.
func (b books) missingIsKnown(appointmentID string) bool {
	return slices.ContainsFunc(b.conflicts[appointmentID], func(c harness.Row) bool {
		return text(c, "kind") == "missing" && (c["resolved_at"] == nil || text(c, "resolution") == "kept" && b.pending[appointmentID] > 0)
	})
}

// othersUntouched is the other side of C-I3: what others wrote is theirs.
func othersUntouched() harness.Check {
	const doc = "no call changes or deletes an event that is not ours"
	return funcCheck("C-I3.others", doc, "provider.go", false, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		if len(rec.Upstream) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no call of the provider was seen")
		}
		theirs := map[string]bool{}
		for _, c := range b.provider.Calls {
			if c.Call == provider.Appear && b.byEvent[c.EventID] == nil { // one under an id that was ours is judged by its scenario
				theirs[c.EventID] = true
			}
		}
		var wrong []harness.Evidence
		for _, c := range rec.Upstream {
			id, ok := eventInPath(c)
			if ok && theirs[id] && (c.Method == "PUT" || c.Method == "DELETE") {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d by %s: %s %s, which is somebody else's event", c.Seq, c.Caller, c.Method, c.Path)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d calls, %d events of others", doc, len(rec.Upstream), len(theirs))
	})
}

// refreshes is C-I7: an access token that ended costs one refresh, whoever and
// however many meet it. further ones are a scenario's allowance, a calendar.
func refreshes(further int) harness.Check {
	const doc = "each access token that ended is refreshed at most once, and never with a refresh token that has been used"
	return funcCheck("C-I7", doc, "provider.go", false, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		granted := map[string]int{} // by calendar: refresh tokens that staff gave
		for _, op := range rec.History.Operations {
			if callOf(op) == callActivate && inputOf(op)["refresh_token"] != nil {
				for name, r := range b.calendars {
					if fmt.Sprint(whole(r, "resource_id")) == target(op) {
						granted[name]++
					}
				}
			}
		}
		var wrong []harness.Evidence
		total := 0
		for _, c := range b.provider.Calendars {
			ended, revoked := 0, 0
			for _, call := range b.provider.Of(c.Calendar).Calls {
				switch call.Call {
				case provider.Expire:
					ended++
				case provider.Revoke:
					revoked++
				}
			}
			total += c.Refreshes
			if most := 1 + ended + revoked + granted[c.Calendar] + further; c.Refreshes > most { // the first one has no access token yet
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("calendar %s was given %d access tokens, and %d ended", c.Calendar, c.Refreshes, ended+revoked)})
			}
			if revoked == 0 && c.Refused > 0 {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("calendar %s was asked %d times for a token with a refresh token that was not the last one", c.Calendar, c.Refused)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case total == 0:
			return harness.Undecided(harness.ReasonVacuous, "no token was handed out")
		}
		return harness.Passed("%s: %d refreshes of %d calendars", doc, total, len(b.provider.Calendars))
	})
}
