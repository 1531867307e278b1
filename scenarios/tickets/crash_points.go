package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// pointSeats is how many rounds an enumeration may take: a few to number the
// moments, then one for each moment and action.
const pointSeats = 240

// paramFaults is what is done at each moment.
var paramFaults = harness.Param{
	Name: "faults", Kind: harness.ChoiceParam, Default: "both", Values: []string{"both", "drop", "kill"},
	Doc: "what is done at each moment: the connection is dropped, the server is killed, or first the one and then the other",
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

// What the rows say of an order at a crash point, in a word.
const (
	pointNothing  = "nothing"
	pointHeld     = "held"
	pointInFlight = "in flight"
	pointSold     = "sold"
	pointGoesBack = "goes back"
	pointWentBack = "went back"
)

// enumerated is a request, with what it brings about, of which every moment is
// tried.
type enumerated struct {
	name   string // "charge"
	kind   string
	states []string          // that its rows go through, in order
	retry  map[string]string // by state: what the same request again is told
	card   payments.Behaviour

	prepare   func(ctx context.Context, p *pointDrive, round int) error // optional
	request   func(p *pointDrive, round int) harness.Request
	until     func(ctx context.Context, p *pointDrive, round int) error // optional: what belongs to it beyond its answer
	upstreams []string
}

// A pointDrive is an enumeration at work.
type pointDrive struct {
	enumerated

	env      harness.Env
	show     show
	post     *courier
	holds    map[int]string // by round
	requests map[int]harness.Request
	last     int   // round
	stuck    int64 // attempts at the last round's refund when the fault struck, if nobody works on it any more
}

var (
	enumeratedHold = enumerated{
		name: "hold", kind: kindClaim, states: []string{pointNothing, pointHeld},
		retry: map[string]string{pointNothing: "201", pointHeld: "409 checkout-active"},
		request: func(p *pointDrive, round int) harness.Request {
			return claim(round, member(round), p.show.ID, p.show.Seats[round])
		},
	}

	enumeratedCharge = enumerated{
		name: "charge", kind: kindCharge, states: []string{pointHeld, pointInFlight, pointSold},
		retry: map[string]string{pointHeld: "201", pointInFlight: "409 charge-in-flight", pointSold: "409 hold-over"},
		prepare: func(ctx context.Context, p *pointDrive, round int) error {
			h, err := claimed(ctx, p.env, claim(round, member(round), p.show.ID, p.show.Seats[round]))
			p.holds[round] = h.HoldID
			return err
		},
		request: func(p *pointDrive, round int) harness.Request {
			return charge(round, member(round), p.holds[round], roundCard(round))
		},
		upstreams: []string{payments.Name},
	}

	enumeratedCallback = enumerated{
		name: "callback", kind: kindCallback, states: []string{pointInFlight, pointSold},
		retry: map[string]string{pointInFlight: "200", pointSold: "200"}, card: pendingCard(),
		prepare: func(ctx context.Context, p *pointDrive, round int) error {
			h, err := chargedInFlight(ctx, p.env, round, p.show.ID, p.show.Seats[round])
			if err != nil {
				return err
			}
			return p.captureCallback(ctx, round, h)
		},
		request: (*pointDrive).prepared,
	}

	enumeratedRefund = enumerated{
		name: "refund", kind: kindCallback, states: []string{pointInFlight, pointGoesBack, pointWentBack},
		retry: map[string]string{pointInFlight: "200", pointGoesBack: "200", pointWentBack: "200"}, card: pendingCard(),
		prepare: func(ctx context.Context, p *pointDrive, round int) error {
			h, err := givenUpInFlight(ctx, p.env, round, p.show.ID, p.show.Seats[round])
			if err != nil {
				return err
			}
			return p.captureCallback(ctx, round, h)
		},
		request: (*pointDrive).prepared,
		until: func(ctx context.Context, p *pointDrive, round int) error {
			return awaitRefund(ctx, p.env, p.holds[round])
		},
		upstreams: []string{payments.Name},
	}
)

// captureCallback makes the delivery of the callback that tells of the round's
// capture.
func (p *pointDrive) captureCallback(ctx context.Context, round int, h holdAnswer) error {
	p.holds[round] = h.HoldID
	cb, err := callbackOf(ctx, p.env, roundCard(round), payments.PaymentCaptured)
	if err != nil {
		return err
	}
	now, err := serverNow(ctx, p.env)
	p.requests[round] = callback(courierProcess, cb.Body, payments.Sign(secret, now, cb.Body))
	return err
}

// prepared is the request that the round was prepared for.
func (p *pointDrive) prepared(round int) harness.Request { return p.requests[round] }

func crashPointsOfHold() harness.Scenario {
	return crashPoints(enumeratedHold, harness.Scenario{
		Name:  "tickets/crash-points@hold",
		Title: "the claim of a seat is crashed at every one of its moments: first the connection is dropped, then the server is killed",
		Doc: `The wire numbers the moments of a claim: before and after each of its statements, before and after its COMMIT, and before the client reads the answer. For each
of them a member claims a seat of its own with a fault exactly there: the database connection is reset, or the server is killed and started again. Then the rows are looked at: up
to the COMMIT there is no hold and the seat is free, from the COMMIT on both are there. The member asks again, and gets the seat in the first case, and is told of the
hold that is there in the second.`,
		Sources: []string{"S-I1", "S-I7", "S-I10", "S-I11", "S-M10"},
	}, payments.AtOnce)
}

func crashPointsOfCharge() harness.Scenario {
	return crashPoints(enumeratedCharge, harness.Scenario{
		Name:  "tickets/crash-points@charge",
		Title: "a charge is crashed at every one of its moments, the provider's included; callbacks finish it",
		Doc: `As crash-points@hold, for a charge: its first transaction, the call of the provider (received, accepted), and the transaction of the outcome. Up to the first
COMMIT there is no charge, then it is in flight, from the second COMMIT on the seat is sold. Who asks again is charged in the first case, told charge-in-flight in the
second and hold-over in the third: never charged twice. After each point the callback that is due is delivered; where the provider knows of no payment, the clock is moved
past reconciliation, which asks, and past the hard timeout, which gives the charge up. No captured money is without seat or refund.`,
		Sources: []string{"S-I2", "S-I3", "S-I5", "S-I8", "S-M17"},
	}, payments.AtOnce)
}

func crashPointsOfLostCharge() harness.Scenario {
	return crashPoints(enumeratedCharge, harness.Scenario{
		Name:  "tickets/crash-points@charge-lost",
		Title: "a charge is crashed at every one of its moments, and no callback comes; reconciliation finishes it",
		Doc: `As crash-points@charge, but the provider's callbacks are lost: after each point at which a charge is in flight the clock is moved past reconciliation. What
the provider has captured is sold by that. Only kills, unless it is told otherwise: what a dropped connection leaves, crash-points@charge has.`,
		Params:  []harness.Param{with(paramFaults, "kill")},
		Sources: []string{"S-I2", "S-I5", "S-I8", "S-M12", "S-M17"},
	}, payments.Lost)
}

func crashPointsOfCallback() harness.Scenario {
	return crashPoints(enumeratedCallback, harness.Scenario{
		Name:  "tickets/crash-points@callback",
		Title: "a callback that tells of a captured payment is crashed at every one of its moments",
		Doc: `As crash-points@hold, for a callback: up to its COMMIT the charge is in flight, from it on the seat is sold and the event known. The provider delivers it again
after each point, is answered 200, and it is applied once.`,
		Sources: []string{"S-I2", "S-I5", "S-I8", "S-M3"},
	}, payments.AtOnce)
}

func crashPointsOfRefund() harness.Scenario {
	return crashPoints(enumeratedRefund, harness.Scenario{
		Name:  "tickets/crash-points@refund",
		Title: "a late capture and the refund that it brings are crashed at every moment, from the callback to the row that says done",
		Doc: `As crash-points@callback, for the capture of an order that was given up. Its moments go on beyond the answer, through the refund that a worker of the server does
by itself: the call of the provider (received, accepted) and the transaction that stores it as done. Up to the callback's COMMIT the charge is in flight, then its refund is due, from
the last COMMIT on it is done. A worker's look for work is no moment, as it looks all the time: dying between it and the call is dying when the call is received. After each point the
callback comes again, and the clock is moved past the dead worker's turn. The provider pays back once, whatever it was asked.`,
		Sources: []string{"S-I2", "S-I5", "S-I8", "S-M5", "S-M8"},
	}, payments.AtOnce)
}

// crashPoints fills in what the enumerations share. callbacks is what becomes
// of the provider's.
func crashPoints(e enumerated, s harness.Scenario, callbacks string) harness.Scenario {
	e.card.Callbacks = callbacks
	s.Latency = e.kind
	if s.Params == nil {
		s.Params = []harness.Param{paramFaults}
	}
	s.Choose = func(rng *rand.Rand, p harness.Params) (any, error) {
		return choices{Show: chooseShow(rng, p, pointSeats)}, nil
	}
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveCrashPoints(ctx, env, e) }
	s.Checks = func(p harness.Params) []harness.Check {
		return append(standing(p, allowance{repeatedRefunds: 1}),
			recoveredAt(e), statesChangeAtCommit(e, pointActions(p)), oneChargeAnOrder(),
			answers.Among(answers.AmongRule{
				ID: "answers", Doc: "who is answered at all is told of success, of a charge that is not decided, or to come again",
				Rule: where + "/crash_points.go", Group: answers.ByKind,
				Allowed: map[string][]string{e.kind: {"200", "201", "202", "503 busy", "503 outcome-unknown"}},
			}))
	}
	return crashScenario(s)
}

