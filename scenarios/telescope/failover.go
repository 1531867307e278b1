package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

// Bounds of the failover's clients.
const (
	clientPatience = 60 * time.Second       // a client gives up asking for one booking
	clientPause    = 100 * time.Millisecond // between two attempts
)

// A failoverChoice is what the seed decides for a failover.
type failoverChoice struct {
	Slots []slot `json:"slots"` // client after client
	Break int    `json:"break"` // acknowledged bookings after which the stream to the standby is broken
	Kill  int    `json:"kill"`  // further ones after which the primary is killed, where they are not held up by the broken stream
}

var (
	paramClients = harness.Param{
		Name: "clients", Kind: harness.IntParam, Default: "8", Min: 2, Max: 50,
		Doc: "members who book one slot after the other, each as soon as the one before is answered",
	}
	paramEach = harness.Param{
		Name: "bookings", Kind: harness.IntParam, Default: "40", Min: 20, Max: 80,
		Doc: "bookings of each client, each in a month of its own; more than are made before the end, so that nobody runs out",
	}
)

func failover() harness.Scenario {
	return failoverScenario(harness.Scenario{
		Name:  "telescope/failover",
		Title: "the primary is killed, its synchronous standby is promoted; no acknowledged booking is lost",
		Doc: `Two PostgreSQL clusters with durability on; a commit is answered when the standby has it on disk. Members book one slot after the other. At a count of answered
bookings that the seed chooses, the stream to the standby is broken, and as soon as commits wait for the standby every process of the primary is killed: the worst instant, for those
commits are on the primary's disk only. The standby is promoted and the servers are led to it; they reconnect by themselves. Clients that were answered 503, or not at all, ask again
with their key until they are answered. No booking that was answered 201 may be missing, each of them is told again by its key, and the former primary, started again, takes no
writes. A commit that nobody was told of may be lost: then the retry makes the booking, once.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-I8"},
	}, failoverMode{
		clusters: harness.SyncPair,
		ready:    awaitStandbyWaiters,
		kind:     "commits_waiting_for_the_standby", what: "sessions whose COMMIT waited for the standby when the primary was killed",
	})
}

func failoverStandbyAway() harness.Scenario {
	return failoverScenario(harness.Scenario{
		Name:  "telescope/failover@standby-away",
		Title: "the synchronous standby is out of reach for longer than the server's deadlines, then the primary is killed",
		Doc: `As failover, but the primary goes on for a while after the stream is broken. The server gives up waiting for its commits, and Postgres then makes them visible, with
a warning, although the standby does not have them. Clients are answered 503 outcome-unknown and ask again with their key and look its outcome up; both now find a stored result. It must
not be told as long as the standby does not have it, for when the primary is killed then, it is lost. After the promotion everybody gets a booking.`,
		Sources: []string{"T-I3", "T-I4", "T-I6"},
	}, failoverMode{
		clusters: harness.SyncPair, looks: true, forgets: true,
		ready: awaitDoubts,
		kind:  "undecided_while_the_standby_was_away", what: "answers and lost answers that decided nothing, of clients that asked while the standby was out of reach",
		server: map[string]string{"TELESCOPE_STATEMENT_TIMEOUT": "400ms", "TELESCOPE_LOCK_TIMEOUT": "200ms"},
	})
}

func failoverWaitsCancelled() harness.Scenario {
	return failoverScenario(harness.Scenario{
		Name:  "telescope/failover@waits-cancelled",
		Title: "somebody cancels the commits that wait for the synchronous standby, then the primary is killed",
		Doc: `As failover, but somebody ends what seems to hang while the stream is broken: every COMMIT that waits for the standby is cancelled. Postgres then reports it as
done, with a warning, and shows its rows, although the standby does not have them. That is no acknowledgement: clients are answered 503 outcome-unknown and ask again with their key,
and a retry must not be told the stored result either. Nobody who was answered 201 may lose the booking with the primary.`,
		Sources: []string{"T-I3", "T-I4", "T-I6"},
	}, failoverMode{
		clusters: harness.SyncPair, forgets: true,
		ready: cancelWaits,
		kind:  "cancelled_commits", what: "commits that were cancelled while they waited for the standby",
	})
}

func failoverAsync() harness.Scenario {
	return failoverScenario(harness.Scenario{
		Name:  "telescope/failover@async",
		Title: "the primary is killed, its asynchronous standby is promoted; the loss is counted",
		Doc: `As failover, but a commit is answered when the primary has it: it may be lost with it. The stream is broken, some more bookings are acknowledged, and then
the primary is killed, so that a loss is certain and not luck. It must be counted and not hidden: each 201 whose booking the promoted standby does not have is listed (measured: lost). That
is no violation, as asynchronous replication promises nothing else. It is one if the old primary never had the booking (then the server acknowledged what it had not
committed), if it was acknowledged after the promotion, or if it is missing although a later one is there: what replication loses is the end of the log. A client whose booking was
lost and who asks again with the same key gets a new booking, if the slot is still free. A mail about a lost booking may have been sent.`,
		Sources: []string{"T-I4", "T-I6"},
	}, failoverMode{
		clusters: harness.AsyncPair, forgets: true,
		ready: func(ctx context.Context, _ harness.Env, people *crowd, c failoverChoice, since time.Duration) (float64, error) {
			return float64(c.Kill), people.wait(ctx, c.Kill, since)
		},
		kind: "acknowledged_beside_the_standby", what: "bookings that were asked for and acknowledged while the stream to the standby was broken",
	})
}

// A failoverMode is what a failover's variants differ in.
type failoverMode struct {
	clusters harness.ClusterKinds
	server   map[string]string
	looks    bool // as in crowd
	forgets  bool // an event may be seen, and mailed, that is lost with the primary

	// ready waits, once the stream to the standby is broken, until it is time to
	// kill the primary, and gives what the witness saw.
	ready      func(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, since time.Duration) (float64, error)
	kind, what string // of the witness
}

func failoverScenario(s harness.Scenario, m failoverMode) harness.Scenario {
	s.Params = []harness.Param{paramClients, paramEach}
	top := faultTopology(m.server)
	s.Topology = func(p harness.Params) harness.Topology {
		t := top(p)
		t.Clusters = m.clusters
		return t
	}
	s.Choose = chooseFailover
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveFailover(ctx, env, m) }
	s.Checks = func(p harness.Params) []harness.Check {
		checks := append(failoverChecks(p), everyEventMailed(mailRules{forgets: m.forgets}))
		if m.clusters == harness.AsyncPair {
			return append(checks, lossCounted())
		}
		return append(checks, noneLost(), toldAgain())
	}
	return faultScenario(s, nil)
}

func chooseFailover(rng *rand.Rand, p harness.Params) (any, error) {
	clients, each := p.Int(paramClients.Name), p.Int(paramEach.Name)
	total, first := clients*each, rng.IntN(48*27-clients)
	c := failoverChoice{Break: 5*clients + rng.IntN(5*clients), Kill: 3 + rng.IntN(10)}
	for i, id := range slotIDs(rng, total) {
		c.Slots = append(c.Slots, slot{ID: id, Month: firstMonth + i%each, HalfHours: first + i/each})
	}
	return c, nil
}

// A crowd is clients that book in a closed loop, and who listens to them.
type crowd struct {
	env      harness.Env
	looks    bool                   // who is in doubt looks the key's outcome up, too
	answered chan harness.Operation // each 201, of whoever books; never full
	clients  sync.WaitGroup

	mu     sync.Mutex
	told   []harness.Operation // the same
	doubts map[int]int         // answers that decided nothing, by client; nil until they are counted
	since  time.Duration
}

// start lets the clients loose; they end when all is booked, when they lose
// patience, or with ctx.
func (c *crowd) start(ctx context.Context, slots []slot, each int) {
	c.answered = make(chan harness.Operation, len(slots))
	for client := range len(slots) / each {
		c.clients.Go(func() {
			for i, s := range slots[client*each : (client+1)*each] {
				if op := c.book(ctx, book(client, member(client), s.ID, keyOf("book", i))); op.Status == 201 {
					c.mu.Lock()
					c.told = append(c.told, op)
					c.mu.Unlock()
					c.answered <- op
				}
			}
		})
	}
}

// book asks until the answer decides something. That a client waits a little
// and asks again with the same key is what the contract tells it to do.
func (c *crowd) book(ctx context.Context, r harness.Request) harness.Operation {
	until := c.env.Now() + clientPatience
	for {
		op := c.env.Do(ctx, r)
		undecided := op.Status == 0 || op.Status >= 500 || problemType(op) == "in-progress"
		if !undecided || c.env.Now() > until {
			return op
		}
		c.doubt(op)
		if c.looks {
			c.env.Do(ctx, lookup(r.Process, r.Caller, r.Header["Idempotency-Key"], "book"))
		}
		r.Kind = kindRetry
		pause := time.NewTimer(clientPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return op
		case <-pause.C:
		}
	}
}

// doubt counts what decided nothing.
func (c *crowd) doubt(op harness.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts != nil && op.Sent >= c.since {
		c.doubts[op.Process]++
	}
}

// kindRetry is a booking that is asked for again because nobody knows what
// became of it.
const kindRetry = "retry"

// wait waits for so many answered bookings that were asked for at that instant
// or later.
func (c *crowd) wait(ctx context.Context, n int, since time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for got := 0; got < n; {
		select {
		case op := <-c.answered:
			if op.Sent >= since {
				got++
			}
		case <-timer.C:
			return fmt.Errorf("of %d bookings that were to be answered %d were, within %s", n, got, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// toldSince counts the answered bookings that were asked for at that instant
// or later.
func (c *crowd) toldSince(since time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.told {
		n += int(count(op.Sent >= since))
	}
	return n
}

func driveFailover(ctx context.Context, env harness.Env, mode failoverMode) error {
	var c failoverChoice
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if _, err := create(ctx, env, c.Slots); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	people := &crowd{env: env, looks: mode.looks}
	people.start(ctx, c.Slots, env.Params().Int(paramEach.Name))
	m, err := failOver(ctx, env, people, c, mode)
	if err != nil {
		cancel() // there is nothing to wait for any more
	}
	people.clients.Wait()
	if err != nil {
		return err
	}
	old, err := fence(ctx, env, c.Slots[0].ID)
	if err != nil {
		return err
	}
	acknowledged, err := countLoss(ctx, env, old, m, people.told)
	if err != nil || mode.clusters == harness.AsyncPair {
		return err
	}
	env.DoAll(ctx, acknowledged, 8) // each is told its booking again
	return nil
}

// failOver breaks the stream, kills the primary and promotes the standby.
func failOver(ctx context.Context, env harness.Env, people *crowd, c failoverChoice, mode failoverMode) (m milestones, err error) {
	if err := people.wait(ctx, c.Break, 0); err != nil {
		return m, err
	}
	if err := breakStream(ctx, env); err != nil {
		return m, fmt.Errorf("break the stream to the standby: %w", err)
	}
	seen, err := mode.ready(ctx, env, people, c, env.Now())
	if err != nil {
		return m, err
	}
	m.killed = env.Now()
	if err := env.Pair().KillPrimary(ctx); err != nil {
		return m, err
	}
	env.Witness(mode.kind, 1, seen, mode.what)
	if err := env.Pair().Promote(ctx); err != nil {
		return m, err
	}
	m.promoted = env.Now()
	env.Measure("promoted_after_ms", float64(m.promoted-m.killed)/float64(time.Millisecond))
	return m, nil
}
