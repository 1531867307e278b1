package calendar

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Events of interleavings: which appointment and which external event are whose.
const (
	subjectRace   = "interleaving"
	attrCancel    = "cancel"
	attrCancelOp  = "cancel_op"
	attrFirst     = "cancel_first"
	attrPlaced    = "external_place"
	attrReached   = "reached"
	attrTrue      = "true"
	raceTableFile = "provider_race_table.go"
)

// note records an interleaving, for [racesOf].
func (w *raceWalk) note() {
	w.env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectRace, Text: fmt.Sprintf("%s: appointment %s", w.Interleaving, w.appointment.ID),
		Attrs: map[string]string{
			attrAppointment: w.appointment.ID, attrEvent: w.appointment.EventID, attrExternal: w.externalID(), attrPlaced: string(w.Interleaving.External),
			attrCancel: string(w.Interleaving.Cancel), attrFirst: fmt.Sprint(w.Interleaving.CancelFirst), attrCancelOp: w.cancelled.ID, attrReached: fmt.Sprint(w.reached),
		},
	})
}

// A raced interleaving is one with what came of it.
type raced struct {
	interleaving

	appointment string
	end         raceEnd
	reached     bool
}

// racesOf reads what came of each interleaving of a record: of its notes, both
// sides' books and the answers.
func racesOf(rec harness.Record) (list []raced, missing string) {
	b, missing := booksOf(rec)
	if missing != "" {
		return nil, missing
	}
	ops := operationsByID(rec)
	for _, e := range rec.History.Events {
		if e.Subject != subjectRace {
			continue
		}
		list = append(list, raced{
			interleaving: interleaving{racePlace(e.Attrs[attrPlaced]), racePlace(e.Attrs[attrCancel]), e.Attrs[attrFirst] == attrTrue},
			appointment:  e.Attrs[attrAppointment], reached: e.Attrs[attrReached] == attrTrue,
			end: b.raceEnd(e.Attrs[attrAppointment], e.Attrs[attrExternal], ops[e.Attrs[attrCancelOp]]),
		})
	}
	return list, ""
}

// raceEnd is what came of an interleaving, as it can be seen: how the
// appointment ended, the conflicts with the external event, and what the provider
// was asked and did.
func (b books) raceEnd(id, external string, cancelled harness.Operation) (end raceEnd) {
	a := b.appointments[id]
	end.State = orNone(text(a, "state"))
	if cancelled.ID != "" {
		end.Cancel = answers.Word(cancelled)
	}
	refused := false
	for _, c := range b.provider.Calls {
		if c.Call == provider.Create && c.EventID == text(a, "event_id") {
			end.Made = end.Made || c.Outcome == "created"
			refused = refused || c.Outcome == "busy"
		}
	}
	stands := slices.ContainsFunc(b.provider.Events, func(e provider.Event) bool { return e.EventID == text(a, "event_id") })
	switch known := b.conflicts[id]; {
	case len(known) > 1 || (len(known) == 1 && text(known[0], "external_event") != external):
		end.Class = fmt.Sprintf("%d conflicts", len(known))
	case len(known) == 1:
		end.Class, end.Found = raceResidual, text(known[0], "found_by")
		end.resolved(text(known[0], "resolution"))
	case end.State == "REJECTED" && refused:
		end.Class = raceByProvider
	case end.State == "REJECTED":
		end.Class = raceByUs
	case external != "" && stands:
		end.Class = raceSilence
	default:
		end.Class = raceNoOverlap
	}
	if stands != (end.State == "CREATED" || end.State == asDecided && text(a, "state") == "CREATED") {
		end.Class += fmt.Sprintf(", and the provider's event: %v", stands)
	}
	return end
}

// resolved says how the conflict was resolved, and that the appointment is as
// staff decided where they did.
func (e *raceEnd) resolved(word string) {
	switch {
	case word == "rejected":
		e.Resolved = raceByPolicy
	case word == "ended":
		e.Resolved = raceByMember
	case word == "kept" && e.State == "CREATED", word == "cancelled" && e.State == "CANCELLED":
		e.Resolved, e.State = raceByStaff, asDecided
	default:
		e.Resolved = cmp.Or(word, "nobody yet")
	}
}

