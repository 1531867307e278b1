package telescope

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
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

// few bounds the evidence; the rest is in the run directory.
func few(all []harness.Evidence) []harness.Evidence { return all[:min(len(all), 10)] }

// about is evidence on one operation.
func about(op harness.Operation, problem string) harness.Evidence {
	return harness.Evidence{Text: problem + ": " + check.Line(op), Ops: []string{op.ID}}
}

// noServerErrors: no answer says that the server is at fault.
func noServerErrors() harness.Check {
	const doc = "no client is answered 500 or above"
	return funcCheck("answers.5xx", doc, "checks.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		answered := 0
		for _, op := range rec.History.Operations {
			if op.Answered != 0 {
				answered++
			}
			if op.Status >= 500 {
				wrong = append(wrong, about(op, "an answer"))
			}
		}
		switch {
		case len(wrong) > 0 && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "%d answers of 500 and above, in an environment that broke", len(wrong))
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d were", doc, len(wrong), answered)
		case answered == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no client was answered")
		}
		return harness.Passed("%s: %d answers", doc, answered)
	})
}

// tallies are numbers of answers by word, in groups.
type tallies map[string]map[string]int

// words compares what the clients of each group were told, in the words of
// [word]. As with statuses, a word that came up too often is a violation, and
// when only answers are missing it is Unknown: any of them might have been the
// right one. In an environment that broke, 500 and above are no excess.
func words(id, doc string, group func(harness.Operation) string, want func(harness.Record) tallies) harness.Check {
	return funcCheck(id, doc, "checks.go", false, func(rec harness.Record) harness.Verdict {
		groups := map[string][]harness.Operation{}
		for _, op := range rec.History.Operations {
			if g := group(op); g != "" {
				groups[g] = append(groups[g], op)
			}
		}
		var wrong []harness.Evidence
		open := ""
		expected := want(rec)
		if len(expected) == 0 {
			return harness.Undecided(harness.ReasonUndelivered, "no group of operations to judge")
		}
		for _, g := range slices.Sorted(maps.Keys(expected)) {
			got, excess := told(groups[g]), false
			for w, n := range got {
				excess = excess || (n > expected[g][w] && w != "none" && (w < "500" || !check.Broken(rec)))
			}
			switch {
			case excess:
				wrong = append(wrong, excessEvidence(g, groups[g], got, expected[g]))
			case open == "" && !maps.Equal(got, positive(expected[g])):
				open = fmt.Sprintf("%s: got %s, want %s", g, tallyText(got), tallyText(expected[g]))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %s", doc, strings.SplitN(wrong[0].Text, "\n", 2)[0])
		case open != "":
			return harness.Undecided(harness.ReasonUndelivered, "%s", open)
		}
		return harness.Passed("%s: %s in %d groups", doc, tallyText(positive(expected[slices.Sorted(maps.Keys(expected))[0]])), len(expected))
	})
}

// told tallies operations by word.
func told(ops []harness.Operation) map[string]int {
	n := map[string]int{}
	for _, op := range ops {
		n[word(op)]++
	}
	return n
}

// positive leaves out words that nobody is to be told.
func positive(tally map[string]int) map[string]int {
	t := maps.Clone(tally)
	maps.DeleteFunc(t, func(_ string, n int) bool { return n == 0 })
	return t
}

// excessEvidence shows the operations that were told a word too often.
func excessEvidence(group string, ops []harness.Operation, got, want map[string]int) harness.Evidence {
	e := harness.Evidence{Text: fmt.Sprintf("%s: got %s, want %s", group, tallyText(got), tallyText(want))}
	for _, op := range ops {
		if w := word(op); got[w] > want[w] && len(e.Ops) < 4 {
			e.Ops = append(e.Ops, op.ID)
			e.Text += "\n  " + check.Line(op)
		}
	}
	return e
}

func tallyText(t map[string]int) string {
	var parts []string
	for _, w := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, strconv.Itoa(t[w])+" x "+w)
	}
	if len(parts) == 0 {
		return "no operation"
	}
	return strings.Join(parts, ", ")
}

// fixed gives the same expectation for every record of a whole run. A record
// without any operation is not judged.
func fixed(t tallies) func(harness.Record) tallies {
	return func(harness.Record) tallies { return t }
}

// byBurst groups by burst, byKind by kind.
func byBurst(op harness.Operation) string { return op.Burst }
func byKind(op harness.Operation) string  { return op.Kind }

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
