package telescope

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// What staff decide about a flagged reservation.
const (
	decideRelease = "release"
	decideKeep    = "keep"
)

// The kinds of operations of these scenarios alone. Each list of what is
// flagged has its own, as it is another list each time.
const (
	kindResolve      = "resolve"
	kindAfterwards   = "afterwards" // a decision after the decision
	kindUnflagged    = "unflagged"  // a decision where there is nothing to decide
	kindUnknown      = "unknown"    // a decision about a booking that never was
	kindAsMember     = "as-member"  // what is for staff alone
	listedClosed     = "listed-closed"
	listedDecided    = "listed-decided"
	listedReopened   = "listed-reopened"
	neverBooked      = "00000000-0000-4000-8000-000000000000"
	afterRaced       = 4 // slots behind those that are raced for: see [driveResolution]
	flaggedListLimit = 50
)

func resolveFlag(process int, who, booking, decision, key string) harness.Request {
	return harness.Request{
		Kind: kindResolve, Process: process, Caller: who, Method: http.MethodPost, Path: "/telescope/staff/flagged/" + booking + "/resolution",
		Header: signed(who, key), Body: json.RawMessage(fmt.Sprintf(`{"decision":%q}`, decision)),
	}
}

func listFlagged(kind, who string, process int) harness.Request {
	return harness.Request{Kind: kind, Process: process, Caller: who, Method: http.MethodGet, Path: "/telescope/staff/flagged", Header: bearer(who)}
}

func staffResolution() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/staff-resolution",
		Title: "two of the staff decide about one flagged reservation, one releases and the other keeps it, many at once",
		Doc: `Slots are booked and closed, so that their reservations are flagged. Of each one of the staff releases the reservation and another one keeps it, with a key each, at
one barrier: a flag is decided once, so one is answered 200, the other 409 not-flagged, and rows, history and mail are the winner's. Both get their answers again, byte for byte;
a later decision is 409, as is one where nothing is flagged. The list of flagged reservations is true before, between and after: open, then kept or gone, and a slot that
is reopened clears the flag. Members may neither see it nor decide.`,
		Sources: []string{"T-I2", "T-I3", "T-I8", "T-I10", "T-I12"},
		Params:  []harness.Param{atMost(flaggedListLimit, with(paramRounds, "20")), paramReplicas},
		Rounds:  rounds,
		Latency: kindResolve,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("rounds")
			c := choices{Slots: slotsOfOneMonth(rng, n+afterRaced)}
			for range n {
				c.Orders = append(c.Orders, rng.Perm(2))
			}
			return c, nil
		},
		Drive: driveResolution,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(), linearizable(), resolvedOnce(), listsAreTrue(), everyEventMailed(mailRules{}),
				words("answers", "each flag is decided once, and who may not or comes too late is told so", byKind, fixed(resolutionAnswers(p.Int("rounds")))))
		},
	}, nil)
}

// atMost gives the parameter another greatest value. Of an answer the record
// has 16 KiB, which is what bounds a list.
func atMost(n int, p harness.Param) harness.Param {
	p.Max = n
	return p
}

// resolutionAnswers are those of n flags that are raced for and two that are not.
func resolutionAnswers(n int) tallies {
	return tallies{
		kindClose: {"200": n + 3}, kindReopen: {"200": len(reopenedOf(n))},
		kindResolve: {"200": n + 2, "409 not-flagged": n}, kindAgain: {"200": n + 2, "409 not-flagged": n}, kindAfterwards: {"409 not-flagged": n + 2},
		kindUnflagged: {"409 not-flagged": 2}, kindUnknown: {"404 unknown-booking": 1}, kindAsMember: {"403 forbidden": 2},
		listedClosed: {"200": 1}, listedDecided: {"200": 1}, listedReopened: {"200": 1},
	}
}

// reopenedOf are the indices of the slots that are reopened in the end: every
// second one of the n that were raced for, and the first that was kept.
func reopenedOf(n int) []int {
	list := []int{n}
	for i := 0; i < n; i += 2 {
		list = append(list, i)
	}
	return list
}

