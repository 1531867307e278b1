package telescope

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
)

func TestOneOfTwo(t *testing.T) {
	judge := oneOfTwo(4).Judge
	copies := func(ops ...harness.Operation) harness.Record {
		rec := recordOf(oneSlot, ops...)
		for i := range rec.History.Operations {
			rec.History.Operations[i].Burst = "copies"
		}
		return rec
	}
	a, b := book(0, member(0), 7, "k"), book(0, member(0), 8, "k")
	won, reused := granted(a, 1), denied(b, 422, "key-reused")
	expectVerdict(t, judge(copies(won, won, reused, reused)), harness.Pass, "4 copies")
	expectVerdict(t, judge(copies(won, won, granted(b, 2), granted(b, 2))), harness.Failed, "both slots")
	expectVerdict(t, judge(copies(won, won, granted(b, 1), reused)), harness.Failed, "slot 8")
	expectVerdict(t, judge(copies(won, won, denied(b, 409, "slot-taken"), reused)), harness.Failed, "slot 8")
	expectVerdict(t, judge(copies(reused, reused, denied(a, 422, "key-reused"), denied(a, 422, "key-reused"))), harness.Failed, "no slot was booked")
	expectVerdict(t, judge(copies(won, won, reused)), harness.Unknown, "3 of 4 copies")
	expectVerdict(t, judge(copies()), harness.Unknown, "0 of 4 copies")
	expectVerdict(t, judge(inBrokenEnvironment(copies(won, won, reused, denied(b, 503, "busy")))), harness.Unknown, "environment that broke")
}

func TestLookupTells(t *testing.T) {
	judge := lookupTells().Judge
	r := book(0, member(0), 7, "k")
	look := func(status int, body string) harness.Operation {
		return replied(lookup(0, member(0), "k", "book"), 200, fmt.Sprintf(`{"key":"k","type":"book","status":%d,"body":%s}`, status, body))
	}
	won, lost := granted(r, 1), denied(r, 409, "slot-taken")
	won.Output += "\n"
	expectVerdict(t, judge(recordOf(oneSlot, won, look(201, won.Output))), harness.Pass, ": 1")
	expectVerdict(t, judge(recordOf(oneSlot, lost, look(409, lost.Output))), harness.Pass, ": 1")
	expectVerdict(t, judge(recordOf(oneSlot, won, look(200, won.Output))), harness.Failed, "1 of 1 have not")
	expectVerdict(t, judge(recordOf(oneSlot, won, look(201, granted(r, 2).Output))), harness.Failed, "1 of 1 have not")
	expectVerdict(t, judge(recordOf(oneSlot, won, denied(lookup(0, member(0), "k", "book"), 404, "unknown-operation"))), harness.Failed, "1 of 1 have not")
	expectVerdict(t, judge(recordOf(oneSlot, won)), harness.Unknown, "no look")
	expectVerdict(t, judge(recordOf(oneSlot, won, denied(lookup(1, member(1), "k", "book"), 404, "unknown-operation"))), harness.Unknown, "no look")
}

func TestStrangersSee(t *testing.T) {
	judge := strangersSee().Judge
	read := func(body string) harness.Operation {
		return ofKind("foreign-read", replied(readSlot(1, member(1), 7), 200, body))
	}
	good := read(`{"slot_id":7,"reserved":true,"mine":false,"booking_id":null}`)
	own := replied(account(0, member(0)), 200, `{"reservations":[{"booking_id":"x"}]}`)
	none := replied(account(1, member(1)), 200, `{"reservations":[]}`)
	look := replied(lookup(0, member(0), "k", "book"), 200, `{"key":"k","body":{"member":"member-1"}}`)
	expectVerdict(t, judge(recordOf(oneSlot, good, own, none, look)), harness.Pass, "4 looks")
	for _, bad := range []harness.Operation{
		read(`{"reserved":true,"mine":false,"booking_id":"` + uid(1) + `"}`), read(`{"reserved":true,"mine":true}`), read(`{"reserved":false}`), read(`<html>`),
		replied(account(1, member(1)), 200, `{"reservations":[{"booking_id":"x"}]}`), replied(account(0, member(0)), 200, `{"reservations":[]}`),
		replied(lookup(0, member(0), "k", "book"), 200, `{"key":"k","body":{}}`),
	} {
		expectVerdict(t, judge(recordOf(oneSlot, good, bad)), harness.Failed, "1 of 2 are not")
	}
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "nobody's look")
}

func ofKind(kind string, op harness.Operation) harness.Operation {
	op.Kind = kind
	return op
}

