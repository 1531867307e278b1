package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
)

// pointSlots is how many rounds an enumeration may take: a few to number the
// moments, then one for each moment and action.
const pointSlots = 110

// pointActions are what is done at each moment. Dropping the connection finds
// the same mistakes without a restart, so it goes first.
var pointActions = []harness.Action{harness.ActionDrop, harness.ActionKill}

// enumerated is a request of which every moment is tried.
type enumerated struct {
	name    string // "booking"
	kind    string
	status  int // of its success
	trace   tracing
	history []string // of a slot on which it was made once
	before  []string // of a slot on which it has not been made
	prepare func(ctx context.Context, env harness.Env, slots []slot) (func(round int) harness.Request, error)
}

var enumeratedBooking = enumerated{
	name: "booking", kind: kindBook, status: 201, trace: bookingTrace,
	history: []string{"CREATED", "BOOKED"}, before: []string{"CREATED"},
	prepare: func(_ context.Context, _ harness.Env, slots []slot) (func(int) harness.Request, error) {
		return func(round int) harness.Request {
			return book(round, member(round), slots[round].ID, keyOf("book", round))
		}, nil
	},
}

var enumeratedCancellation = enumerated{
	name: "cancellation", kind: kindCancel, status: 200, trace: cancellationTrace,
	history: []string{"CREATED", "BOOKED", "CANCELLED"}, before: []string{"CREATED", "BOOKED"},
	prepare: func(ctx context.Context, env harness.Env, slots []slot) (func(int) harness.Request, error) {
		bookings, err := bookAll(ctx, env, slots)
		return func(round int) harness.Request {
			return cancel(round, member(round), bookings[round], keyOf("cancel", round))
		}, err
	},
}

var enumeratedClosure = enumerated{
	name: "closure", kind: kindClose, status: 200, trace: closureTrace,
	history: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED"}, before: []string{"CREATED", "BOOKED"},
	prepare: func(ctx context.Context, env harness.Env, slots []slot) (func(int) harness.Request, error) {
		_, err := bookAll(ctx, env, slots)
		return func(round int) harness.Request {
			return closeSlot(staffProcess+round, staff(round), slots[round].ID, keyOf("close", round))
		}, err
	},
}

// kindHold is a booking that only prepares what is tried.
const kindHold = "hold"

// bookAll has each slot booked by a member of its own and gives the bookings.
func bookAll(ctx context.Context, env harness.Env, slots []slot) ([]string, error) {
	requests := make([]harness.Request, len(slots))
	for i, s := range slots {
		requests[i] = as(kindHold, book(i, member(i), s.ID, keyOf("hold", i)))
	}
	bookings := make([]string, len(slots))
	for i, op := range env.DoAll(ctx, requests, 8) {
		b, err := bookingOf(op)
		if err != nil {
			return nil, err
		}
		bookings[i] = b.BookingID
	}
	return bookings, nil
}

