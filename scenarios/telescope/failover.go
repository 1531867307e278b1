package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

// Bounds of the failover's clients.
const (
	clientPatience = 60 * time.Second       // a client gives up asking for one booking
	clientPause    = 100 * time.Millisecond // between two attempts
	breakAttempts  = 10                     // to have the stream broken when the primary is killed
)

// A failoverChoice is what the seed decides for a failover.
type failoverChoice struct {
	Slots []slot `json:"slots"` // client after client
	Break int    `json:"break"` // acknowledged bookings after which the stream to the standby is broken
	Kill  int    `json:"kill"`  // asynchronous: further ones after which the primary is killed
}

var (
	paramClients = harness.Param{
		Name: "clients", Kind: harness.IntParam, Default: "8", Min: 2, Max: 50,
		Doc: "members who book one slot after the other, each as soon as the one before is answered",
	}
	paramEach = harness.Param{
		Name: "bookings", Kind: harness.IntParam, Default: "25", Min: 20, Max: 40,
		Doc: "bookings of each client, each in a month of its own",
	}
)

func failover() harness.Scenario {
	return failoverScenario(harness.Scenario{
		Name:  "telescope/failover",
		Title: "the primary is killed, its synchronous standby is promoted; no acknowledged booking is lost",
		Doc: `Two PostgreSQL clusters with durability on; a commit is answered when the standby has it on disk. Members book one slot after the other. At a count of answered
bookings that the seed chooses, the stream to the standby is broken (its sender is ended), and as soon as commits wait for the standby every process of the primary is killed:
the worst instant, for those commits are on the primary's disk only. The standby is promoted and the servers are led to it; they reconnect by themselves. Clients that were answered 503, or
not at all, ask again with their key until they are answered. No booking that was answered 201 may be missing, each of them is told again by its key, and the former primary,
started again, takes no writes. A commit that nobody was told of may be lost: then the retry makes the booking, once.`,
		Sources: []string{"T-I3", "T-I4", "T-I6", "T-I8"},
		Checks: func(p harness.Params) []harness.Check {
			return append(failoverChecks(p), noneLost(), everyEventMailed(mailRules{}),
				words("answers.again", "whoever asks again is told 201", byKind, func(rec harness.Record) tallies {
					n := int(rec.Measured[measuredAcknowledged])
					if n == 0 {
						return nil
					}
					return tallies{kindAgain: {"201": n}}
				}))
		},
	}, harness.SyncPair)
}

func failoverAsync() harness.Scenario {
	s := failoverScenario(harness.Scenario{
		Name:  "telescope/failover@async",
		Title: "the primary is killed, its asynchronous standby is promoted; the loss is counted",
		Doc: `As failover, but a commit is answered when the primary has it: it may be lost with it. The stream is broken, some more bookings are acknowledged, and then
the primary is killed, so that a loss is certain and not luck. It must be counted and not hidden: each 201 whose booking the promoted standby does not have is listed (measured: lost). That
is no violation, as asynchronous replication promises nothing else. It is one if the old primary never had the booking (then the server acknowledged what it had not
committed), if it was acknowledged after the promotion, or if it is missing although a later one is there: what replication loses is the end of the log. A client whose booking was
lost and who asks again with the same key gets a new booking, if the slot is still free. A mail about a lost booking may have been sent.`,
		Sources: []string{"T-I4", "T-I6"},
		Checks: func(p harness.Params) []harness.Check {
			return append(failoverChecks(p), lossCounted(), everyEventMailed(mailRules{forgets: true}))
		},
	}, harness.AsyncPair)
	return s
}

func failoverScenario(s harness.Scenario, kind harness.ClusterKinds) harness.Scenario {
	s.Params = []harness.Param{paramClients, paramEach}
	top := faultTopology(nil)
	s.Topology = func(p harness.Params) harness.Topology {
		t := top(p)
		t.Clusters = kind
		return t
	}
	s.Choose = chooseFailover
	s.Drive = driveFailover
	return faultScenario(s, nil)
}

func chooseFailover(rng *rand.Rand, p harness.Params) (any, error) {
	clients, each := p.Int(paramClients.Name), p.Int(paramEach.Name)
	total, first := clients*each, rng.IntN(48*27-clients)
	c := failoverChoice{Break: total/4 + rng.IntN(total/4), Kill: 3 + rng.IntN(10)}
	for i, id := range slotIDs(rng, total) {
		c.Slots = append(c.Slots, slot{ID: id, Month: firstMonth + i%each, HalfHours: first + i/each})
	}
	return c, nil
}