func TestEachSide(t *testing.T) {
	slots := []slot{{ID: 7, HalfHours: -1}, {ID: 8, HalfHours: 0}}
	judge := eachSide(map[string]int{"201": 1}).Judge
	before, after := granted(book(0, member(0), 7, "a"), 1), granted(book(0, member(0), 8, "b"), 2)
	expectVerdict(t, judge(recordOf(slots, before, after)), harness.Pass, "1 x 201 in 2 groups")
	expectVerdict(t, judge(recordOf(slots, before, denied(book(0, member(0), 8, "b"), 409, "quota-exceeded"))), harness.Failed, "after the border: got 1 x 409 quota-exceeded")
	expectVerdict(t, judge(recordOf(slots, before)), harness.Unknown, "after the border: got no operation")
}

func TestImportedAll(t *testing.T) {
	slots := []slot{{ID: 7, Month: 2}, {ID: 8, Month: 2}}
	now := time.Unix(1_800_000_000, 0)
	burst := func(name string, op harness.Operation) harness.Operation { op.Burst = name; return op }
	sent := func(name, body string) harness.Operation {
		return burst(name, replied(importOf(staffProcess, staff(0), slots, now, name, name), 200, body))
	}
	one := func(name string, r harness.Request, status int, body string) harness.Operation {
		if status == 409 {
			return burst(name, denied(r, 409, body))
		}
		return burst(name, replied(r, status, body))
	}
	closes, reopens := closeSlot(1, staff(1), 7, "k"), reopenSlot(1, staff(1), 7, "k")
	named := func(n int) string { return fmt.Sprintf(`{"slot_id":7,"state":"closed","flagged":%q}`, uid(n)) }
	// Slot 7 is booked before the import closes it; slot 8 only after the reopening.
	good := []harness.Operation{
		0: burst("closed", granted(book(0, member(0), 7, "k"), 1)),
		1: burst("closed", denied(book(1, member(1), 8, "k"), 409, "slot-closed")),
		2: sent("closed", `{"created":0,"closed":2,"reopened":0,"unchanged":0,"flagged":["`+uid(1)+`"]}`),
		3: one("closed", closes, 409, "already-closed"),
		4: burst("open", denied(book(2, member(2), 7, "k"), 409, "slot-taken")),
		5: burst("open", granted(book(3, member(3), 8, "k"), 2)),
		6: sent("open", `{"created":0,"closed":0,"reopened":1,"unchanged":1,"flagged":[]}`),
		7: one("open", reopens, 200, `{"slot_id":7,"state":"open"}`),
	}
	judge := func(changes map[int]harness.Operation, flag any, holders ...int) harness.Verdict {
		ops := append([]harness.Operation{}, good...)
		for i, op := range changes {
			ops[i] = op
		}
		rec := recordOf(slots, ops...)
		for i, s := range slots {
			lying(rec, s.ID, "open", holders[i], member(0), flag)
		}
		return importedAll(2).Judge(rec)
	}
	type changes = map[int]harness.Operation
	expectVerdict(t, judge(nil, nil, 1, 2), harness.Pass, "1 before the closure, 1 after the reopening")
	expectVerdict(t, judge(changes{ // the closure of one slot came before the import
		2: sent("closed", `{"closed":1,"unchanged":1,"flagged":[]}`), 3: one("closed", closes, 200, named(1)),
	}, nil, 1, 2), harness.Pass, "1 before the closure")
	for name, c := range map[string]changes{
		"nothing flagged":             {2: sent("closed", `{"closed":2,"flagged":[]}`)},
		"another one flagged":         {2: sent("closed", `{"closed":2,"flagged":["`+uid(5)+`"]}`)},
		"flagged by both":             {2: sent("closed", `{"closed":1,"unchanged":1,"flagged":["`+uid(1)+`"]}`), 3: one("closed", closes, 200, named(1))},
		"closed twice":                {3: one("closed", closes, 200, named(1))},
		"not every slot closed":       {2: sent("closed", `{"closed":1,"unchanged":1,"flagged":["`+uid(1)+`"]}`)},
		"not every slot reopened":     {6: sent("open", `{"reopened":1,"unchanged":0,"flagged":[]}`)},
		"flagged by the reopening":    {6: sent("open", `{"reopened":1,"unchanged":1,"flagged":["`+uid(1)+`"]}`)},
		"an import failed":            {6: burst("open", denied(importOf(1, staff(0), slots, now, "open", "open"), 503, "busy"))},
		"booked twice":                {4: burst("open", granted(book(2, member(2), 7, "k"), 3))},
		"taken before anybody had it": {1: burst("closed", denied(book(1, member(1), 8, "k"), 409, "slot-taken"))},
	} {
		if v := judge(c, nil, 1, 2); v.Status != harness.Failed {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
	expectVerdict(t, judge(nil, nil, 1, 0), harness.Failed, "1 differ")
	expectVerdict(t, judge(nil, nil, 2, 2), harness.Failed, "1 differ")
	expectVerdict(t, judge(nil, "open", 1, 2), harness.Failed, "2 differ")
	expectVerdict(t, judge(changes{1: burst("closed", replied(book(1, member(1), 8, "k"), 0, ""))}, nil, 1, 2), harness.Unknown, "3 and 4 of 4 requests")
	expectVerdict(t, importedAll(2).Judge(without(recordOf(slots), "observing_slots")), harness.Unknown, "could not be read")
}

func TestScheduleIsFresh(t *testing.T) {
	judge := scheduleIsFresh().Judge
	now := time.Unix(1_800_000_000, 0)
	show := func(ms int, state, stale string) harness.Operation {
		op := replied(schedule(0, member(5), oneSlot[0], now), 200, fmt.Sprintf(`{"stale":%s,"slots":[{"slot_id":7,"state":%q}]}`, stale, state))
		op.Sent, op.Answered = msec(ms), msec(ms+5)
		return op
	}
	made := granted(book(0, member(0), 7, "k"), 1) // answered at 20 ms
	closed := replied(closeSlot(0, staff(0), 7, "k"), 200, "{}")
	expectVerdict(t, judge(recordOf(oneSlot, made, show(30, "free", "false"), show(900, "taken", "false"))), harness.Pass, "2 answers, 1 changes shown")
	expectVerdict(t, judge(recordOf(oneSlot, closed, show(5021, "closed", "false"))), harness.Pass, "1 answers")
	expectVerdict(t, judge(recordOf(oneSlot, closed, show(5021, "taken", "false"))), harness.Failed, "1 answers are older")
	expectVerdict(t, judge(recordOf(oneSlot, made, show(5021, "free", "false"))), harness.Failed, "1 answers are older")
	expectVerdict(t, judge(recordOf(oneSlot, made, show(900, "taken", "true"))), harness.Failed, "1 answers are older")
	expectVerdict(t, judge(recordOf(oneSlot, made, show(5019, "free", "false"))), harness.Unknown, "no schedule was seen that shows slot 7")
	expectVerdict(t, judge(recordOf(oneSlot, made)), harness.Unknown, "no schedule or no change")
	expectVerdict(t, judge(recordOf(oneSlot, show(30, "free", "false"))), harness.Unknown, "no schedule or no change")
}

func TestBoundedWait(t *testing.T) {
	judge := boundedWait("503 busy", lockSlack).Judge
	wait := func(op harness.Operation, took time.Duration) harness.Operation {
		op.Answered = op.Intended + took
		op.Header["Retry-After"] = "1"
		return op
	}
	r := book(0, member(0), 7, "k")
	busy, free := ofKind(kindBlocked, denied(r, 503, "busy")), granted(book(1, member(1), 8, "k"), 2)
	expectVerdict(t, judge(recordOf(oneSlot, wait(busy, lockTimeout), free)), harness.Pass, "1 waited, at most 700ms")
	expectVerdict(t, judge(recordOf(oneSlot, wait(busy, lockTimeout+lockSlack+1))), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, wait(busy, lockTimeout), wait(free, lockTimeout+1))), harness.Failed, "1 did")
	never := busy
	never.Answered = 0
	expectVerdict(t, judge(recordOf(oneSlot, never)), harness.Failed, "1 did")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, never))), harness.Unknown, "nobody who had to wait")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, wait(busy, lockTimeout+lockSlack+1)))), harness.Unknown, "environment that broke")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, wait(busy, lockTimeout), free))), harness.Pass, "1 waited")
	mute := busy
	mute.Header = nil
	expectVerdict(t, judge(recordOf(oneSlot, mute)), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, free)), harness.Unknown, "nobody who had to wait")
}

