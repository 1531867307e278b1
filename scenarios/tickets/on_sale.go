package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// sales gives the scenarios that need minutes of their own. They are not in the
// default suite.
func sales() []harness.Scenario { return []harness.Scenario{onSaleRush()} }

// The parameters of a sale.
var (
	paramClients = harness.Param{
		Name: "clients", Kind: harness.IntParam, Default: "10000", Min: 200, Max: 200_000,
		Doc: "people who come, by a Poisson process",
	}
	paramRate = harness.Param{
		Name: "rate", Kind: harness.IntParam, Default: "250", Min: 1, Max: 20_000,
		Doc: "of them a second",
	}
	paramHold = harness.Param{
		Name: "hold", Kind: harness.DurationParam, Default: "4s",
		Doc: "life of a hold, so that seats of those who vanish come back during the sale",
	}
	paramConnections = harness.Param{
		Name: "connections", Kind: harness.IntParam, Default: "256", Min: 1, Max: 4000,
		Doc: "connections of all clients at once",
	}
	paramWire = harness.Param{
		Name: "postgres_wire", Kind: harness.ChoiceParam, Default: "off", Values: []string{"off", "on"},
		Doc: "the servers reach Postgres through the wire, which shows every statement and takes time",
	}
)

// The course of a sale.
const (
	saleLead    = 3 * time.Second // from when the load begins to the first client who comes when it is on sale
	earlyUntil  = 2 * time.Second // the early ones come before this
	earlyShare  = 100             // 1 in so many comes early
	lookShare   = 50              // 1 in so many looks at the seats first
	patientMost = 60              // clients who come back until the sale is over
	saleTail    = 4 * time.Second // and a hold's life: how long after the last arrival that is
	saleOver    = 45 * time.Second
	saleSlack   = time.Second // by which 1 in 100 may come late: people's own pauses are longer, and what they wait counts
)

// What a client does with a seat, in a letter.
const (
	wayPrompt   = 'p' // pays soon
	waySlow     = 's' // thinks for a second or two, and the provider takes its time
	wayDeclined = 'd' // is declined, and pays with another card
	wayWaits    = 'w' // pays, is told that it is not decided, and asks for the order until it is
	wayAbandons = 'a' // gives the seat up
	wayVanishes = 'v' // is not heard of again
)

// ways are what one in twenty clients does. Those who come at the end all pay.
const ways = "ppppppppssddwwaavvvv"

// saleCards are how the provider treats the cards of the ways.
var saleCards = map[string]payments.Behaviour{
	"card-slow":     {Answer: payments.Slow, LatencyMS: 600},
	"card-declined": {Attempts: []string{payments.Declined}},
	"card-waits":    {Answer: payments.Pending},
}

// A saleChoice is what the seed decides for a sale, by client where it is a list.
type saleChoice struct {
	Show     show            `json:"show"`
	Arrivals []time.Duration `json:"arrivals"`
	Ways     string          `json:"ways"`
	Returns  []int           `json:"returns"` // how often it comes back when nothing is free; -1: until the sale is over
	Pauses   []int           `json:"pauses"`  // milliseconds before it does so first; longer from time to time
	Thinks   []int           `json:"thinks"`  // milliseconds before it does something with its seat
}

func chooseSale(rng *rand.Rand, p harness.Params) (any, error) {
	n, rate := p.Int(paramClients.Name), float64(p.Int(paramRate.Name))
	c := saleChoice{Show: chooseShow(rng, p, p.Int(paramSeats.Name))}
	early := n / earlyShare
	for i := range early {
		c.Arrivals = append(c.Arrivals, earlyUntil*time.Duration(i)/time.Duration(early))
	}
	for _, at := range load.Poisson(rng, n-early, rate) {
		c.Arrivals = append(c.Arrivals, saleLead+at)
	}
	payersFrom := c.Arrivals[n-1] - p.Duration(paramHold.Name) - 2*saleTail
	letters := make([]byte, n)
	for i := range n {
		letters[i] = ways[rng.IntN(len(ways))]
		returns := max(0, rng.IntN(6)-2) // half of them leave at once
		if i >= early && i%max(1, n/patientMost) == 0 {
			returns, letters[i] = -1, wayPrompt
		}
		if c.Arrivals[i] >= payersFrom {
			letters[i] = wayPrompt
		}
		think := 20 + rng.IntN(300)
		if letters[i] == waySlow {
			think = 700 + rng.IntN(1000)
		}
		c.Returns, c.Pauses, c.Thinks = append(c.Returns, returns), append(c.Pauses, 300+rng.IntN(900)), append(c.Thinks, think)
	}
	c.Ways = string(letters)
	return c, nil
}

