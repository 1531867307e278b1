package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
)

// schedulePath is the public schedule of the slot's day at the observatory.
func schedulePath(s slot, now time.Time) string {
	return "/telescope/days/" + s.start(now).In(observatory).Format(time.DateOnly) + "/slots"
}

// schedule reads the public schedule, as anybody may who has a token.
func schedule(process int, who string, s slot, now time.Time) harness.Request {
	return harness.Request{Kind: kindSchedule, Process: process, Caller: who, Method: http.MethodGet, Path: schedulePath(s, now), Header: bearer(who)}
}

func staleSchedule() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/stale-schedule",
		Title: "the public schedule still shows a slot as free that was just booked or closed",
		Doc: `Right after each booking another member reads the day's schedule, which is a projection refreshed once a second, and books what it shows as free: that
costs a rejected attempt and nothing else. Then a slot is closed, reopened and closed,
and reading the slot itself, which is authoritative, must show each of that at once. Every schedule that is asked for more than five seconds after a change
must show it, none may call itself stale, and none names anybody.`,
		Sources: []string{"T-I7", "T-I9", "T-I12", "T-M17", "T-M34"},
		Params:  []harness.Param{{Name: "slots", Kind: harness.IntParam, Default: "6", Min: 2, Max: 48, Doc: "slots of the day; the last is closed, the others are booked"}, paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("slots")
			list := slotsOfOneMonth(rng, n)
			for i, day := 0, rng.IntN(27); i < n; i++ {
				list[i].HalfHours = 48*day + i%48 // of one day, so that one schedule shows them all
			}
			return choices{Slots: list}, nil
		},
		Drive: driveStale,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("slots")
			return append(served(), scheduleIsFresh(), linearizable(), words("answers", "who books what only the schedule shows as free is told that it is taken", byKind, fixed(tallies{
				kindBook: {"201": n - 1}, "late-book": {"409 slot-taken": n - 1}, kindClose: {"200": 2}, kindReopen: {"200": 1},
			})))
		},
	}, map[string]string{"TELESCOPE_PROJECTION_INTERVAL": "1s"})
}

func driveStale(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	if err := caughtUp(ctx, env); err != nil { // now it shows every slot as free
		return err
	}
	stale, last := 0, len(c.Slots)-1
	for i, s := range c.Slots[:last] {
		env.Do(ctx, book(i, member(i), s.ID, "book"))
		seen := shownIn(env.Do(ctx, schedule(1000+i, member(1000+i), s, now)))
		stale += int(count(seen[s.ID] == "free"))
		env.Do(ctx, as("late-book", book(1000+i, member(1000+i), s.ID, "book")))
	}
	closeAndRead(ctx, env, c.Slots[last].ID)
	if err := caughtUp(ctx, env); err != nil {
		return err
	}
	env.Do(ctx, schedule(2000, member(2000), c.Slots[0], now))
	env.Witness("stale_reads", 1, float64(stale), "schedules that showed a slot as free whose booking had been answered")
	return nil
}

// closeAndRead has a slot closed, reopened and closed again, and reads it after
// each: three times what the schedule, refreshed once a second, hardly shows yet.
func closeAndRead(ctx context.Context, env harness.Env, id int64) {
	by := staff(0)
	for i, request := range []func(int, string, int64, string) harness.Request{closeSlot, reopenSlot, closeSlot} {
		env.Do(ctx, request(staffProcess, by, id, keyOf("change", i)))
		env.Do(ctx, readSlot(2000, member(2000), id))
	}
}

// shownIn gives the state of each slot in an answered schedule.
func shownIn(op harness.Operation) map[int64]string {
	var a struct {
		Slots []struct {
			SlotID int64  `json:"slot_id"`
			State  string `json:"state"`
		} `json:"slots"`
	}
	shown := map[int64]string{}
	if op.Status == http.StatusOK && op.Decode(&a) == nil {
		for _, s := range a.Slots {
			shown[s.SlotID] = s.State
		}
	}
	return shown
}

// A due is what the schedule must show of a slot from an instant on.
type due struct {
	state string
	from  time.Duration // five seconds after its answer
	by    harness.Operation
}

// scheduleIsFresh is T-I9 by the clients' clock: a schedule that was asked for
// more than five seconds after a change was answered shows it. It is for
// records in which each slot is booked or closed once.
func scheduleIsFresh() harness.Check {
	const doc = "the schedule is at most five seconds old"
	return funcCheck("T-I9.age", doc, "schedule.go", false, func(rec harness.Record) harness.Verdict {
		changes := map[int64]due{}
		for _, op := range rec.History.Operations {
			if op.Kind == kindBook && op.Status == http.StatusCreated {
				changes[slotOf(op)] = due{"taken", op.Answered + freshness, op}
			} else if op.Kind == kindClose && op.Status == http.StatusOK {
				changes[slotOf(op)] = due{"closed", op.Answered + freshness, op}
			}
		}
		var wrong []harness.Evidence
		judged, shown := 0, map[int64]bool{}
		for _, op := range rec.History.OfKind(kindSchedule) {
			if op.Status != http.StatusOK {
				continue
			}
			judged++
			var a struct {
				Stale bool `json:"stale"`
			}
			if op.Decode(&a) != nil || a.Stale {
				wrong = append(wrong, about(op, "calls itself stale"))
			}
			seen := shownIn(op)
			for id, d := range changes {
				shown[id] = shown[id] || seen[id] == d.state
				if op.Sent > d.from && seen[id] != d.state {
					e := about(op, fmt.Sprintf("slot %d is %q, not %s, %s after that was answered", id, seen[id], d.state, op.Sent-d.by.Answered))
					e.Ops = append(e.Ops, d.by.ID)
					wrong = append(wrong, e)
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d answers are older", doc, len(wrong))
		case judged == 0 || len(changes) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no schedule or no change was answered")
		}
		for id := range changes {
			if !shown[id] {
				return harness.Undecided(harness.ReasonVacuous, "no schedule was seen that shows slot %d as it became", id)
			}
		}
		return harness.Passed("%s: %d answers, %d changes shown", doc, judged, len(changes))
	})
}
