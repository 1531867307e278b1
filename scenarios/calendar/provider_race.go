package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// A raceRound is one interleaving, with the times of its own day.
type raceRound struct {
	Interleaving interleaving `json:"interleaving"`
	Wanted       wish         `json:"wanted"`
	External     span         `json:"external"`
	Decision     string       `json:"decision"` // of staff, if it comes to that
}

type raceChoices struct {
	Resource resource    `json:"resource"`
	Rounds   []raceRound `json:"rounds"`
}

// providerRaces gives the analysis of the race with the provider, one scenario
// for each contract and policy.
func providerRaces() (list []harness.Scenario) {
	for _, contract := range []string{contractAtomic, contractCheck} {
		for _, policy := range []string{policyReject, policyKeep} {
			list = append(list, providerRace(contract, policy))
		}
	}
	return list
}

// raceName is the scenario that shows the rows of a contract and a policy.
func raceName(contract, policy string) string {
	return "calendar/provider-race@" + contract + "-" + policy
}

func providerRace(contract, policy string) harness.Scenario {
	return scenario(harness.Scenario{
		Name:  raceName(contract, policy),
		Title: fmt.Sprintf("somebody else's event, and a cancellation, at every place among our own steps: %s, %s", contract, policy),
		Doc: `Our steps are the booking, the claim, the final check, the create, the look, the store and reconciliation. For each place between two of them an external event appears there, or the
member cancels there, or both, in either order, or in two places: every interleaving once, each with an appointment on a day of its own. The places are made by holding our step on the
wire to the provider, or the statement that claims; nothing is left to timing. Then the clock is moved to reconciliation, and staff decide about what is open. What came of each interleaving is
read from the rows and the provider's ledger: excluded by us, excluded by the provider, or a conflict on record, found by whom and resolved how. It must be what the table of
docs/provider-race.md says, and none may end in silence.`,
		Sources: []string{"C-I2", "C-I3", "C-I4", "C-I5", "C-M4", "C-M5", "C-M13"},
		Tags:    []string{"fault"},
		Choose: func(rng *rand.Rand, _ harness.Params) (any, error) {
			c := raceChoices{Resource: chooseResources(rng, nil, 1)[0]}
			c.Resource.Contract, c.Resource.Policy = contract, policy
			all := interleavings(contract, policy)
			for n, i := range rng.Perm(len(all)) {
				from := 8*60 + rng.IntN(8*60)
				r := raceRound{Interleaving: all[i], Wanted: wish{day(n, from, from+20+rng.IntN(90)), chooseZone(rng)}, Decision: decisionKeep}
				r.External = chooseOver(rng, r.Wanted.Span)
				if rng.IntN(2) == 0 {
					r.Decision = decisionCancel
				}
				c.Rounds = append(c.Rounds, r)
			}
			return c, nil
		},
		Drive: driveProviderRace,
		Checks: func(p harness.Params) []harness.Check {
			may := map[string][]string{kindBook: {"201"}, kindCancel: {told200, told409}}
			if policy == policyKeep {
				may[kindCancel], may[kindResolve] = []string{told200}, []string{"200"}
			}
			return append(served(p), racedAsPromised(contract, policy), nothingSilent(),
				among("answers", "bookings are taken; cancellations are, too, or come too late where the policy rejects; staff's decisions are taken", "provider_race.go", may))
		},
	}, clocked(map[string]string{"CALENDAR_TIMEOUT": "20s"})) // calls are held while others act, however busy the machine is
}

func driveProviderRace(ctx context.Context, env harness.Env) error {
	var c raceChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	walks := make([]*raceWalk, len(c.Rounds))
	for n, r := range c.Rounds {
		walks[n] = &raceWalk{raceRound: r, env: env, resource: c.Resource, n: n, origin: o, came: map[racePlace]bool{}, reached: true}
		if err := walks[n].walk(ctx); err != nil {
			return fmt.Errorf("interleaving %d of %d (%s): %w", n+1, len(c.Rounds), r.Interleaving, err)
		}
	}
	if err := lookedAgain(ctx, env); err != nil {
		return err
	}
	reached := 0
	for _, w := range walks {
		if err := w.do(ctx, raceReconciled); err != nil {
			return err
		}
		if w.reached {
			reached++
		}
		w.note()
	}
	env.Witness("interleavings", float64(len(walks)), float64(reached), "interleavings in which everything came at its place")
	if err := decide(ctx, env, walks); err != nil {
		return err
	}
	if err := finishByClock(ctx, env); err != nil {
		return err
	}
	return measureRaces(ctx, env, walks)
}

// A raceWalk goes through our steps, and has come at each place what belongs there.
type raceWalk struct {
	raceRound

	env         harness.Env
	resource    resource
	n           int
	origin      time.Time
	appointment appointmentAnswer
	cancelled   harness.Operation // the cancellation; without an id when there was none
	came        map[racePlace]bool
	reached     bool // every place that something was to come at
}