func TestNoInsides(t *testing.T) {
	judge := noInsides().Judge
	r := book(0, member(0), 7, "k")
	good := denied(r, 409, "slot-taken")
	expectVerdict(t, judge(recordOf(oneSlot, good, granted(r, 1))), harness.Pass, ": 1")
	for _, leak := range []string{
		"goroutine 17 [running]", "/srv/book.go:42", "panic: nil", `ERROR: duplicate key value violates unique constraint "x" (SQLSTATE 23505)`, "select 1 from slots",
	} {
		bad := good
		bad.Output = strings.Replace(bad.Output, "no", leak, 1)
		expectVerdict(t, judge(recordOf(oneSlot, bad)), harness.Failed, "1 of 1 do not")
	}
	bare := replied(r, 500, "oops")
	expectVerdict(t, judge(recordOf(oneSlot, bare)), harness.Failed, "1 of 1 do not")
	html := good
	html.Header = map[string]string{"Content-Type": "text/html"}
	expectVerdict(t, judge(recordOf(oneSlot, html)), harness.Failed, "1 of 1 do not")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "nobody was refused")
}

func TestRowsOf(t *testing.T) {
	judge := rowsOf("rows", "no row was written", map[string]int{"observing_slots": 1, "member_quotas": 0}).Judge
	rec := recordOf(oneSlot)
	lying(rec, 7, "open", 0, "", nil)
	expectVerdict(t, judge(rec), harness.Pass, "1 x observing_slots")
	putRow(rec, "member_quotas", harness.Row{"member": member(0)})
	expectVerdict(t, judge(rec), harness.Failed, "member_quotas has 1 rows, want 0")
	expectVerdict(t, judge(without(rec, "member_quotas")), harness.Unknown, "could not be read")
}