func onSaleRush() harness.Scenario {
	s := scenario(harness.Scenario{
		Name:  "tickets/on-sale",
		Title: "ten thousand people come for eighty seats, by an open loop; seats come back, and all are sold in the end",
		Doc: `The sale begins, and people come by a Poisson process, whatever the server does; some come before it begins and are told not-on-sale. Who asks for the best seat and
is told sold-out leaves, or comes back a few times, with growing pauses. Of those who get a seat most pay: at once, slowly, after a decline, or with a payment that a callback
decides; some give it up, some are not heard of again, and their holds run out while the sale goes on. Those who come at the end all pay, and some people come back until
the sale is over, so that each seat that comes back is bought: eighty are sold in the end, never more, and no money is without a seat. The seats are sampled all the while. 503 is an
honest answer of a server that is asked for too much, for a small share of the calls; any other 5xx is a violation.`,
		Sources: []string{"S-I1", "S-I2", "S-I4", "S-I5", "S-I7", "S-I10", "S-I11", "S-M14"},
		Params:  []harness.Param{paramClients, paramRate, paramSeats, paramHold, with(paramReplicas, "2"), paramConnections, paramWire},
		Topology: func(p harness.Params) harness.Topology {
			t := topology(p, map[string]string{"TICKETS_HOLD": p.Text(paramHold.Name), "TICKETS_TICK": "100ms"})
			t.PostgresWire = p.Text(paramWire.Name) == "on"
			return t
		},
		Choose:  chooseSale,
		Drive:   driveSale,
		Latency: kindBest, Latencies: []string{kindCharge},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSeats.Name)
			return append(always(p),
				onlyWhenOnSale(), overloadIsHonest(), everyClientCounted(p.Int(paramClients.Name)),
				seatStates("every seat is sold, none twice", map[string]int{"SOLD": n}))
		},
	}, nil)
	s.Tags = []string{"slow", "load"}
	return s
}

// A sale is one on its way.
type sale struct {
	saleChoice

	env  harness.Env
	over time.Duration // offset of the run at which nobody comes back any more
}

func driveSale(ctx context.Context, env harness.Env) error {
	s := &sale{env: env}
	if err := env.Plan().Decode(&s.saleChoice); err != nil {
		return err
	}
	if err := configure(ctx, env, payments.Config{Cards: saleCards}); err != nil {
		return err
	}
	post := newCourier(env)
	stop := post.run(ctx)
	report, ops, err := s.open(ctx)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	env.Witness("present", float64(min(100, len(s.Arrivals)/10)), float64(report.MaxPresent), "clients who were there at one instant")
	measureSale(env, s.Show, ops)
	return finish(ctx, env, post)
}

// Event of a sale: from when on it is on sale at the latest, and before when it
// surely is not.
const (
	subjectOnSale = "on sale"
	attrNotBefore = "not_before_ns"
	attrSurely    = "surely_ns"
)

// open puts the show on sale soon and lets the clients come.
func (s *sale) open(ctx context.Context) (harness.OpenLoopReport, []harness.Operation, error) {
	before := s.env.Now()
	now, err := serverNow(ctx, s.env)
	if err != nil {
		return harness.OpenLoopReport{}, nil, err
	}
	after := s.env.Now()
	if op := s.env.Do(ctx, createShow(s.Show, now.Add(saleLead))); op.Status != 201 {
		return harness.OpenLoopReport{}, nil, fmt.Errorf("create show %d: got %d %s %s, want 201", s.Show.ID, op.Status, op.Err, op.Output)
	}
	s.env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectOnSale, Text: fmt.Sprintf("on sale from %s of the run on", after+saleLead),
		Attrs: map[string]string{attrNotBefore: strconv.FormatInt(int64(before+saleLead), 10), attrSurely: strconv.FormatInt(int64(after+saleLead), 10)},
	})
	last := s.Arrivals[len(s.Arrivals)-1]
	s.over = s.env.Now() + last + s.env.Params().Duration(paramHold.Name) + saleTail
	return s.env.Load(ctx, harness.OpenLoop{
		Name: "sale", Arrivals: s.Arrivals, Client: s.visit,
		Connections: s.env.Params().Int(paramConnections.Name), Deadline: last + s.env.Params().Duration(paramHold.Name) + saleTail + saleOver,
		Slack: saleSlack,
	})
}