// String is the end in a line.
func (e raceEnd) String() string {
	text := e.Class
	if e.Found != "" {
		text += ", found by " + e.Found + ", resolved by " + e.Resolved
	}
	text += ", appointment " + e.State
	if !e.Made {
		text += ", no event of ours made"
	}
	if e.Cancel != "" {
		text += ", the cancellation was told " + e.Cancel
	}
	return text
}

// racedAsPromised is C-I4 interleaving by interleaving.
func racedAsPromised(contract, policy string) harness.Check {
	const doc = "each interleaving of our steps with an external event and a cancellation ends as the table says"
	return funcCheck("C-I4.race", doc, raceTableFile, true, func(rec harness.Record) harness.Verdict {
		list, missing := racesOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		seen, odd := map[interleaving]bool{}, 0
		for _, r := range list {
			seen[r.interleaving] = true
			if !r.reached {
				odd++
			}
			rows := raceRowsOf(contract, policy, r.interleaving)
			if len(rows) != 1 || rows[0].end != r.end {
				e := harness.Evidence{Text: fmt.Sprintf("%s (appointment %s): %s", r.interleaving, r.appointment, r.end)}
				for _, row := range rows {
					e.Text += "; the table says: " + row.end.String()
				}
				wrong = append(wrong, e)
			}
		}
		switch planned := len(interleavings(contract, policy)); {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d do not, such as: %s", doc, len(wrong), len(list), wrong[0].Text)
		case len(seen) != planned || odd > 0:
			return harness.Undecided(harness.ReasonVacuous, "%d of %d interleavings were made, in %d of them something did not come at its place", len(seen), planned, odd)
		default:
			return harness.Passed("%s: %d of %d", doc, len(seen), planned)
		}
	})
}

// nothingSilent: of the classes there may be any, but not this one.
func nothingSilent() harness.Check {
	const doc = "no interleaving ends with both events standing and nobody saying so"
	return funcCheck("C-I4.silence", doc, "provider_race_checks.go", true, func(rec harness.Record) harness.Verdict {
		list, missing := racesOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		classes := map[string]int{}
		for _, r := range list {
			if classes[r.end.Class]++; r.end.Class == raceSilence {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s (appointment %s): %s", r.interleaving, r.appointment, r.end)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d do, such as: %s", doc, len(wrong), len(list), wrong[0].Text)
		case len(list) == 0:
			return harness.Undecided(harness.ReasonVacuous, "no interleaving was made")
		}
		return harness.Passed("%s%s", doc, tallyText(classes))
	})
}

// measureRaces has the run's figures tell the table as it was found: how many
// interleavings of each external event's place came to what.
func measureRaces(ctx context.Context, env harness.Env, walks []*raceWalk) error {
	rec, err := recordNow(ctx, env)
	if err != nil {
		return err
	}
	b, missing := booksOf(rec)
	if missing != "" {
		return fmt.Errorf("measure what came of the interleavings: %s", missing)
	}
	figures := map[string]float64{}
	for _, w := range walks {
		end := b.raceEnd(w.appointment.ID, w.externalID(), w.cancelled)
		what := end.Class
		if end.Found != "" {
			what += ", found by " + end.Found + ", resolved by " + end.Resolved
		}
		figures[fmt.Sprintf("%s@external event %s", what, w.Interleaving.External)]++
	}
	for name, v := range figures {
		env.Measure(name, v)
	}
	return nil
}

// recordNow has the rows and the provider's ledger as they are now, as a record
// has them.
func recordNow(ctx context.Context, env harness.Env) (rec harness.Record, err error) {
	rec.Rows = map[string]harness.Rows{}
	for _, t := range tables {
		rows, err := env.Database().Query(ctx, "select * from "+t)
		if err != nil {
			return rec, fmt.Errorf("read %s: %w", t, err)
		}
		rec.Rows["table:"+t] = harness.Rows{Query: "table:" + t, Rows: rows}
	}
	ledger, err := env.Upstream(provider.Name).Ledger(ctx)
	if err != nil {
		return rec, fmt.Errorf("read the provider's ledger: %w", err)
	}
	name := "ledger:" + provider.Name
	var rows []harness.Row
	if err := json.Unmarshal(ledger, &rows); err != nil {
		return rec, fmt.Errorf("read the provider's ledger: %w", err)
	}
	rec.Rows[name] = harness.Rows{Query: name, Rows: rows}
	return rec, nil
}