func TestOverlapping(t *testing.T) {
	ops := func(spans ...[2]int) (list []harness.Operation) {
		for _, s := range spans {
			list = append(list, harness.Operation{Sent: msec(s[0]), Answered: msec(s[1])})
		}
		return list
	}
	for want, list := range map[int][]harness.Operation{
		0: {}, 1: ops([2]int{1, 2}, [2]int{2, 3}), 2: ops([2]int{1, 3}, [2]int{2, 4}, [2]int{3, 5}), 3: ops([2]int{1, 9}, [2]int{2, 8}, [2]int{3, 7}),
	} {
		if got := overlapping(list); got != want {
			t.Errorf("%v: %d, want %d", list, got, want)
		}
	}
}

// The quota's month must not depend on the day of the run, nor may a slot begin
// while it lasts.
func TestSlotsStartInTheirMonth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(1_700_000_000, 2_000_000_000).Draw(t, "now"), 0)
		rng := harness.Seed(rapid.Uint32().Draw(t, "seed")).Rand("choices")
		n := rapid.IntRange(1, 400).Draw(t, "slots")
		months, ids := map[string]bool{}, map[int64]bool{}
		for _, s := range slotsOfOneMonth(rng, n) {
			start := s.start(now)
			months[start.In(observatory).Format("2006-01")], ids[s.ID] = true, true
			if start.Sub(now) < 48*time.Hour || start.Unix()%1800 != 0 {
				t.Errorf("%v starts at %s, now is %s", s, start, now)
			}
		}
		if len(months) != 1 || len(ids) != n {
			t.Errorf("%d slots with %d ids in the months %v", n, len(ids), months)
		}
		apart := map[string]bool{}
		for _, s := range slotsOfManyMonths(rng, 12) {
			apart[s.start(now).In(observatory).Format("2006-01")] = true
		}
		if len(apart) != 12 {
			t.Errorf("12 slots in %d months", len(apart))
		}
	})
}

// At the month border, one UTC month holds both sides.
func TestMonthBorderIsTheObservatorys(t *testing.T) {
	s := quotaAtMonthBorder()
	plan, err := s.MakePlan(3, harness.Params{"slots": "20"})
	if err != nil {
		t.Fatal(err)
	}
	var c choices
	if err := plan.Decode(&c); err != nil {
		t.Fatal(err)
	}
	local, utc := map[string]int{}, map[string]int{}
	for _, slot := range c.Slots {
		start := slot.start(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC))
		local[start.In(observatory).Format("2006-01")]++
		utc[start.Format("2006-01")]++
	}
	if len(local) != 2 || len(utc) != 1 {
		t.Errorf("months at the observatory %v, in UTC %v", local, utc)
	}
}

// Every bad request has a name of its own and can be made.
func TestBadRequestsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range badRequests() {
		r := b.make(badWorld{open: slot{ID: 7}, past: slot{ID: 8}, booking: uid(1)})
		if seen[b.name] || r.Path == "" || b.want < "400" {
			t.Errorf("%s: %s %s wants %s", b.name, r.Method, r.Path, b.want)
		}
		seen[b.name] = true
	}
	if len(seen) < 40 {
		t.Errorf("only %d bad requests", len(seen))
	}
}
