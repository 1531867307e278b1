package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/payments"
)

// How a courier goes about callbacks that were not answered 2xx.
const (
	courierTries = 6                     // of one callback, the first included; then the provider gives up
	courierPause = 50 * time.Millisecond // before the second try; doubles from one to the next
	courierPoll  = 50 * time.Millisecond // between two looks at the ledger, unless it is woken
)

// A courier delivers the callbacks that the provider has due, as recorded
// calls: signed at delivery, in server time; copies of one at a barrier; in the
// order that the provider asks for. It remembers what it has delivered. What
// the provider calls lost it never delivers.
//
// A delivery that is not answered 2xx, or not at all, is made again, as
// providers do that promise to tell everything at least once. This is no retry
// of the harness, which would hide that a call failed: each try is an operation
// of its own that checks judge, and the tries have a bound, after which the
// server has to ask by itself.
type courier struct {
	env   harness.Env
	woken chan struct{}

	mu      sync.Mutex // one round at a time
	told    map[int]*telling
	turn    int // whose turn it is among the running servers
	waiting int // due, not taken yet, and to be tried again
}

// A telling is what became of one callback so far, by its number.
type telling struct {
	tries int
	taken bool          // answered 2xx
	next  time.Duration // not before this offset of the run
}

// newCourier gives a courier that has delivered nothing yet.
func newCourier(env harness.Env) *courier {
	return &courier{env: env, woken: make(chan struct{}, 1), told: map[int]*telling{}}
}

// deliver delivers all that is due now, one callback after the other, and says
// how many it tried. The error is trouble of the environment.
func (c *courier) deliver(ctx context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ledger, err := ledgerNow(ctx, c.env)
	if err != nil {
		return 0, err
	}
	due := c.due(ledger.Callbacks)
	if len(due) == 0 || !running(c.env) {
		return 0, nil // with no server there is nobody to deliver to; it stays due
	}
	now, err := serverNow(ctx, c.env)
	if err != nil {
		if ctx.Err() == nil && !running(c.env) {
			return 0, nil // it died just now
		}
		return 0, err
	}
	for i, cb := range due {
		if err := c.tell(ctx, cb, now); err != nil {
			return i, err
		}
	}
	c.due(ledger.Callbacks) // for waiting
	return len(due), ctx.Err()
}

// left is how many callbacks that were due wait for another try.
func (c *courier) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// due gives the callbacks to be delivered now, in order, and counts those that
// wait for another try.
func (c *courier) due(all []payments.Callback) []payments.Callback {
	var list []payments.Callback
	c.waiting = 0
	for _, cb := range all {
		t := c.told[cb.Seq]
		if t == nil {
			t = &telling{}
			c.told[cb.Seq] = t
		}
		if !cb.Due || cb.Lost || t.taken || t.tries >= courierTries {
			continue
		}
		c.waiting++
		if t.next <= c.env.Now() {
			list = append(list, cb)
		}
	}
	return inOrder(list)
}

// inOrder gives the callbacks as they happened, but for those of cards whose
// callbacks are reversed: these take each other's places, the newest first.
func inOrder(list []payments.Callback) []payments.Callback {
	places := map[string][]int{}
	for i, cb := range list {
		if cb.Reversed {
			places[cb.Card] = append(places[cb.Card], i)
		}
	}
	ordered := slices.Clone(list)
	for _, at := range places {
		for k, i := range at {
			ordered[i] = list[at[len(at)-1-k]]
		}
	}
	return ordered
}

// tell makes one try at a callback: all copies at the first, one later.
func (c *courier) tell(ctx context.Context, cb payments.Callback, now time.Time) error {
	t := c.told[cb.Seq]
	copies := 1
	if t.tries == 0 {
		copies = cb.Copies
	}
	requests := make([]harness.Request, copies)
	for i := range requests {
		requests[i] = callback(courierProcess+i, cb.Body, payments.Sign(secret, now, cb.Body))
		requests[i].Server = c.nextServer()
	}
	var ops []harness.Operation
	if copies == 1 {
		ops = []harness.Operation{c.env.Do(ctx, requests[0])}
	} else {
		var err error
		if _, ops, err = c.env.Burst(ctx, harness.Burst{Name: fmt.Sprintf("copies of %s", cb.EventID), Requests: requests}); err != nil {
			return fmt.Errorf("deliver %d copies of %s: %w", copies, cb.EventID, err)
		}
	}
	sent := false
	t.taken = true
	for _, op := range ops {
		sent = sent || op.Sent != 0
		t.taken = t.taken && op.Status/100 == 2
	}
	if sent { // else it was no try: there was nobody to send it to
		t.tries++
	}
	t.next = c.env.Now() + courierPause<<max(0, t.tries-1)
	return nil
}

// callback is the delivery of a body under a signature.
func callback(process int, body json.RawMessage, signature string) harness.Request {
	return harness.Request{
		Kind: kindCallback, Process: process, Caller: payments.Name, Method: http.MethodPost, Path: callbackPath,
		Header: map[string]string{"Payments-Signature": signature}, Body: body,
	}
}

// nextServer spreads deliveries over the servers that are running; "" when
// none is.
func (c *courier) nextServer() string {
	servers := c.env.Servers()
	for range servers {
		s := servers[c.turn%len(servers)]
		c.turn++
		if s.URL() != "" {
			return s.Name()
		}
	}
	return ""
}

func running(env harness.Env) bool {
	return slices.ContainsFunc(env.Servers(), func(s harness.Server) bool { return s.URL() != "" })
}

// wake has a courier that runs in the background look at once.
func (c *courier) wake() {
	select {
	case c.woken <- struct{}{}:
	default: // it is going to look
	}
}

// run delivers in the background what is due, until it is stopped or the
// context ends. stop lets what is under way be delivered, waits for that and
// gives the courier's trouble; more than once is once.
func (c *courier) run(ctx context.Context) (stop func() error) {
	quit, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.keepDelivering(ctx, quit) }()
	return sync.OnceValue(func() error {
		close(quit) // not by the context: that would tear a delivery
		return <-ended
	})
}

func (c *courier) keepDelivering(ctx context.Context, quit <-chan struct{}) error {
	poll := time.NewTicker(courierPoll)
	defer poll.Stop()
	for {
		if _, err := c.deliver(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("courier: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-quit:
			return nil
		case <-poll.C:
		case <-c.woken:
		}
	}
}

// ledgerNow asks the provider for its ledger.
func ledgerNow(ctx context.Context, env harness.Env) (payments.Ledger, error) {
	var l payments.Ledger
	raw, err := env.Upstream(payments.Name).Ledger(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	if err != nil {
		return l, fmt.Errorf("ask the provider for its ledger: %w", err)
	}
	return l, nil
}
