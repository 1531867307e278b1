package telescope

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/email"
)

// faults gives the scenarios in which something breaks, in the order in which
// they run.
func faults() []harness.Scenario {
	return []harness.Scenario{
		crashBeforeCommit(), crashAfterCommit(), crashInBurst(),
		crashPointsOfBooking(), crashPointsWithoutEmail(), crashPointsOfCancellation(), crashPointsOfClosure(),
		lostResponse(),
		emailDown(), emailRefused(), crashAfterEmail(),
		retention(),
		failover(), failoverStandbyAway(), failoverWaitsCancelled(), failoverAsync(),
	}
}

// reserving is the statement that makes a reservation: its transaction is the
// booking's.
const reserving = "insert into active_reservations"

// kindAgain is a request that is sent once more with its key, by a client that
// does not know what became of the first one.
const kindAgain = "again"

// kindOnceMore is a copy that comes when its request was answered: then there
// are two answers to compare.
const kindOnceMore = "once-more"

// onceMore gives the copies of requests that were answered.
func onceMore(requests []harness.Request) []harness.Request {
	copies := make([]harness.Request, len(requests))
	for i, r := range requests {
		copies[i] = as(kindOnceMore, r)
	}
	return copies
}

// faultTopology is one server (or as many as the parameters say) behind the
// Postgres wire, with the email provider's double. Its workers look so often
// that no scenario has to wait for them, and what a dead server had claimed is
// offered again after some seconds: the claim depends on the timeout of a mail.
func faultTopology(server map[string]string) func(harness.Params) harness.Topology {
	env := map[string]string{"TELESCOPE_PROJECTION_INTERVAL": "50ms", "TELESCOPE_EMAIL_INTERVAL": "20ms", "TELESCOPE_EMAIL_TIMEOUT": "1s"}
	maps.Copy(env, server)
	return func(p harness.Params) harness.Topology {
		t := topology(p, env)
		t.PostgresWire, t.Doubles = true, []harness.Double{email.Double()}
		return t
	}
}

// faultScenario fills in what the scenarios of this kind share.
func faultScenario(s harness.Scenario, server map[string]string) harness.Scenario {
	if s.Topology == nil {
		s.Topology = faultTopology(server)
	}
	s.Tags = append(s.Tags, "fault")
	return scenario(s, nil)
}

// restart starts every server that is down and waits until it is ready.
func restart(ctx context.Context, env harness.Env) error {
	for _, s := range env.Servers() {
		if s.URL() == "" {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// struck waits until the fault has struck and what it left undone in Postgres
// is rolled back, and takes the fault back.
func struck(ctx context.Context, env harness.Env, f harness.Injected) (harness.Strike, error) {
	strike, err := f.Await(ctx, patience)
	f.Heal()
	if err != nil {
		return strike, err
	}
	return strike, env.Postgres().AwaitGone(ctx)
}

// chooseRoundSlots decides a slot for each round. Every round has a member of
// its own, so that no quota is in the way.
func chooseRoundSlots(rng *rand.Rand, p harness.Params) (any, error) {
	return choices{Slots: slotsOfOneMonth(rng, p.Int(paramRounds.Name))}, nil
}

func crashBeforeCommit() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/crash-before-commit",
		Title: "the server is killed when a booking's COMMIT is on its way to Postgres",
		Doc: `The moment: every statement of the booking has been executed, the COMMIT has left the server and Postgres has not seen it; then SIGKILL. When
the dead server's session has left Postgres, nothing of the booking may be there: no reservation, no audit row, no event, no result. The server is started
again and the client retries with its key, twice: 201, the same, and one booking. No mail was sent before the retry, and one is after it.`,
		Sources: []string{"T-I4", "T-I6", "T-M6", "T-M10"},
		Params:  []harness.Param{with(paramRounds, "3")},
		Rounds:  rounds,
		Choose:  chooseRoundSlots,
		Drive:   func(ctx context.Context, env harness.Env) error { return driveCrash(ctx, env, harness.BeforeCommit) },
		Checks: func(p harness.Params) []harness.Check {
			return crashChecks(p.Int(paramRounds.Name), leftBehind("T-I6.crash", "before its COMMIT a booking has left nothing behind", traceNothing))
		},
	}, nil)
}