func crashPointsOfBooking() harness.Scenario {
	return crashPoints(enumeratedBooking, harness.Scenario{
		Name:  "telescope/crash-points@booking",
		Title: "a booking is crashed at every one of its moments: first the connection is dropped, then the server is killed",
		Doc: `The wire numbers the moments of a booking: before and after each of its statements, before and after its COMMIT, and before the client reads the answer.
For each of them a booking on a slot of its own is made with a fault exactly there: the database connection is reset, or the server is killed and started again.
Then the rows are looked at, and the client retries with its key. Up to the COMMIT nothing of the booking may be there, from the COMMIT on all of it; the retry is answered 201
at every point, and no booking exists twice. At last a few keys are used once more, and tell the same, byte for byte. A mail may be sent twice where the kill came between the provider's answer and the note of it.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-M1", "T-M6", "T-M7", "T-M10", "T-M23"},
	}, nil)
}

func crashPointsWithoutEmail() harness.Scenario {
	s := crashPoints(enumeratedBooking, harness.Scenario{
		Name:  "telescope/crash-points@booking-without-email",
		Title: "a booking is crashed at every one of its moments, at a server that has no email provider",
		Doc: `As crash-points@booking, at a server without an email provider: nothing but the booking itself and the schedule's refresh goes over the Postgres wire. The
same points must be found, and be recovered. Its events stay pending.`,
		Sources: []string{"T-I4", "T-I6", "T-M6", "T-M10"},
	}, map[string]string{"EMAIL_URL": ""}) // the server's environment ends with this
	s.Settle = harness.Settle{
		Doc:      "no server session is in a transaction",
		SQL:      strings.SplitN(settle.SQL, "union all", 2)[0],
		Deadline: settle.Deadline,
	}
	s.Checks = func(harness.Params) []harness.Check { return pointChecks(enumeratedBooking) }
	return s
}

func crashPointsOfCancellation() harness.Scenario {
	return crashPoints(enumeratedCancellation, harness.Scenario{
		Name:  "telescope/crash-points@cancellation",
		Title: "a cancellation is crashed at every one of its moments",
		Doc: `As crash-points@booking, for the cancellation of a reservation: up to the COMMIT the reservation stands, from the COMMIT on it is gone and the history says so.
The retry is answered 200 at every point (never 409 already-cancelled, which is for another key), and the slot is cancelled once.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-I10", "T-M6", "T-M10", "T-M12"},
	}, nil)
}

func crashPointsOfClosure() harness.Scenario {
	return crashPoints(enumeratedClosure, harness.Scenario{
		Name:  "telescope/crash-points@closure",
		Title: "the closure of a reserved slot is crashed at every one of its moments",
		Doc: `As crash-points@booking, for staff who close a slot that is reserved: two audit rows and two events, the slot's state, the flag on the reservation and the
result are all there from the COMMIT on, and none of them before. The retry is answered 200 at every point, and the slot is closed once.`,
		Sources: []string{"T-I2", "T-I3", "T-I6", "T-I10", "T-M6", "T-M10"},
	}, nil)
}

// crashPoints fills in what the enumerations share.
func crashPoints(e enumerated, s harness.Scenario, server map[string]string) harness.Scenario {
	s.Latency = e.kind
	s.Choose = func(rng *rand.Rand, _ harness.Params) (any, error) {
		return choices{Slots: slotsOfOneMonth(rng, pointSlots)}, nil
	}
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveCrashPoints(ctx, env, e) }
	s.Checks = func(harness.Params) []harness.Check {
		return append(pointChecks(e), everyEventMailed(mailRules{}))
	}
	return faultScenario(s, server)
}

func driveCrashPoints(ctx context.Context, env harness.Env, e enumerated) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	request, err := e.prepare(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	if err := quiet(ctx, env); err != nil { // what preparing began is no moment of anything
		return err
	}
	last := 0 // round
	points, err := explore.CrashPoints(ctx, env, explore.Crash{
		Name: e.name, Request: request, Actions: pointActions, Quiet: quiet,
		Prepare: func(_ context.Context, _ harness.Env, round int) error {
			if round >= len(c.Slots) {
				return fmt.Errorf("the plan has %d slots, and a %s has more moments than that", len(c.Slots), e.name)
			}
			last = round
			return nil
		},
		Done: func(ctx context.Context, env harness.Env, round int) (bool, error) {
			t, err := traceRows(ctx, env, e.trace, c.Slots[round].ID, false)
			return t.state() == traceWhole, err
		},
	})
	planned := 1
	if len(points) > 0 {
		planned = points[0].Of
	}
	env.Witness("crash_points", float64(planned), float64(len(points)), "moments of a "+e.name+" at which a fault struck, each with each action")
	if err != nil {
		return err
	}
	for i := range lateCopies { // of rounds from the first to the last: each was answered by now
		env.Do(ctx, as(kindOnceMore, request(i*last/(lateCopies-1))))
	}
	return nil
}