// relayed are the statements with which events are relayed into notices.
var relayed = regexp.MustCompile(`(?i)\bnotices\b|\bfrom outbox\b|\bupdate outbox\b`)

func driveCrashPoints(ctx context.Context, env harness.Env, e enumerated) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	if err := configure(ctx, env, payments.Config{Default: &e.card}); err != nil {
		return err
	}
	p := &pointDrive{enumerated: e, env: env, show: c.Show, post: newCourier(env), holds: map[int]string{}, requests: map[int]harness.Request{}}
	crash := explore.Crash{
		Name: e.name, Actions: pointActions(env.Params()), Upstreams: e.upstreams, Quiet: quiet, Others: relayed,
		Prepare: func(ctx context.Context, _ harness.Env, round int) error { return p.begin(ctx, round) },
		Request: func(round int) harness.Request { return e.request(p, round) },
		State:   func(ctx context.Context, _ harness.Env, round int) (string, error) { return p.state(ctx, round) },
		Done: func(ctx context.Context, _ harness.Env, round int) (bool, error) {
			state, err := p.state(ctx, round)
			return state == e.states[len(e.states)-1], err
		},
		After: func(ctx context.Context, _ harness.Env, round int) error { return p.over(ctx, round) },
	}
	if e.until != nil {
		crash.Struck = func(ctx context.Context, _ harness.Env, round int, at explore.Point) error {
			return p.struck(ctx, round, at)
		}
		crash.Until = func(ctx context.Context, _ harness.Env, round int) error { return e.until(ctx, p, round) }
	}
	points, err := explore.CrashPoints(ctx, env, crash)
	planned := 1
	if len(points) > 0 {
		planned = points[0].Of
	}
	env.Witness("crash_points", float64(planned), float64(len(points)), "moments of a "+e.name+" at which a fault struck, each with each action")
	if err != nil {
		return err
	}
	return finish(ctx, env, p.post)
}

