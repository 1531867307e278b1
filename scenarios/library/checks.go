package library

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func sqlCheck(id, file string) harness.Check {
	return check.SQL(id, invariants, "invariants/"+file, "scenarios/library")
}

// always are the checks that hold in every scenario of this design.
func always() []harness.Check {
	return []harness.Check{
		sqlCheck("L-I1", "one_intent_per_action.sql"),
		sqlCheck("L-I2", "settled_states.sql"),
		sqlCheck("L-I3", "one_winner_per_seat.sql"),
		rowsMatchUpstream(),
		sqlCheck("L-I4", "event_per_transition.sql"),
		oncePerIntent(),
		postsOfIntents(),
		sqlCheck("L-I7", "terminal_is_final.sql"),
		sqlCheck("L-I8.waits", "waits_not_suppressed.sql"),
	}
}

// outsider begins the names of people who hold seats without our server.
const outsider = "outsider"

// rowsMatchUpstream joins our SUCCEEDED rows with the double's own charges.
func rowsMatchUpstream() harness.Check {
	const doc = "each SUCCEEDED has its upstream charge and each upstream charge its SUCCEEDED"
	return check.Func(check.Rule{ID: "L-I3.charges", Doc: doc, Rule: "scenarios/library/checks.go", NeedsSettled: true, Judge: func(rec harness.Record) harness.Verdict {
		intents, ok := rec.Find("table:library_reservation_intents")
		charges, ok2 := rec.Find("ledger:pyxis")
		if !ok || !ok2 {
			return harness.Undecided(harness.ReasonEnvironment, "the intents or the upstream's charges could not be read")
		}
		if len(intents.Rows) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "there was no intent to judge")
		}
		key := func(r harness.Row) string {
			return fmt.Sprintf("%v holds %v by %v", r["student"], r["seat"], r["charge_id"])
		}
		ours, theirs := map[string]bool{}, map[string]bool{}
		for _, r := range intents.Rows {
			if r["state"] == "SUCCEEDED" {
				ours[key(r)] = true
			}
		}
		for _, r := range charges.Rows {
			if name, _ := r["student"].(string); !strings.HasPrefix(name, outsider) {
				theirs[key(r)] = true
			}
		}
		var wrong []harness.Evidence
		for _, k := range slices.Sorted(maps.Keys(ours)) {
			if !theirs[k] {
				wrong = append(wrong, harness.Evidence{Text: "we say " + k + ", the upstream has no such charge"})
			}
		}
		for _, k := range slices.Sorted(maps.Keys(theirs)) {
			if !ours[k] {
				wrong = append(wrong, harness.Evidence{Text: "the upstream says " + k + ", we have no such SUCCEEDED"})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(wrong[:min(10, len(wrong))], "%s: %d differ", doc, len(wrong))
		}
		return harness.Passed("%s: %d on both sides", doc, len(ours))
	}})
}

// reference is the intent that a reserve POST was made for.
func reference(c harness.UpstreamCall) string { return field(c, "reference") }

// seatOf is the seat that a reserve POST asks for.
func seatOf(c harness.UpstreamCall) string { return field(c, "seat") }

func field(c harness.UpstreamCall, name string) string {
	var body map[string]any
	if json.Unmarshal([]byte(c.Request), &body) != nil {
		return ""
	}
	text, _ := body[name].(string)
	return text
}

// oncePerIntent: what was perhaps accepted is never written again.
func oncePerIntent() harness.Check {
	return check.Calls(check.CallRule{
		ID: "L-I5.intent", Doc: "no intent is written upstream twice", Rule: "scenarios/library/checks.go",
		Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: reference, Each: check.AtMost(1),
	})
}

// postsOfIntents: a write upstream that names no intent of ours, or another
// student's, can't be accounted for when its answer is lost.
func postsOfIntents() harness.Check {
	const doc = "each reserve POST names the intent that it is made for, of that student and for that seat"
	return check.Func(check.Rule{ID: "L-I5.reference", Doc: doc, NeedsSettled: true, Rule: "scenarios/library/checks.go", Judge: func(rec harness.Record) harness.Verdict {
		intents, ok := rec.Find("table:library_reservation_intents")
		posts := rec.Calls("pyxis", "POST", "/reserve")
		switch {
		case !ok:
			return harness.Undecided(harness.ReasonEnvironment, "the intents could not be read")
		case len(posts) == 0:
			return harness.Undecided(harness.ReasonVacuous, "there was no reserve POST to judge")
		}
		known := map[string]harness.Row{}
		for _, r := range intents.Rows {
			known[fmt.Sprint(r["intent_id"])] = r
		}
		var wrong []harness.Evidence
		for _, c := range posts {
			r, ok := known[reference(c)]
			// A wait goes for one seat after the other; its row has the last of them.
			if !ok || r["student"] != field(c, "student") || (r["kind"] != "wait" && r["seat"] != seatOf(c)) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d by %s: %s", c.Seq, c.Caller, c.Request)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(wrong[:min(10, len(wrong))], "%s: %d of %d do not", doc, len(wrong), len(posts))
		}
		return harness.Passed("%s: %d", doc, len(posts))
	}})
}

