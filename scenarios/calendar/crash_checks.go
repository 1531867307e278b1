package calendar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// Events of crashes: what the rows said between the death and the restart, and
// whose event appeared meanwhile.
const (
	subjectLeft     = "left by the crash"
	attrAppointment = "appointment"
	attrEvent       = "event"
	attrExternal    = "external"
	attrLeft        = "left"
)

// leftClaimed is what a crash over a create leaves: nothing of it is stored but
// that somebody is at it.
const leftClaimed = "BOOKED, 1 events to be told, claimed"

// noteLeft records what a crash left of an appointment, and the external event
// that appeared while nobody was there, "" for none.
func noteLeft(ctx context.Context, env harness.Env, a appointmentAnswer, external string) error {
	rows, err := env.Database().Query(ctx, `select state || ', ' ||
  (select count(*) from outbox o where o.appointment_id = a.appointment_id and o.done_at is null) || ' events to be told, ' ||
  (select case when s.claim is null then 'not claimed' else 'claimed' end from syncs s where s.appointment_id = a.appointment_id) as it
from appointments a where appointment_id = $1::text::uuid`, a.ID)
	if err != nil || len(rows) != 1 {
		return fmt.Errorf("look at what the crash left of appointment %s: %w", a.ID, cmp.Or(err, errNoRow))
	}
	left := text(rows[0], "it")
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectLeft, Text: fmt.Sprintf("appointment %s: %s; external event meanwhile: %s", a.ID, left, orNone(external)),
		Attrs: map[string]string{attrAppointment: a.ID, attrEvent: a.EventID, attrExternal: external, attrLeft: left},
	})
	return nil
}

var errNoRow = errors.New("there is no such row")

// leftNotes are the notes of a record.
func leftNotes(rec harness.Record) []harness.Event {
	return slices.DeleteFunc(slices.Clone(rec.History.Events), func(e harness.Event) bool { return e.Subject != subjectLeft })
}

// leftBooked demands what the rows said after each crash, before the server was
// there again.
func leftBooked() harness.Check {
	const doc = "when the server dies over a create, its appointment is BOOKED, and the provider is still to be told"
	return funcCheck("C-I3.crash", doc, "crash_checks.go", false, func(rec harness.Record) harness.Verdict {
		notes := leftNotes(rec)
		var wrong []harness.Evidence
		for _, e := range notes {
			if e.Attrs[attrLeft] != leftClaimed {
				wrong = append(wrong, harness.Evidence{Text: e.Text + "; want " + leftClaimed})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d times it was not so: %s", doc, len(wrong), len(notes), wrong[0].Text)
		case len(notes) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody looked at the rows after a crash")
		}
		return harness.Passed("%s: %d times", doc, len(notes))
	})
}

// takenUp demands how an appointment is taken up after the crash, by the calls
// that were made for it since: what was checked before it is checked again, and
// what was created before it is found.
func takenUp(at harness.Moment) harness.Check {
	doc := "after the crash the event is looked for and the time is checked again before a create is sent"
	if at == harness.MomentAccepted {
		doc = "after the crash the event is found by its id, and no second create is sent"
	}
	return funcCheck("C-I4.again", doc, "crash_checks.go", true, func(rec harness.Record) harness.Verdict {
		notes, ops := leftNotes(rec), map[string]string{}
		rows, ok := rec.Find("table:appointments")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the appointments could not be read")
		}
		for _, r := range rows.Rows {
			ops[text(r, "appointment_id")] = text(r, "overbook_op")
		}
		var wrong []harness.Evidence
		for _, e := range notes {
			calls := callsSince(rec, e, ops[e.Attrs[attrAppointment]])
			if problem := takenUpWrongly(at, e, calls); problem != "" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s: %s; calls since the crash: %s", e.Attrs[attrAppointment], problem, orNone(strings.Join(calls, ", "))), Ops: []string{ops[e.Attrs[attrAppointment]]}})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d were not: %s", doc, len(wrong), len(notes), wrong[0].Text)
		case len(notes) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nothing was crashed")
		}
		return harness.Passed("%s: %d appointments", doc, len(notes))
	})
}

// callsSince are the calls of the provider that were made for an operation after
// a crash, in a word each.
func callsSince(rec harness.Record, e harness.Event, op string) (calls []string) {
	for _, c := range rec.Upstream {
		if c.Op != op || c.Received <= e.At {
			continue
		}
		word := map[string]string{"GET /freebusy": "check", "GET /events": "look", "POST /events": "create"}[c.Method+" "+c.Path]
		if _, named := eventInPath(c); named {
			word = map[string]string{"GET": "get", "PUT": "update", "DELETE": "delete"}[c.Method]
		}
		calls = append(calls, fmt.Sprintf("%s %d", word, c.Status))
	}
	return calls
}

// takenUpWrongly says what is wrong with the calls, "" for nothing.
func takenUpWrongly(at harness.Moment, e harness.Event, calls []string) string {
	index := func(word string) int {
		return slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, word) })
	}
	create, check := index("create"), index("check")
	switch {
	case at == harness.MomentAccepted && index("get 200") != 0:
		return "it was not looked for by its id first, or not found"
	case at == harness.MomentAccepted && create >= 0:
		return "it was created again"
	case at == harness.MomentAccepted:
		return ""
	case index("get 404") != 0:
		return "it was not looked for by its id first, or found"
	case check < 0 || (create >= 0 && create < check):
		return "its time was not checked again before it was created"
	case e.Attrs[attrExternal] == "" && create < 0:
		return "it was not created"
	}
	return ""
}

// conflictsAre compares the conflicts, each as "overlap by look: rejected".
func conflictsAre(doc string, want map[string]int) harness.Check {
	return funcCheck("C-I5.conflicts", doc, "crash_checks.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:conflicts")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the conflicts could not be read")
		}
		got := map[string]int{}
		for _, r := range rows.Rows {
			got[conflictWord(r)]++
		}
		switch {
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		case !maps.Equal(got, answers.Positive(want)):
			return harness.Violated([]harness.Evidence{{Text: "got " + answers.Text(got) + "; want " + answers.Text(want)}}, "%s: got %s", doc, answers.Text(got))
		}
		return harness.Passed("%s: %d conflicts%s", doc, len(rows.Rows), tallyText(got))
	})
}

// tallyText is a tally behind a colon, "" of nothing.
func tallyText(t map[string]int) string {
	if len(t) == 0 {
		return ""
	}
	return ": " + answers.Text(t)
}

// conflictWord is a conflict's kind, who found it and how it was resolved.
func conflictWord(r harness.Row) string {
	return fmt.Sprintf("%s by %s: %s", text(r, "kind"), text(r, "found_by"), cmp.Or(text(r, "resolution"), "open"))
}