// begin prepares a round.
func (p *pointDrive) begin(ctx context.Context, round int) error {
	if round >= len(p.show.Seats) {
		return fmt.Errorf("the plan has %d seats, and a %s has more moments than that", len(p.show.Seats), p.name)
	}
	p.last = round
	if p.prepare == nil {
		return nil
	}
	return p.prepare(ctx, p, round)
}

// state says how far the round's order has come, by its rows.
func (p *pointDrive) state(ctx context.Context, round int) (string, error) {
	id := p.holds[round]
	if id == "" { // nobody was told of the hold
		rows, err := p.env.Database().Query(ctx, `select hold_id::text as hold_id from holds where login = $1`, member(round))
		if err != nil || len(rows) == 0 {
			return pointNothing, err
		}
		id = text(rows[0], "hold_id")
	}
	o, err := rowsOf(ctx, p.env, id)
	return o.word(), err
}

// word is the standing in a word; one that no order should be in is told whole.
func (o orderRows) word() string {
	switch o {
	case orderRows{hold: "RESERVED", seat: "HELD"}:
		return pointHeld
	case orderRows{hold: "RESERVED", seat: "HELD", charge: "CHARGING", charges: 1}, orderRows{hold: "RELEASED", seat: "QUARANTINED", charge: "CHARGING", charges: 1}:
		return pointInFlight
	case orderRows{hold: "RELEASED", charge: "REFUNDING", refund: "PENDING", charges: 1, refunds: 1, by: o.by}:
		return pointGoesBack
	case orderRows{hold: "RELEASED", charge: "REFUNDED", refund: "DONE", charges: 1, refunds: 1, by: o.by}:
		return pointWentBack
	case orderRows{hold: "CONFIRMED", seat: "SOLD", charge: "CAPTURED", charges: 1, by: o.by}:
		return pointSold
	}
	return o.brief()
}

// pollers is how many statements a server has with which it looks for work:
// what has run out, what is overdue, questions, refunds, events.
const pollers = 5

// quiet waits until the server has nothing to do on its own account, and has
// looked a few times whether it has: these looks are how its own statements
// become known.
func quiet(ctx context.Context, env harness.Env) error {
	from := len(env.Postgres().Units())
	return env.Await(ctx, "nothing is left for the workers", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select 1 from outbox where delivered_at is null and parked_at is null limit 1`)
		if err != nil || len(rows) > 0 {
			return false, "events wait", err
		}
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