// driveResolution races for the first n slots. Of the others two are kept
// without a race (the first is reopened later), one is booked and stays open,
// and one is closed and nobody's.
func driveResolution(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	n := len(c.Slots) - afterRaced
	held, err := bookAll(ctx, env, c.Slots[:n+3])
	if err != nil {
		return err
	}
	var closures []harness.Request
	for i, s := range c.Slots {
		if i != n+2 {
			closures = append(closures, closeSlot(staffProcess+i, staff(0), s.ID, keyOf("close", i)))
		}
	}
	env.DoAll(ctx, closures, 4)
	env.Do(ctx, listFlagged(listedClosed, staff(0), staffProcess))
	for _, r := range []harness.Request{
		listFlagged(kindAsMember, member(0), 0), as(kindAsMember, resolveFlag(0, member(0), held[0], decideKeep, "mine")),
		as(kindUnflagged, resolveFlag(staffProcess, staff(0), held[n+2], decideRelease, "stands")),
		as(kindUnknown, resolveFlag(staffProcess, staff(0), neverBooked, decideRelease, "never")),
	} {
		env.Do(ctx, r)
	}
	sent, err := racedDecisions(ctx, env, c, held[:n])
	if err != nil {
		return err
	}
	for i := n; i < n+2; i++ {
		r := resolveFlag(staffProcess+2*i, staff(2*i), held[i], decideKeep, decideKeep)
		env.Do(ctx, r)
		sent = append(sent, r)
	}
	env.Do(ctx, listFlagged(listedDecided, staff(0), staffProcess))
	for i := range sent {
		sent[i] = as(kindAgain, sent[i])
	}
	env.DoAll(ctx, sent, 4)
	for i, booking := range held[:n+2] {
		env.Do(ctx, as(kindAfterwards, resolveFlag(staffProcess, staff(0), booking, []string{decideRelease, decideKeep}[i%2], keyOf("late", i))))
	}
	for _, i := range reopenedOf(n) {
		env.Do(ctx, reopenSlot(staffProcess, staff(0), c.Slots[i].ID, keyOf("reopen", i)))
	}
	env.Do(ctx, listFlagged(listedReopened, staff(0), staffProcess))
	env.Do(ctx, as(kindUnflagged, resolveFlag(staffProcess, staff(0), held[n], decideRelease, "reopened")))
	return nil
}

// racedDecisions has two of the staff decide about each booking at one barrier
// and gives what they sent.
func racedDecisions(ctx context.Context, env harness.Env, c choices, held []string) (sent []harness.Request, err error) {
	won, overlapped := map[string]int{}, 0
	for from := 0; from < len(held); from += pairsAtOnce {
		b := harness.Burst{Name: fmt.Sprintf("pairs-%d", from/pairsAtOnce+1)}
		for i := from; i < min(len(held), from+pairsAtOnce); i++ {
			pair := []harness.Request{
				resolveFlag(staffProcess+2*i, staff(2*i), held[i], decideRelease, decideRelease),
				resolveFlag(staffProcess+2*i+1, staff(2*i+1), held[i], decideKeep, decideKeep),
			}
			for _, n := range c.Orders[i] {
				b.Requests = append(b.Requests, pair[n])
			}
		}
		_, ops, err := env.Burst(ctx, b)
		if err != nil {
			return nil, err
		}
		sent = append(sent, b.Requests...)
		for pair := range slices.Chunk(ops, 2) {
			overlapped += max(0, overlapping(pair)-1)
			for _, op := range pair {
				won[resolutionOf(op)] += int(count(op.Status == http.StatusOK))
			}
		}
	}
	env.Measure("released", float64(won[decideRelease]))
	env.Measure("kept", float64(won[decideKeep]))
	env.Witness("overlapping_pairs", float64(max(1, len(held)/2)), float64(overlapped), "pairs of which both decisions were sent before either was answered")
	return sent, nil
}

// A flaggedCase is a reservation that was flagged, with those who decided.
type flaggedCase struct {
	booking   booking
	decisions []harness.Operation
	winner    *harness.Operation // the one that was answered 200
	reopened  bool
}