// A crowd is clients that book in a closed loop, and who listens to them.
type crowd struct {
	env      harness.Env
	answered chan harness.Operation // each 201, of whoever books; never full
	clients  sync.WaitGroup

	mu   sync.Mutex
	told []harness.Operation // the same
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

func driveFailover(ctx context.Context, env harness.Env) error {
	var c failoverChoice
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if _, err := create(ctx, env, c.Slots); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	people := &crowd{env: env}
	people.start(ctx, c.Slots, env.Params().Int(paramEach.Name))
	m, err := failOver(ctx, env, people, c)
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
	if err != nil || !synchronous(env) {
		return err
	}
	env.DoAll(ctx, acknowledged, 8) // each is told its booking again
	return nil
}

// failOver breaks the stream, kills the primary and promotes the standby.
func failOver(ctx context.Context, env harness.Env, people *crowd, c failoverChoice) (m milestones, err error) {
	if err := people.wait(ctx, c.Break, 0); err != nil {
		return m, err
	}
	ready := func() (float64, error) { return float64(c.Kill), people.wait(ctx, c.Kill, env.Now()) }
	kind, what := "acknowledged_beside_the_standby", "bookings that were asked for and acknowledged while the stream to the standby was broken"
	if synchronous(env) {
		ready = func() (float64, error) { return awaitStandbyWaiters(ctx, env) }
		kind, what = "commits_waiting_for_the_standby", "sessions whose COMMIT waited for the standby when the primary was killed"
	}
	seen, err := whileBroken(ctx, env, ready)
	if err != nil {
		return m, err
	}
	m.killed = env.Now()
	if err := env.Pair().KillPrimary(ctx); err != nil {
		return m, err
	}
	env.Witness(kind, 1, seen, what)
	if err := env.Pair().Promote(ctx); err != nil {
		return m, err
	}
	m.promoted = env.Now()
	env.Measure("promoted_after_ms", float64(m.promoted-m.killed)/float64(time.Millisecond))
	return m, nil
}

// synchronous says on which sort of pair the run is.
func synchronous(env harness.Env) bool { return !strings.HasSuffix(env.Plan().Scenario, "@async") }

// whileBroken breaks the stream to the standby and waits until it is ready for
// the kill with the stream still broken. The standby comes back after a second;
// on a busy machine that may be too early, and then the stream is broken again.
func whileBroken(ctx context.Context, env harness.Env, ready func() (float64, error)) (seen float64, err error) {
	for range breakAttempts {
		if err := breakStream(ctx, env); err != nil {
			return 0, err
		}
		if seen, err = ready(); err != nil {
			return 0, err
		}
		n, err := senders(ctx, env)
		if err != nil || n == 0 {
			return seen, err
		}
	}
	return 0, fmt.Errorf("the standby was back before the kill, %d times in a row", breakAttempts)
}

// senders counts the streams to standbys.
func senders(ctx context.Context, env harness.Env) (int, error) {
	rows, err := env.Database().Query(ctx, "select count(*) as n from pg_stat_replication")
	if err != nil {
		return 0, fmt.Errorf("look for the standby's stream: %w", err)
	}
	n, _ := rows[0]["n"].(float64)
	return int(n), nil
}

// breakStream ends the primary's sender. The standby connects again at once
// the first time, and then rests for a second: so it is ended twice.
func breakStream(ctx context.Context, env harness.Env) error {
	ended, last := map[any]bool{}, env.Now()
	env.Record(harness.Event{Kind: harness.EventFault, Subject: "postgres", Text: "the stream to the standby is broken"})
	return env.Await(ctx, "the stream to the standby stays broken", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select pid, pg_terminate_backend(pid) as told from pg_stat_replication")
		for _, r := range rows {
			ended[r["pid"]], last = true, env.Now()
		}
		broken := err == nil && len(rows) == 0 && (len(ended) > 1 || env.Now()-last > streamRests)
		return broken, fmt.Sprintf("%d senders ended", len(ended)), err
	})
}

// streamRests is how long the standby must have stayed away to be resting
// already, so that once is enough.
const streamRests = 300 * time.Millisecond

// awaitStandbyWaiters waits until a commit waits for the standby.
func awaitStandbyWaiters(ctx context.Context, env harness.Env) (float64, error) {
	waiting := 0.0
	err := env.Await(ctx, "a commit waits for the standby", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'")
		if err == nil {
			waiting, _ = rows[0]["n"].(float64)
		}
		return waiting > 0, "none waits", err
	})
	return waiting, err
}

// fence starts the former primary again and tries to write to it.
func fence(ctx context.Context, env harness.Env, slotID int64) (harness.Database, error) {
	old, err := env.Pair().StartOld(ctx)
	if err != nil {
		return nil, err
	}
	_, refused := old.Exec(ctx, "update observing_slots set updated_at = updated_at where slot_id = $1", slotID)
	said := "it was done"
	if refused != nil {
		said = refused.Error()
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: fencedSubject, Text: "a write on the former primary: " + said, Attrs: map[string]string{"said": said}})
	return old, nil
}