// oneWinner: in each burst one client is told 201 and all others 409.
func oneWinner(bursts map[string]int) harness.Check {
	want := map[string]map[string]int{}
	for name, users := range bursts {
		want[name] = map[string]int{"201": 1, "409": users - 1}
	}
	return tally("each burst is answered with one 201, all others 409", want)
}

// tally compares the confirm answers of each burst.
func tally(doc string, want map[string]map[string]int) harness.Check {
	return check.Tally(check.TallyRule{
		ID: "answers", Doc: doc, Rule: "scenarios/library/checks.go",
		Group: func(op harness.Operation) string { return op.Burst },
		Want:  func(harness.Record) map[string]map[string]int { return want },
	})
}

// oneWinnerOnce are the checks of one burst on one seat in which no client may
// notice the fault: one winner, one reserve POST.
func oneWinnerOnce(p harness.Params) []harness.Check {
	return append(always(), oneWinner(map[string]int{"burst": p.Int("users")}), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"))
}

// noOpenTransaction is L-I6, judged from both wires, or sampled where the
// Postgres wire would cost the latencies that are measured.
func noOpenTransaction(p harness.Params) harness.Check {
	if onWire(p) {
		return check.NoTransactionDuringCall("L-I6", "pyxis")
	}
	return check.NoOpenTransaction("L-I6", "pyxis")
}

// states checks how many intents ended in each state.
func states(doc string, want map[string]int) harness.Check {
	return check.Func(check.Rule{ID: "states", Doc: doc, NeedsSettled: true, Rule: "scenarios/library/checks.go", Judge: func(rec harness.Record) harness.Verdict {
		if _, ok := rec.Find("table:library_reservation_intents"); !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the intents could not be read")
		}
		got, want := intentStates(rec), maps.Clone(want)
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 }) // a state that nobody is to be in
		if !maps.Equal(got, want) {
			return harness.Violated([]harness.Evidence{{Text: "got " + stateText(got) + "; want " + stateText(want)}}, "%s: got %s", doc, stateText(got))
		}
		return harness.Passed("%s: %s", doc, stateText(got))
	}})
}

// intentStates tallies the stored intents by their state.
func intentStates(rec harness.Record) map[string]int {
	n := map[string]int{}
	rows, _ := rec.Find("table:library_reservation_intents")
	for _, r := range rows.Rows {
		n[fmt.Sprint(r["state"])]++
	}
	return n
}

func stateText(n map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, strconv.Itoa(n[k])+" "+k)
	}
	if len(parts) == 0 {
		return "no intent"
	}
	return strings.Join(parts, ", ")
}

// Measured takes from a burst on the direct path the checks that the path does
// not promise: that a seat has one winner when the upstream looks before it
// takes. Everybody must be told the upstream's decision all the same.
func Measured(s harness.Scenario) harness.Scenario {
	all := s.Checks
	s.Checks = func(p harness.Params) []harness.Check {
		kept := slices.DeleteFunc(all(p), func(c harness.Check) bool { return c.ID == "L-I3" || c.ID == "answers" })
		return append(kept, answered("every client of the burst is answered 201 or 409", func(op harness.Operation) bool {
			return op.Status == 201 || op.Status == 409
		}))
	}
	return s
}

// ReservePosts is what the two observers counted for one seat, each by itself.
// WireMock's number is -1 when it could not be read; the ledger is ours.
func ReservePosts(rec harness.Record, seat string) harness.CountPair {
	for _, c := range rec.Counts {
		if c.Method == "POST" && c.Path == "/reserve" && c.Key == seat {
			return harness.CountPair{Ledger: c.Ledger, WireMock: c.WireMock}
		}
	}
	n := 0
	for _, c := range rec.Calls("pyxis", "POST", "/reserve") {
		if seatOf(c) == seat && c.Forwarded != 0 {
			n++
		}
	}
	return harness.CountPair{Ledger: n, WireMock: -1}
}