// casesOf gives the case of each slot that was booked before it was closed.
func casesOf(rec harness.Record) map[int64]*flaggedCase {
	cases, byBooking := map[int64]*flaggedCase{}, map[string]*flaggedCase{}
	for _, op := range rec.History.OfKind(kindHold) {
		if b, err := bookingOf(op); err == nil {
			cases[slotOf(op)] = &flaggedCase{booking: b}
			byBooking[b.BookingID] = cases[slotOf(op)]
		}
	}
	for _, op := range rec.History.OfKind(kindResolve) {
		id := strings.TrimSuffix(strings.TrimPrefix(op.Path, "/telescope/staff/flagged/"), "/resolution")
		f := byBooking[id]
		if f == nil || op.Answered == 0 {
			continue
		}
		f.decisions = append(f.decisions, op)
		if op.Status == http.StatusOK {
			f.winner = &op
		}
	}
	for _, op := range rec.History.OfKind(kindReopen) {
		if f := cases[slotOf(op)]; f != nil && op.Status == http.StatusOK {
			f.reopened = true
		}
	}
	return cases
}

// resolvedOnce: one of those who decided about a flag was told 200, and the
// rows show that decision and no other.
func resolvedOnce() harness.Check {
	const doc = "each flag is decided once: one decision is answered 200, the other 409 not-flagged, and the rows and the history are the winner's"
	return funcCheck("T-I2.resolved", doc, "resolution.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		slots, cases := planned(rec).Slots, casesOf(rec)
		raced := len(slots) - afterRaced
		var wrong []harness.Evidence
		missing, n := 0, map[string]int{}
		for i, s := range slots[:raced+2] {
			want := 2
			if i >= raced {
				want = 1
			}
			f := cases[s.ID]
			switch {
			case f == nil || len(f.decisions) == 0 || len(f.decisions) < want && f.winner == nil:
				missing++
				continue
			case len(f.decisions) < want:
				missing++
			}
			if problem := f.problem(stands[s.ID], actorsOf(rec, s.ID)); problem != "" {
				wrong = append(wrong, pairEvidence(fmt.Sprintf("slot %d: %s", s.ID, problem), stands[s.ID], f.decisions...))
				continue
			}
			n[resolutionOf(*f.winner)]++
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: not so on %d of %d slots", doc, len(wrong), raced+2)
		case missing > 0:
			return harness.Undecided(harness.ReasonUndelivered, "about %d flags not every decision was answered", missing)
		}
		return harness.Passed("%s: %d released, %d kept", doc, n[decideRelease], n[decideKeep])
	})
}

// actorsOf gives who decided about the slot's reservation, by the history.
func actorsOf(rec harness.Record, id int64) (actors []string) {
	history, _ := rec.Find("table:audit_history")
	for _, r := range history.Rows {
		if e := text(r, "event"); r["slot_id"] == float64(id) && (e == "CANCELLED" || e == "KEPT") {
			actors = append(actors, text(r, "actor"))
		}
	}
	return actors
}

