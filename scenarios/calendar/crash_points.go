package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// pointDays is how many rounds an enumeration may take, each with a day of its
// own: a few to number the moments, then one for each moment and action.
const pointDays = 400

// paramFaults is what is done at each moment.
var paramFaults = harness.Param{
	Name: "faults", Kind: harness.ChoiceParam, Default: "both", Values: []string{"both", "drop", "kill"},
	Doc: "what is done at each moment: the connection is dropped, the server is killed, or first the one and then the other",
}

// At which moments servers are killed.
const (
	killsApart = "apart"
	killsEach  = "each"
)

// paramKills is at which moments servers are killed.
var paramKills = harness.Param{
	Name: "kills", Kind: harness.ChoiceParam, Default: killsApart, Values: []string{killsApart, killsEach},
	Doc: "kill at each moment, or at those that the wires tell apart: of moments in one transaction with nothing else between them the last, as what it did is undone at each of them",
}

// pointActions are what the parameters ask for.
func pointActions(p harness.Params) []harness.Action {
	switch p.Text(paramFaults.Name) {
	case "drop":
		return []harness.Action{harness.ActionDrop}
	case "kill":
		return []harness.Action{harness.ActionKill}
	}
	return []harness.Action{harness.ActionDrop, harness.ActionKill}
}

// What the rows say at a crash point, in a word.
const (
	pointNothing   = "nothing"
	pointBooked    = "booked"
	pointCreated   = "created"
	pointMoved     = "moved"
	pointTold      = "told" // of the move
	pointCancelled = "cancelled"
	pointDeleted   = "deleted"
)

// enumerated is a request, with what the synchroniser does for it, of which
// every moment is tried.
type enumerated struct {
	name   string // "create"
	kind   string
	states []string // that its rows go through, in order
	retry  string   // what the same request again is told, wherever it was crashed
	ends   string   // state of its appointments when all is settled
	first  string   // how the appointments are before it; "" for none

	request func(p *pointDrive, round int) harness.Request
}

// A pointDrive is an enumeration at work.
type pointDrive struct {
	enumerated

	env    harness.Env
	choice pointChoices
	origin time.Time
	has    map[int][]appointmentAnswer // by round: those that were booked for it
	dead   theDead
}

// pointChoices are two consultants, and a time with each, the same every day.
type pointChoices struct {
	Resources []resource `json:"resources"`
	Zone      string     `json:"zone"`
	One       span       `json:"one"`   // of day 0
	Other     span       `json:"other"` // likewise; as long as one, without an instant in common
}

func choosePoints(rng *rand.Rand, p harness.Params) (any, error) {
	from, long := 8*60+rng.IntN(2*60), 20+rng.IntN(90)
	later := from + long + rng.IntN(4*60)
	return pointChoices{Resources: chooseResources(rng, p, 2), Zone: "Etc/UTC", One: day(0, from, from+long), Other: day(0, later, later+long)}, nil
}

// at is a time of the round's day.
func (p *pointDrive) at(s span, round int) when {
	return day(round, s.From, s.To).in(p.choice.Zone, p.origin)
}

var (
	enumeratedCreate = enumerated{
		name: "create", kind: kindBook, states: []string{pointNothing, pointBooked, pointCreated}, retry: "201", ends: "CREATED",
		request: func(p *pointDrive, round int) harness.Request {
			return book(round, member(round), p.choice.Resources[0].ID, p.at(p.choice.One, round), "point")
		},
	}

	enumeratedReschedule = enumerated{
		name: "reschedule", kind: kindReschedule, states: []string{pointCreated, pointMoved, pointTold}, retry: "200", ends: "CREATED", first: pointCreated,
		request: func(p *pointDrive, round int) harness.Request {
			a := p.has[round]
			return reschedule(round, member(round), []move{{a[0].ID, p.at(p.choice.Other, round)}, {a[1].ID, p.at(p.choice.One, round)}}, "point")
		},
	}

	enumeratedCancel = enumerated{
		name: "cancel", kind: kindCancel, states: []string{pointCreated, pointCancelled, pointDeleted}, retry: "200", ends: "CANCELLED", first: pointCreated,
		request: func(p *pointDrive, round int) harness.Request {
			return cancel(round, member(round), p.has[round][0].ID, "point")
		},
	}
)