func crashAfterCommit() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/crash-after-commit",
		Title: "the server is killed when a booking is committed and before it hears of it",
		Doc: `The moment: Postgres has committed the booking and answered, the answer has not reached the server; then SIGKILL. The booking is there, whole, and
nobody has been told. The server is started again and the client retries with its key, twice: it gets the stored 201 with that booking's id; nothing is done a second
time: one booking, one audit row, one event. The mail goes out after the restart.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-M1", "T-M6", "T-M7", "T-M10", "T-M23"},
		Params:  []harness.Param{with(paramRounds, "3")},
		Rounds:  rounds,
		Choose:  chooseRoundSlots,
		Drive:   func(ctx context.Context, env harness.Env) error { return driveCrash(ctx, env, harness.AfterCommit) },
		Checks: func(p harness.Params) []harness.Check {
			return append(crashChecks(p.Int(paramRounds.Name), leftBehind("T-I6.crash", "after its COMMIT a booking is there, whole", traceWhole)), recoveredBookings())
		},
	}, nil)
}

// crashChecks are those of n rounds in each of which the server is killed in
// one booking.
func crashChecks(n int, left harness.Check) []harness.Check {
	return append(retried(), left, everyEventMailed(mailRules{}),
		onceStruck(n, words("answers", "nobody hears of the booking at first, and each retry is answered 201", byKind, fixed(tallies{
			kindBook: {"none": n}, kindAgain: {"201": n}, kindOnceMore: {"201": n},
		}))),
		happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
}

// driveCrash kills the server at a moment of a booking's transaction, looks at
// what it left behind, starts it again and has the client retry.
func driveCrash(ctx context.Context, env harness.Env, at harness.Moment) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	killed := 0
	for i, s := range c.Slots {
		request := book(i, member(i), s.ID, "book")
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: at, Match: reserving, Nth: 1})
		env.Do(ctx, request)
		if _, err := struck(ctx, env, fault); err != nil {
			return err
		}
		killed++
		if _, err := traceRows(ctx, env, bookingTrace, s.ID, true); err != nil {
			return err
		}
		if err := restart(ctx, env); err != nil {
			return err
		}
		env.Do(ctx, as(kindAgain, request))
		env.Do(ctx, as(kindOnceMore, request))
	}
	env.Witness("killed_at_moment", float64(len(c.Slots)), float64(killed), fmt.Sprintf("bookings in which the server was killed at %s", at))
	return nil
}

// A burstChoice is what the seed decides for the crash in a burst.
type burstChoice struct {
	Slots  []slot `json:"slots"`
	Order  []int  `json:"order"`  // of the clients at the barrier
	Commit int    `json:"commit"` // the one that is struck, from 1
}

func crashInBurst() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/crash-after-commit@burst",
		Title: "the server is killed after one commit of a burst, with everybody else's bookings under way",
		Doc: `Members book a slot each at one barrier. The kill strikes at one of the first commits, which the seed chooses: Postgres has committed that booking,
the server has not heard of it, and the others are anywhere. What is left of each of them must be whole or nothing; the one that was struck is whole. Everybody who
got no answer retries with the same key after the restart: all are answered 201, the ones that were committed with the booking that was made then. At last
everybody asks once more, and is told the same.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-M1", "T-M6", "T-M7", "T-M10"},
		Params:  []harness.Param{with(paramUsers, "24")},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int(paramUsers.Name)
			return burstChoice{Slots: slotsOfOneMonth(rng, n), Order: rng.Perm(n), Commit: 1 + rng.IntN(max(1, n/2))}, nil
		},
		Drive: driveCrashInBurst,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramUsers.Name)
			return append(retried(), leftBehind("T-I6.crash", "the booking that was struck after its COMMIT is there, whole", traceWhole),
				wholeOrNothing("T-I6.whole"), recoveredBookings(), everyEventMailed(mailRules{}), answeredInTheEnd(),
				onlyTold("answers", "nobody is told anything but 201, or nothing", "201", "none"),
				happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
		},
	}, nil)
}

func driveCrashInBurst(ctx context.Context, env harness.Env) error {
	var c burstChoice
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if _, err := create(ctx, env, c.Slots); err != nil {
		return err
	}
	b := harness.Burst{Name: "burst"}
	for _, n := range c.Order {
		b.Requests = append(b.Requests, book(n, member(n), c.Slots[n].ID, "book"))
	}
	fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.AfterCommit, Match: reserving, Nth: c.Commit})
	report, ops, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	strike, err := struck(ctx, env, fault)
	if err != nil {
		return err
	}
	id := struckSlot(env.Postgres().Units(), strike, c.Slots)
	var retries []harness.Request
	for i, op := range ops {
		if op.Status != 0 {
			continue
		}
		slotID := slotOf(op)
		if _, err := traceRows(ctx, env, bookingTrace, slotID, slotID == id); err != nil {
			return err
		}
		retries = append(retries, as(kindAgain, b.Requests[i]))
	}
	env.Witness("struck_after_commit", 1, count(id != 0), fmt.Sprintf("bookings in the transaction that was struck: slot %d", id))
	env.Witness("unanswered", 2, float64(len(retries)), "clients whose answer was lost with the server")
	if err := restart(ctx, env); err != nil {
		return err
	}
	env.DoAll(ctx, retries, len(retries))
	env.DoAll(ctx, onceMore(b.Requests), len(retries)) // those that were answered before the crash, too
	return nil
}

// struckSlot is the slot whose booking is the transaction that the fault
// struck: one of its parameters; 0 when there is none.
func struckSlot(units []harness.Unit, strike harness.Strike, slots []slot) int64 {
	i := slices.IndexFunc(units, func(u harness.Unit) bool { return u.Seq == strike.Unit })
	if i < 0 || units[i].Tx == 0 {
		return 0
	}
	for _, u := range units {
		if u.Tx != units[i].Tx {
			continue
		}
		for _, st := range u.Statements {
			for _, s := range slots {
				if slices.Contains(st.Params, fmt.Sprint(s.ID)) {
					return s.ID
				}
			}
		}
	}
	return 0
}
