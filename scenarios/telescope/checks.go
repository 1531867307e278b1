package telescope

import (
	"fmt"
	"maps"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
)

func sqlCheck(id, file string) harness.Check {
	return check.SQL(id, invariants, "invariants/"+file, where)
}

// always are the checks that hold in every scenario of this design, whatever
// was injected.
func always() []harness.Check { return standingRules(false) }

// retried are those of a scenario that is about retries: it has shown nothing
// when no request was answered twice, or nobody was answered 201.
func retried() []harness.Check { return standingRules(true) }

// standingRules are the checks of every scenario; aboutRetries is for those
// that demand something to compare.
func standingRules(aboutRetries bool) []harness.Check {
	return []harness.Check{
		sqlCheck("T-I1", "one_active_per_slot.sql"),
		sqlCheck("T-I1.rows", "one_row_per_slot.sql"),
		sqlCheck("T-I2", "closed_means_flagged.sql"),
		sqlCheck("T-I2.history", "no_booking_while_closed.sql"),
		sqlCheck("T-I2.flagged", "closure_flags_booking.sql"),
		sameAnswers(aboutRetries),
		oneEffect(),
		answeredIsStored(aboutRetries),
		answersAreKept(),
		sqlCheck("T-I4.key", "result_per_booking.sql"),
		sqlCheck("T-I5", "two_a_month.sql"),
		sqlCheck("T-I5.history", "two_a_month_ever.sql"),
		sqlCheck("T-I5.month", "month_of_slot.sql"),
		sqlCheck("T-I6", "event_per_audit_row.sql"),
		sqlCheck("T-I6.once", "booked_once_per_result.sql"),
		sqlCheck("T-I6.results", "result_per_change.sql"),
		nothingRevealed(),
		sqlCheck("T-I7.hands", "own_hands.sql"),
		sqlCheck("T-I9", "schedule_is_true.sql"),
		sqlCheck("T-I10", "history_without_gaps.sql"),
		sqlCheck("T-I10.steps", "history_steps.sql"),
		sqlCheck("T-I10.slots", "history_replays_to_slot.sql"),
		sqlCheck("T-I10.reservations", "history_replays_to_reservation.sql"),
	}
}

// served are the checks of a scenario in which nothing is broken or held back
// for longer than the server's deadlines: nobody may be told to come again.
func served() []harness.Check { return append(always(), noServerErrors()) }

// servedRetried are those of one that is about retries besides.
func servedRetried() []harness.Check { return append(retried(), noServerErrors()) }

// funcCheck makes a check of a function; file is where it is written.
func funcCheck(id, doc, file string, settled bool, judge func(harness.Record) harness.Verdict) harness.Check {
	return check.Func(check.Rule{ID: id, Doc: doc, Rule: where + "/" + file, NeedsSettled: settled, Judge: judge})
}

// What clients were told is judged for all designs alike.
type tallies = answers.Tallies

var (
	few       = answers.Few
	about     = answers.About
	told      = answers.Told
	positive  = answers.Positive
	tallyText = answers.Text
	fixed     = answers.Fixed
	byBurst   = answers.ByBurst
	byKind    = answers.ByKind
)

func noServerErrors() harness.Check { return answers.NoServerErrors(where + "/checks.go") }

// words compares what the clients of each group were told.
func words(id, doc string, group func(harness.Operation) string, want func(harness.Record) tallies) harness.Check {
	return answers.Words(answers.WordsRule{ID: id, Doc: doc, Rule: where + "/checks.go", Group: group, Want: want})
}

// events tallies the history by event.
func events(rec harness.Record) map[string]int {
	n := map[string]int{}
	rows, _ := rec.Find("table:audit_history")
	for _, r := range rows.Rows {
		n[fmt.Sprint(r["event"])]++
	}
	return n
}

// happened compares how many events of each sort are in the history.
func happened(doc string, want map[string]int) harness.Check {
	return funcCheck("events", doc, "checks.go", true, func(rec harness.Record) harness.Verdict {
		if _, ok := rec.Find("table:audit_history"); !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the history could not be read")
		}
		got := events(rec)
		if !maps.Equal(got, positive(want)) {
			return harness.Violated([]harness.Evidence{{Text: "got " + tallyText(got) + "; want " + tallyText(want)}}, "%s: got %s", doc, tallyText(got))
		}
		return harness.Passed("%s: %s", doc, tallyText(got))
	})
}

// A stand is what is stored of one slot.
type stand struct {
	State     string
	History   []string // events in order
	Holder    string   // booking that is active, "" for none
	HeldBy    string   // its member
	FlagState string   // "" for not flagged
}

// standing gives what is stored of each slot, false when it could not be read.
func standing(rec harness.Record) (map[int64]*stand, bool) {
	slots, ok := rec.Find("table:observing_slots")
	active, ok2 := rec.Find("table:active_reservations")
	history, ok3 := rec.Find("table:audit_history")
	if !ok || !ok2 || !ok3 {
		return nil, false
	}
	list := map[int64]*stand{}
	of := func(r harness.Row) *stand {
		id, _ := r["slot_id"].(float64)
		if list[int64(id)] == nil {
			list[int64(id)] = &stand{}
		}
		return list[int64(id)]
	}
	for _, r := range slots.Rows {
		of(r).State = text(r, "state")
	}
	for _, r := range active.Rows {
		s := of(r)
		s.Holder, s.HeldBy, s.FlagState = text(r, "booking_id"), text(r, "member"), text(r, "flag_state")
	}
	bySeq := slices.SortedFunc(slices.Values(history.Rows), func(a, b harness.Row) int {
		x, _ := a["seq"].(float64)
		y, _ := b["seq"].(float64)
		return int(x - y)
	})
	for _, r := range bySeq {
		s := of(r)
		s.History = append(s.History, text(r, "event"))
	}
	return list, true
}

// text is a text column, "" when it is null.
func text(r harness.Row, column string) string {
	s, _ := r[column].(string)
	return s
}