func crashPointsOfCreate() harness.Scenario {
	return crashPoints(enumeratedCreate, harness.Scenario{
		Name:  "calendar/crash-points@create",
		Title: "a booking, and the creation at the provider that follows, is crashed at every one of its moments that a kill tells apart",
		Doc: `The wires number the moments of a booking and of what the synchroniser does for it: before and after each statement, before and after each COMMIT, before the client
reads the answer, and each call of the provider (received, accepted). For each of them a member books a time of their own with a fault exactly there: the server is killed
and started again (with faults=both the connection is reset as well, in a round of its own). Of kills that undo one and the same transaction, with nothing on the wires between them, one is tried; with kills=each all are. Up to the booking's COMMIT there is nothing, then it is booked, from the last COMMIT on it is created. The member asks again with
the same key and gets their appointment, one and the same. Then the clock is moved over what the dead had claimed: each appointment has one event, made once.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M3"},
	})
}

func crashPointsOfReschedule() harness.Scenario {
	return crashPoints(enumeratedReschedule, harness.Scenario{
		Name:  "calendar/crash-points@reschedule",
		Title: "two appointments with two consultants swap their times, and that is crashed at every one of its moments that a kill tells apart",
		Doc: `As crash-points@create, for a reschedule that moves two appointments in one transaction, and for the two updates at the provider. Up to its COMMIT both are where they were, from it on
both are at their new times: never one of them. In the end both events stand at the new times. Only kills, unless it is told otherwise (faults=both).`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M14"},
	})
}

func crashPointsOfCancel() harness.Scenario {
	return crashPoints(enumeratedCancel, harness.Scenario{
		Name:  "calendar/crash-points@cancel",
		Title: "a cancellation, and the deletion at the provider that follows, is crashed at every one of its moments that a kill tells apart",
		Doc: `As crash-points@create, for the cancellation of an appointment that the provider has: up to its COMMIT nothing has changed, then it is cancelled, from the last COMMIT on
its event is known to be deleted. In the end no event stands. Only kills, unless it is told otherwise (faults=both).`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M13"},
	})
}

// crashPoints fills in what the enumerations share.
func crashPoints(e enumerated, s harness.Scenario) harness.Scenario {
	s.Latency = e.kind
	s.Params = []harness.Param{with(paramFaults, "kill"), paramKills, paramContract} // the suite has two minutes
	s.Choose = choosePoints
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveCrashPoints(ctx, env, e) }
	s.Checks = func(p harness.Params) []harness.Check {
		return append(always(p),
			recoveredAt(e), statesChangeAtCommit(e, pointActions(p)), endedAt(e),
			among("answers", "who is answered at all is told of success, or to come again", "crash_points.go", map[string][]string{e.kind: {"200", "201", "503 busy", "503 outcome-unknown"}}))
	}
	return crashScenario(s)
}

func driveCrashPoints(ctx context.Context, env harness.Env, e enumerated) error {
	p := &pointDrive{enumerated: e, env: env, has: map[int][]appointmentAnswer{}}
	var err error
	if p.origin, err = begin(ctx, env, &p.choice); err != nil {
		return err
	}
	if err := setUp(ctx, env, p.choice.Resources...); err != nil {
		return err
	}
	last := e.states[len(e.states)-1]
	points, err := explore.CrashPoints(ctx, env, explore.Crash{
		Name: e.name, Actions: pointActions(env.Params()), Upstreams: []string{provider.Name}, Quiet: quiet,
		OneKill: env.Params().Text(paramKills.Name) == killsApart,
		Prepare: func(ctx context.Context, _ harness.Env, round int) error { return p.begin(ctx, round) },
		Request: func(round int) harness.Request { return e.request(p, round) },
		State:   func(ctx context.Context, _ harness.Env, round int) (string, error) { return p.state(ctx, round) },
		Done: func(ctx context.Context, _ harness.Env, round int) (bool, error) {
			state, err := p.state(ctx, round)
			return state == last, err
		},
		Until:  func(ctx context.Context, _ harness.Env, round int) error { return p.await(ctx, round, last) },
		Struck: func(ctx context.Context, env harness.Env, _ int, _ explore.Point) error { return p.dead.see(ctx, env) },
		After:  func(ctx context.Context, env harness.Env, _ int) error { return p.dead.awaitOver(ctx, env) },
	})
	planned := 1
	if len(points) > 0 {
		planned = points[0].Of
	}
	env.Witness("crash_points", float64(planned), float64(len(points)), "moments of a "+e.name+" at which a fault struck, each with each action")
	if err != nil {
		return err
	}
	return finishByClock(ctx, env)
}

// ahead is how many rounds are prepared at once.
const ahead = 20

// begin prepares a round, and with it the next ones: their appointments are
// booked and synchronised before its request is made.
func (p *pointDrive) begin(ctx context.Context, round int) error {
	if round >= pointDays {
		return fmt.Errorf("the plan has %d days, and a %s has more moments than that", pointDays, p.name)
	}
	if p.first == "" || len(p.has[round]) > 0 {
		return nil
	}
	spans := []span{p.choice.One, p.choice.Other}
	if p.kind == kindCancel {
		spans = spans[:1] // one is enough
	}
	var requests []harness.Request
	for r := round; r < min(round+ahead, pointDays); r++ {
		for n, s := range spans {
			requests = append(requests, answers.As("first", book(r, member(r), p.choice.Resources[n].ID, p.at(s, r), fmt.Sprintf("first-%d", n))))
		}
	}
	for i, op := range p.env.DoAll(ctx, requests, 1) {
		if op.Status != http.StatusCreated {
			return refused(op, "201")
		}
		a, err := appointmentOf(op)
		if err != nil {
			return err
		}
		p.has[round+i/len(spans)] = append(p.has[round+i/len(spans)], a)
	}
	return awaitSynced(ctx, p.env)
}

// await waits until the rows say that the round has come so far.
func (p *pointDrive) await(ctx context.Context, round int, want string) error {
	return p.env.Await(ctx, fmt.Sprintf("the %s of round %d is %s", p.name, round, want), patience, func(ctx context.Context) (bool, string, error) {
		state, err := p.state(ctx, round)
		return state == want, "it is " + state, err
	})
}

// state says how far the round has come, by the rows of its member.
func (p *pointDrive) state(ctx context.Context, round int) (string, error) {
	rows, err := p.env.Database().Query(ctx, `select a.state,
  (select count(*) from outbox o where o.appointment_id = a.appointment_id and o.done_at is null) as pending,
  (select count(*) from appointment_audit h where h.appointment_id = a.appointment_id and h.event = 'MOVED') as moves
from appointments a where a.member = $1 order by a.created_at, a.appointment_id`, member(round))
	if err != nil {
		return "", fmt.Errorf("look at the rows of round %d: %w", round, err)
	}
	return p.word(rows), nil
}

// word is what the rows say; what no request of this kind should leave is told whole.
func (p *pointDrive) word(rows []harness.Row) string {
	var list []string
	pending, moves := int64(0), map[int64]bool{}
	for _, r := range rows {
		list = append(list, text(r, "state"))
		pending += whole(r, "pending")
		moves[whole(r, "moves")] = true
	}
	all := func(n int, state string) bool {
		return len(list) == n && len(moves) == 1 && !slices.ContainsFunc(list, func(s string) bool { return s != state })
	}
	n := map[string]int{kindReschedule: 2}[p.kind]
	n = max(n, 1)
	switch {
	case len(rows) == 0:
		return pointNothing
	case all(n, "BOOKED") && moves[0]:
		return pointBooked
	case all(n, "CREATED") && moves[0] && pending == 0:
		return pointCreated
	case all(n, "CREATED") && moves[1] && pending > 0:
		return pointMoved
	case all(n, "CREATED") && moves[1]:
		return pointTold
	case all(n, "CANCELLED") && pending > 0:
		return pointCancelled
	case all(n, "CANCELLED"):
		return pointDeleted
	}
	return fmt.Sprintf("%v, %d events to be told, moved %v", list, pending, moves)
}

// pollers is how many statements a server has with which it looks for work:
// appointments to synchronise, and calendars to look at.
const pollers = 2

// quiet waits until the server has looked a few times whether it has anything to
// do: these looks are how its own statements become known.
func quiet(ctx context.Context, env harness.Env) error {
	from := len(env.Postgres().Units())
	return env.Await(ctx, "the server looks for work", patience, func(context.Context) (bool, string, error) {
		looks, often := map[string]int{}, 0
		for _, u := range env.Postgres().Units()[from:] {
			for _, s := range u.Statements {
				if looks[s.SQL]++; looks[s.SQL] == 3 {
					often++
				}
			}
		}
		return often >= pollers, fmt.Sprintf("%d statements came three times", often), nil
	})
}
