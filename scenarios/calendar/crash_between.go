package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// A crashRound is an appointment over which the server dies, and the time that
// somebody else takes while it is dead.
type crashRound struct {
	Wanted   wish  `json:"wanted"`
	External *span `json:"external,omitempty"` // none in every second round
}

type crashChoices struct {
	Resource resource     `json:"resource"`
	Rounds   []crashRound `json:"rounds"`
}

// takenOf is how many of the rounds have an external event.
func takenOf(n int) int { return (n + 1) / 2 }

// chooseOver draws a time that overlaps another: the same, around it, inside, or
// by as little as a minute.
func chooseOver(rng *rand.Rand, s span) span {
	return []span{s, {s.From - 10, s.To + 10}, {s.From + 5, s.To - 5}, {s.To - 1, s.To + 44}, {s.From - 44, s.From + 1}}[rng.IntN(5)]
}

func chooseCrashRounds(rng *rand.Rand, p harness.Params) (any, error) {
	c := crashChoices{Resource: chooseResources(rng, p, 1)[0]}
	for n := range rounds(p) {
		from := 8*60 + rng.IntN(8*60)
		r := crashRound{Wanted: wish{day(n, from, from+20+rng.IntN(90)), chooseZone(rng)}}
		if n%2 == 0 {
			over := chooseOver(rng, r.Wanted.Span)
			r.External = &over
		}
		c.Rounds = append(c.Rounds, r)
	}
	return c, nil
}

func crashBetween() harness.Scenario {
	return betweenOrAfter(harness.Scenario{
		Name:  "calendar/crash-between-check-and-create",
		Title: "the server is killed between its check and its create, and somebody takes the time meanwhile",
		Doc: `The moment: free/busy has said that the time is free, the server has sent the create, and the provider has not got it; then SIGKILL. While nobody is there an
external event appears over the appointment, in every second round. The server is started again, the member's booking under the same key is told what it was told, and
the clock is moved over the claim of the dead. Whoever takes the appointment up looks for its event, which is not there, and checks again: what was free before the crash
is not taken on trust. Where the time is taken the appointment is rejected, or kept with the conflict on record, as the policy says; never silence.`,
		Sources: []string{"C-I2", "C-I3", "C-I4", "C-M4", "C-M5"},
	}, harness.MomentReceived)
}

func crashAfterCreate() harness.Scenario {
	s := betweenOrAfter(harness.Scenario{
		Name:  "calendar/crash-between-check-and-create@after-create",
		Title: "the server is killed when the provider has accepted its create, before it hears of it; the event is found by its id",
		Doc: `As crash-between-check-and-create, but the provider has made the event and answered; the answer has not reached the server. Whoever takes the appointment up finds its
event by its id and sends no second create. The external event that appeared meanwhile, in every second round, is found by the look that follows: a conflict, which the
policy resolves.`,
		Sources: []string{"C-I2", "C-I3", "C-I4", "C-M3", "C-M5"},
	}, harness.MomentAccepted)
	return s
}

func betweenOrAfter(s harness.Scenario, at harness.Moment) harness.Scenario {
	s.Params = []harness.Param{with(paramRounds, "6"), paramContract, paramPolicy}
	s.Rounds, s.Choose = rounds, chooseCrashRounds
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveCrashBetween(ctx, env, at) }
	s.Checks = func(p harness.Params) []harness.Check {
		n, taken := rounds(p), takenOf(rounds(p))
		ends, found := map[string]int{"CREATED": n - taken, "REJECTED": taken}, map[string]int{}
		by := "check"
		if at == harness.MomentAccepted {
			by, found = "look", map[string]int{"overlap by look: rejected": taken}
		}
		if p.Text(paramPolicy.Name) == policyKeep {
			ends, found = map[string]int{"CREATED": n}, map[string]int{"overlap by " + by + ": open": taken}
		}
		return append(served(p), leftBooked(), takenUp(at), conflictsAre("what could not be excluded is on record, by who found it and how it was resolved", found),
			words("answers", "the booking is told of its appointment, also when it is made again after the crash", answers.ByKind, answers.Fixed(answers.Tallies{
				kindBook: {"201": n}, kindAgain: {"201": n}, kindAfter: {"200": n},
			})),
			appointmentStates("each appointment is created, or gave way to an event that was there first", ends))
	}
	return crashScenario(s)
}

// kindAgain is the same request once more, after a crash; kindAfter the look at
// what became of it.
const (
	kindAgain = "again"
	kindAfter = "appointment-after"
)

func driveCrashBetween(ctx context.Context, env harness.Env, at harness.Moment) error {
	var c crashChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	killed := 0
	for n, r := range c.Rounds {
		request := book(n, member(n), c.Resource.ID, r.Wanted.Span.in(r.Wanted.Zone, o), "crash")
		a, err := killedOver(ctx, env, request, at)
		if err != nil {
			return err
		}
		killed++
		external := ""
		if r.External != nil {
			external = fmt.Sprintf("theirs-%d", n)
			e := provider.External{Calendar: c.Resource.Calendar, EventID: external, Start: r.External.start(o), End: r.External.end(o)}
			if err := configure(ctx, env, provider.Config{External: []provider.External{e}}); err != nil {
				return err
			}
		}
		if err := noteLeft(ctx, env, a, external); err != nil {
			return err
		}
		if err := restarted(ctx, env); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindAgain, request))
		if err := env.Advance(ctx, syncClaim); err != nil {
			return err
		}
		if err := awaitSynced(ctx, env); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindAfter, read(n, member(n), a.ID)))
	}
	env.Witness("killed_at_moment", float64(len(c.Rounds)), float64(killed), "times that the server was killed at "+string(at)+" of a create")
	return finishByClock(ctx, env)
}

// killedOver books, and kills the server at a moment of the create that follows.
// The synchroniser is held until the booking is answered.
func killedOver(ctx context.Context, env harness.Env, request harness.Request, at harness.Moment) (a appointmentAnswer, err error) {
	held, err := holdClaims(ctx, env)
	if err != nil {
		return a, err
	}
	defer held.Heal()
	fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: at, Match: "POST /events", Nth: 1})
	if a, err = booked(ctx, env, request); err != nil {
		fault.Heal()
		return a, err
	}
	held.Heal()
	return a, struckBy(ctx, env, fault)
}