// visit is one client's conversation until it has a seat or leaves.
func (s *sale) visit(ctx context.Context, v harness.Visitor) {
	n := v.N()
	if n%lookShare == 0 {
		v.Do(ctx, seats(n, member(n), s.Show.ID))
	}
	pause := time.Duration(s.Pauses[n]) * time.Millisecond
	for tries := 0; ctx.Err() == nil; {
		op := v.Do(ctx, claimBest(n, member(n), s.Show.ID))
		wait := pause
		switch answers.Word(op) {
		case "201", "409 checkout-active": // the second when the answer to an earlier claim was lost
			if id, _ := fields(op)["hold_id"].(string); id != "" {
				s.decide(ctx, v, id)
			}
			return
		case "409 not-on-sale":
			if seconds, err := strconv.Atoi(op.Header["Retry-After"]); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
		case "409 sold-out", "503 busy", "none":
			if !s.comesBack(n, tries) {
				return
			}
			tries++
			pause += pause / 2
			if s.Returns[n] < 0 {
				pause = min(pause, 2*time.Second)
			}
		default:
			return
		}
		if v.Pause(ctx, wait) != nil {
			return
		}
	}
}

func (s *sale) comesBack(n, tries int) bool {
	if s.Returns[n] < 0 {
		return s.env.Now() < s.over
	}
	return tries < s.Returns[n]
}

// decide is what the client does with its seat.
func (s *sale) decide(ctx context.Context, v harness.Visitor, holdID string) {
	n, way := v.N(), s.Ways[v.N()]
	if way == wayVanishes || v.Pause(ctx, time.Duration(s.Thinks[n])*time.Millisecond) != nil {
		return
	}
	switch way {
	case wayAbandons:
		v.Do(ctx, release(n, member(n), holdID))
	case waySlow:
		s.pay(ctx, v, holdID, "card-slow")
	case wayWaits:
		s.pay(ctx, v, holdID, "card-waits")
	case wayDeclined:
		if op := v.Do(ctx, charge(n, member(n), holdID, "card-declined")); op.Status != 402 && op.Status != 503 {
			return
		}
		if v.Pause(ctx, time.Duration(s.Thinks[n])*time.Millisecond) != nil {
			return
		}
		fallthrough
	default:
		s.pay(ctx, v, holdID, "card-of-"+member(n))
	}
}

// payTries is how often a client charges, and how often it asks for the order
// between, before it gives up.
const (
	payTries = 3
	askTries = 20
	askPause = 250 * time.Millisecond
)

// pay charges until the client knows what became of it.
func (s *sale) pay(ctx context.Context, v harness.Visitor, holdID, card string) {
	n := v.N()
	for range payTries {
		op := v.Do(ctx, charge(n, member(n), holdID, card))
		switch word := answers.Word(op); {
		case op.Status == 202, op.Status == 0, word == "503 outcome-unknown", word == "409 charge-in-flight":
			if !s.undecided(ctx, v, holdID) {
				return
			}
		case op.Status == 503:
		default:
			return
		}
		if v.Pause(ctx, askPause) != nil {
			return
		}
	}
}

// undecided asks for the order until it tells what became of its charge, and
// says whether the client may charge again: it was declined, or there is none.
func (s *sale) undecided(ctx context.Context, v harness.Visitor, holdID string) (again bool) {
	n := v.N()
	for range askTries {
		if v.Pause(ctx, askPause) != nil {
			return false
		}
		o, err := orderOf(v.Do(ctx, order(n, member(n), holdID)))
		if err != nil {
			continue
		}
		flying := false
		for _, c := range o.Charges {
			flying = flying || c.State == "CHARGING"
		}
		switch {
		case o.State != "RESERVED":
			return false
		case !flying:
			return true
		}
	}
	return false
}