// walk goes from the booking to the store.
func (w *raceWalk) walk(ctx context.Context) error {
	held, err := holdClaims(ctx, w.env)
	if err != nil {
		return err
	}
	defer held.Heal()
	at := w.hold(harness.MomentReceived, "GET /freebusy", 1) // what a mistake leaves in place ends with the drive
	if err := w.do(ctx, raceBooking); err != nil {
		return err
	}
	if w.appointment, err = booked(ctx, w.env, book(w.n, member(w.n), w.resource.ID, w.Wanted.Span.in(w.Wanted.Zone, w.origin), "race")); err != nil {
		return err
	}
	if err := w.do(ctx, raceClaim); err != nil {
		return err
	}
	held.Heal()
	for _, place := range raceMidway {
		there, err := w.arrives(ctx, at)
		if err != nil {
			return err
		}
		if !there { // the synchroniser is through, and does not come here
			break
		}
		next, err := w.next(ctx, place)
		if err != nil {
			return err
		}
		if err := w.do(ctx, place); err != nil {
			return err
		}
		at.Heal()
		at = next
	}
	if at != nil {
		at.Heal()
	}
	return w.stored(ctx)
}

// stored waits until everything is stored, and does what comes then; what has
// found no place of its own comes then, too.
func (w *raceWalk) stored(ctx context.Context) error {
	if err := awaitSynced(ctx, w.env); err != nil {
		return err
	}
	for _, place := range append([]racePlace{raceStored}, raceMidway...) {
		if place != raceStored && len(w.acts(place)) > 0 {
			w.reached = false
		}
		if err := w.do(ctx, place); err != nil {
			return err
		}
	}
	return awaitSynced(ctx, w.env)
}

func (w *raceWalk) hold(at harness.Moment, match string, nth int) harness.Injected {
	return w.env.Inject(harness.Fault{Action: harness.ActionHold, At: at, Match: match, Nth: nth})
}

// next holds the step behind a place's, while the place's own is held. The check
// is decided when it was answered, the create and the look likewise: the answer is
// what is held. A look is the first list of events behind a create that was taken;
// one that was refused is followed by a list of whose the time is, and by the
// look, if at all, behind the next create.
func (w *raceWalk) next(ctx context.Context, place racePlace) (harness.Injected, error) {
	switch place {
	case raceCheck:
		return w.hold(harness.MomentAccepted, "GET /freebusy", 1), nil
	case raceCreate:
		return w.hold(harness.MomentAccepted, "POST /events", 1), nil
	case raceLook:
		l, err := ledger(ctx, w.env)
		nth := 2
		for _, c := range l.Calls {
			if c.Call == provider.Create && c.EventID == w.appointment.EventID && c.Outcome == "created" {
				nth = 1
			}
		}
		return w.hold(harness.MomentAccepted, "GET /events", nth), err
	default:
		return nil, nil //nolint:nilnil // the store is the last step that is gone to in this way
	}
}

// arrives waits until the held step is there; false when the synchroniser was
// through before.
func (w *raceWalk) arrives(ctx context.Context, at harness.Injected) (there bool, err error) {
	err = w.env.Await(ctx, "the next step of appointment "+w.appointment.ID, patience, func(ctx context.Context) (bool, string, error) {
		if len(at.Strikes()) > 0 {
			there = true
			return true, "", nil
		}
		rows, err := w.env.Database().Query(ctx, `select 1 from syncs s where appointment_id = $1::text::uuid and
  (claim is not null or exists (select from outbox o where o.appointment_id = s.appointment_id and o.done_at is null))`, w.appointment.ID)
		return err == nil && len(rows) == 0, "it is being synchronised", err
	})
	return there, err
}

// acts are what comes at a place and has not come yet, in order.
func (w *raceWalk) acts(place racePlace) (acts []func(context.Context) error) {
	if w.came[place] {
		return nil
	}
	if w.Interleaving.External == place {
		acts = append(acts, w.external)
	}
	if w.Interleaving.Cancel == place {
		if w.Interleaving.CancelFirst {
			return append([]func(context.Context) error{w.cancel}, acts...)
		}
		acts = append(acts, w.cancel)
	}
	return acts
}

func (w *raceWalk) do(ctx context.Context, place racePlace) error {
	for _, act := range w.acts(place) {
		if err := act(ctx); err != nil {
			return err
		}
	}
	w.came[place] = true
	return nil
}

func (w *raceWalk) externalID() string {
	if w.Interleaving.External == raceNever {
		return ""
	}
	return "theirs-" + strconv.Itoa(w.n)
}

func (w *raceWalk) external(ctx context.Context) error {
	return configure(ctx, w.env, provider.Config{External: []provider.External{{
		Calendar: w.resource.Calendar, EventID: w.externalID(), Start: w.External.start(w.origin), End: w.External.end(w.origin),
	}}})
}

func (w *raceWalk) cancel(ctx context.Context) error {
	w.cancelled = w.env.Do(ctx, cancel(w.n, member(w.n), w.appointment.ID, "give-up"))
	return ctx.Err()
}

// decide has staff decide about every conflict that is open, as the plan says.
func decide(ctx context.Context, env harness.Env, walks []*raceWalk) error {
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	open, err := conflictsOf(env.Do(ctx, answers.As("conflicts-before", conflicts(staffProcess, staff(0)))))
	if err != nil {
		return err
	}
	byAppointment := map[string]*raceWalk{}
	for _, w := range walks {
		byAppointment[w.appointment.ID] = w
	}
	for _, c := range open {
		if w := byAppointment[c.AppointmentID]; w != nil {
			env.Do(ctx, resolve(staffProcess, staff(0), c.ID, w.Decision, "decide-"+strconv.Itoa(w.n)))
		}
	}
	return ctx.Err()
}