// problem says what is wrong with a flag's answers and rows, "" for nothing.
func (f *flaggedCase) problem(s *stand, actors []string) string {
	told := told(f.decisions)
	if told["200"] != 1 || told["409 not-flagged"] != len(f.decisions)-1 {
		return "those who decided were told " + tallyText(told)
	}
	var a struct {
		Booking  string `json:"booking_id"`
		Slot     int64  `json:"slot_id"`
		Decision string `json:"decision"`
	}
	decision := resolutionOf(*f.winner)
	if f.winner.Decode(&a) != nil || a.Booking != f.booking.BookingID || a.Slot != f.booking.SlotID || a.Decision != decision {
		return "the winner's answer tells of something else"
	}
	want := stand{State: "closed", History: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", "CANCELLED"}}
	if decision == decideKeep {
		want = stand{State: "closed", History: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", "KEPT"}, Holder: f.booking.BookingID, HeldBy: f.booking.Member, FlagState: "kept"}
	}
	if f.reopened {
		want.State, want.FlagState, want.History = "open", "", append(want.History, "REOPENED")
	}
	switch {
	case s == nil:
		return "the slot is gone"
	case s.State != want.State || s.Holder != want.Holder || s.HeldBy != want.HeldBy || s.FlagState != want.FlagState || !slices.Equal(s.History, want.History):
		return fmt.Sprintf("answered was %s, so the rows must say %+v", decision, want)
	case !slices.Equal(actors, []string{f.winner.Caller}):
		return fmt.Sprintf("the winner is %s, by the history it was %v", f.winner.Caller, actors)
	}
	return ""
}

// A flagEntry is one reservation in the list of flagged ones.
type flagEntry struct {
	Booking   string    `json:"booking_id"`
	Slot      int64     `json:"slot_id"`
	Member    string    `json:"member"`
	Starts    string    `json:"starts_at"`
	FlaggedAt time.Time `json:"flagged_at"`
	State     string    `json:"flag_state"`
}

// listsAreTrue: nothing else was under way when staff looked at what is
// flagged, so each list follows from the answers before it.
func listsAreTrue() harness.Check {
	const doc = "staff are shown exactly the flagged reservations, with member, start and state: open, then kept or gone, and none of a reopened slot"
	return funcCheck("T-I2.listed", doc, "resolution.go", false, func(rec harness.Record) harness.Verdict {
		cases, slots := casesOf(rec), planned(rec).Slots
		var wrong []harness.Evidence
		seen, entries := 0, 0
		for _, kind := range []string{listedClosed, listedDecided, listedReopened} {
			var want []flagEntry
			for _, s := range slots[:len(slots)-afterRaced+2] {
				f := cases[s.ID]
				if f == nil || kind != listedClosed && f.winner == nil {
					return harness.Undecided(harness.ReasonUndelivered, "slot %d was not booked, or nobody decided about it", s.ID)
				}
				entry := flagEntry{Booking: f.booking.BookingID, Slot: s.ID, Member: f.booking.Member, Starts: f.booking.StartsAt, State: "open"}
				if kind != listedClosed {
					entry.State = "kept"
				}
				released := kind != listedClosed && resolutionOf(*f.winner) == decideRelease
				if !released && (kind != listedReopened || !f.reopened) {
					want = append(want, entry)
				}
			}
			for _, op := range rec.History.OfKind(kind) {
				if op.Status != http.StatusOK {
					continue // what it was told is another check's business
				}
				seen++
				entries += len(want)
				if problem := differs(op, want); problem != "" {
					wrong = append(wrong, about(op, problem))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d lists differ; %s", doc, len(wrong), seen, firstLine(wrong[0].Text))
		case seen < 3:
			return harness.Undecided(harness.ReasonUndelivered, "%d of 3 lists were answered", seen)
		}
		return harness.Passed("%s: %d entries of %d lists", doc, entries, seen)
	})
}

// differs says how the list that was answered is not the one that it should
// be, "" when it is. It must be by time, which is told and not known before.
func differs(op harness.Operation, want []flagEntry) string {
	var got struct {
		Flagged []flagEntry `json:"flagged"`
	}
	if op.Decode(&got) != nil {
		return "no list"
	}
	if !slices.IsSortedFunc(got.Flagged, func(a, b flagEntry) int { return a.FlaggedAt.Compare(b.FlaggedAt) }) {
		return "a list that is not by time"
	}
	for i := range got.Flagged {
		if got.Flagged[i].FlaggedAt.IsZero() {
			return "an entry without its time"
		}
		got.Flagged[i].FlaggedAt = time.Time{}
	}
	bySlot := func(a, b flagEntry) int { return cmp.Compare(a.Slot, b.Slot) }
	slices.SortStableFunc(got.Flagged, bySlot)
	slices.SortStableFunc(want, bySlot)
	if !slices.Equal(got.Flagged, want) {
		return fmt.Sprintf("listed are %v, want %v", got.Flagged, want)
	}
	return ""
}
