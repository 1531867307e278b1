package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A step is one action of a client in a storm. Which of its own appointments it
// is about depends on what it has by then: the Which-th, as often around as it takes.
type step struct {
	Do       string `json:"do"` // book, weekly, move, swap, cancel, over, read, busy
	Resource int    `json:"resource"`
	Span     span   `json:"span"`
	Zone     string `json:"zone"`
	Which    int    `json:"which"`
}

// stormChoices are each client's steps.
type stormChoices struct {
	Resources []resource `json:"resources"`
	Clients   [][]step   `json:"clients"`
}

// stormDo are what clients do, as often as it is in the list.
var stormDo = []string{"book", "book", "book", "book", "book", "weekly", "move", "move", "move", "swap", "swap", "cancel", "cancel", "cancel", "over", "read", "read", "busy", "busy"}

func bookingStorm() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/booking-storm",
		Title: "many customers book, move, swap, give up and look at the same few hours",
		Doc: `Clients go through steps that the seed chose, each without a pause between its own: they book single appointments and weekly ones, move them, swap two of their own,
give them up, act on what they have given up, and look at theirs and at when a consultant is busy. The synchroniser creates, moves and deletes the events at the
provider meanwhile. What the clients were told must be explainable by one order of all calls on each consultant, and the provider ends with exactly the events of
what is still booked.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M1", "C-M8", "C-M9", "C-M13", "C-M14"},
		Params: []harness.Param{
			with(paramUsers, "12"), paramReplicas, paramContract,
			{Name: "resources", Kind: harness.IntParam, Default: "2", Min: 1, Max: 20, Doc: "consultants"},
			{Name: "steps", Kind: harness.IntParam, Default: "30", Min: 2, Max: 200, Doc: "requests of each client, one after the other"},
		},
		Choose: chooseStorm,
		Drive:  driveStorm,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(), discreet(), among("answers", "what is refused is refused because of an overlap, or because the appointment is over", "storm.go", map[string][]string{
				kindBook: {"201", "409 overlap"}, kindBookSeries: {"201", "409 overlap"}, kindMove: {"200", "409 overlap"}, kindReschedule: {"200", "409 overlap"},
				kindCancel: {"200"}, "over": {"409 appointment-over"}, kindRead: {"200"}, kindAvailability: {"200"},
			}))
		},
	}, nil)
}

func chooseStorm(rng *rand.Rand, p harness.Params) (any, error) {
	c := stormChoices{Resources: chooseResources(rng, p, p.Int("resources"))}
	for range users(p) {
		steps := make([]step, p.Int("steps"))
		for i := range steps {
			from := 9*60 + 5*rng.IntN(60)
			steps[i] = step{
				Do: stormDo[rng.IntN(len(stormDo))], Resource: rng.IntN(len(c.Resources)), Zone: chooseZone(rng), Which: rng.IntN(1000),
				Span: day(7*rng.IntN(2), from, from+10+5*rng.IntN(10)),
			}
		}
		c.Clients = append(c.Clients, steps)
	}
	return c, nil
}

func driveStorm(ctx context.Context, env harness.Env) error {
	var c stormChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resources...); err != nil {
		return err
	}
	each := make([]*stormClient, len(c.Clients))
	var wg sync.WaitGroup
	for i := range each {
		each[i] = &stormClient{n: i, resources: c.Resources}
		wg.Go(func() {
			for k, s := range c.Clients[i] {
				each[i].do(ctx, env, s.request(o, each[i], fmt.Sprintf("step-%d", k)))
			}
		})
	}
	wg.Wait()
	var all []harness.Operation
	for _, e := range each {
		all = append(all, e.ops...)
	}
	env.Witness("max_in_flight", float64(max(2, len(each)/4)), float64(answers.Overlapping(all)), "requests of the storm sent and unanswered at one instant")
	witnessWords(env, all, map[string]int{
		kindBook + " 201": len(each) / 2, kindBook + " 409 overlap": 2, kindMove + " 200": 1, kindReschedule + " 200": 1, kindCancel + " 200": len(each) / 4,
	})
	return finish(ctx, env)
}

// witnessWords records how many requests of a kind were told a word, against
// how many must have been for the storm to be one.
func witnessWords(env harness.Env, ops []harness.Operation, least map[string]int) {
	got := map[string]int{}
	for _, op := range ops {
		got[op.Kind+" "+answers.Word(op)]++
	}
	for what, n := range least {
		env.Witness(what, float64(max(1, n)), float64(got[what]), "requests of the storm, by kind and answer: "+what)
	}
}

// A stormClient is what a client has, and did.
type stormClient struct {
	n         int
	resources []resource
	own       []appointmentAnswer
	over      []string
	ops       []harness.Operation
}

// request is the step's. Who has too little to do it books instead.
func (s step) request(o time.Time, c *stormClient, key string) harness.Request {
	who, id := member(c.n), c.resources[s.Resource].ID
	w := s.Span.in(s.Zone, o)
	switch {
	case s.Do == "busy":
		d := day(s.Span.From/(24*60), 0, 24*60)
		return availability(c.n, who, id, d.start(o), d.end(o))
	case s.Do == "over" && len(c.over) > 0:
		gone := c.over[s.Which%len(c.over)]
		if s.Which%2 == 0 {
			return answers.As("over", cancel(c.n, who, gone, key))
		}
		return answers.As("over", moveTo(c.n, who, gone, w, key))
	case s.Do == "weekly":
		w = s.Span.in("Etc/UTC", o) // which has no gap in any week
		w.Weekly = 2
	case len(c.own) == 0, s.Do == "book", s.Do == "over": // books
	case s.Do == "read":
		return read(c.n, who, c.own[s.Which%len(c.own)].ID)
	case s.Do == "cancel":
		return cancel(c.n, who, c.own[s.Which%len(c.own)].ID, key)
	case s.Do == "swap" && len(c.own) > 1:
		one := c.own[s.Which%len(c.own)]
		other := c.own[(s.Which+1)%len(c.own)]
		return reschedule(c.n, who, []move{
			{one.ID, between(s.Zone, other.Start, other.End)}, {other.ID, between(s.Zone, one.Start, one.End)},
		}, key)
	default:
		return moveTo(c.n, who, c.own[s.Which%len(c.own)].ID, w, key)
	}
	return book(c.n, who, id, w, key)
}

// do makes the call and remembers what the client has now.
func (c *stormClient) do(ctx context.Context, env harness.Env, r harness.Request) {
	op := env.Do(ctx, r)
	c.ops = append(c.ops, op)
	if op.Status != 200 && op.Status != 201 {
		return
	}
	switch callOf(op) {
	case callCancel:
		c.over = append(c.over, target(op))
		c.forget(target(op))
	case callBook, callMove, callReschedule:
		list, _ := appointmentsTold(op) // what can't be read is judged by others
		for _, a := range list {
			c.forget(a.ID)
			c.own = append(c.own, a)
		}
	}
}

func (c *stormClient) forget(id string) {
	for i, a := range c.own {
		if a.ID == id {
			c.own = append(c.own[:i:i], c.own[i+1:]...)
			return
		}
	}
}