// quiet waits until the server has nothing to do on its own account, and has
// looked at least once whether it has.
func quiet(ctx context.Context, env harness.Env) error {
	email := env.Plan().Scenario != "telescope/crash-points@booking-without-email"
	pending := "select 1 from outbox where delivered_at is null and parked_at is null"
	if !email {
		pending = "select 1 where false"
	}
	refreshed, turns := "", 0
	return env.Await(ctx, "nothing is left for the workers", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select exists ("+pending+") as pending, (select refreshed_at from schedule_refreshes) as refreshed")
		if err != nil {
			return false, "", err
		}
		if at := fmt.Sprint(rows[0]["refreshed"]); at != refreshed {
			refreshed = at
			turns++
		}
		return rows[0]["pending"] == false && turns > 2, fmt.Sprint(rows[0]), nil // seen at once, refreshed since, and once more
	})
}

// pointChecks are those of an enumeration.
func pointChecks(e enumerated) []harness.Check {
	return append(retried(),
		explore.Recoverable("T-I4.points", e.name, where+"/crash_points.go", e.status),
		effectAtCommit(e.name, e.status),
		wholeOrNothing("T-I6.points"),
		onceEach(e),
		onlyTold("answers", "nobody is told anything but success, a 503 or nothing",
			fmt.Sprint(e.status), "201", "503 busy", "503 outcome-unknown", "none"))
}

// effectAtCommit is what a transaction is for: the request takes effect at one
// moment, which is its COMMIT. In the order of the moments there is nothing of
// it up to one, and all of it from the next one on, which is "after COMMIT".
// Where the first answer was the success, the server has recovered by itself,
// on another connection: when the request took effect, nobody saw there.
func effectAtCommit(crash string, success int) harness.Check {
	doc := "a " + crash + " takes effect at its COMMIT: not at any moment before, and at every moment after"
	return funcCheck("T-I6.commit", doc, "crash_points.go", false, func(rec harness.Record) harness.Verdict {
		points := explore.PointsOf(rec, crash)
		if len(points) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		var wrong []harness.Evidence
		before, after, recovered := 0, 0, 0
		for _, action := range pointActions {
			done := false
			for _, p := range points {
				if p.Action != action {
					continue
				}
				if p.First == strconv.Itoa(success) {
					recovered++
					continue
				}
				problem := ""
				switch {
				case p.Done && !done && p.Fault.At != harness.AfterCommit:
					problem = "it has taken effect, and no COMMIT was before that"
				case !p.Done && done:
					problem = "it has not taken effect, although the COMMIT was before that"
				}
				if problem != "" {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("point %d of %d, %s at %q: %s", p.Number, p.Of, p.Action, p.Label, problem)})
				}
				done = done || p.Done
				if p.Done {
					after++
				} else {
					before++
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d points differ", doc, len(wrong), len(points))
		case before == 0 || after == 0:
			return harness.Undecided(harness.ReasonVacuous, "%d points before the effect and %d after it, %d at which the server recovered by itself; both sides are needed", before, after, recovered)
		}
		return harness.Passed("%s: nothing at %d points, all at %d, recovered by the server itself at %d", doc, before, after, recovered)
	})
}

// onceEach: by its history, each slot that was tried saw the request once, and
// the others not at all.
func onceEach(e enumerated) harness.Check {
	doc := "each " + e.name + " was made once, however often it was asked for"
	return funcCheck("T-I3.points", doc, "crash_points.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		tried := map[int64]bool{}
		for _, t := range tracesOf(rec) {
			tried[t.Slot] = true
		}
		if len(tried) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no slot was tried")
		}
		var wrong []harness.Evidence
		for _, s := range planned(rec).Slots {
			want, got := e.before, []string{}
			if tried[s.ID] {
				want = e.history
			}
			if stand := stands[s.ID]; stand != nil {
				got = stand.History
			}
			if !slices.Equal(got, want) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("slot %d: got %v, want %v", s.ID, got, want), Ops: opsOnSlot(rec, s.ID)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(few(wrong), "%s: %d of %d slots differ", doc, len(wrong), len(tried))
		}
		return harness.Passed("%s: %d slots", doc, len(tried))
	})
}
