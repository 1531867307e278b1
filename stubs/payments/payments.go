package payments

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
)

const (
	bodyLimit = 1 << 20 // bytes of a call's body that are read

	// A call with wireHeader came through WireMock, where a reset can't be
	// passed on. Its answer says in answerHeader what should become of it.
	wireHeader   = "X-Overbook-Run"
	answerHeader = "X-Overbook-Answer"
)

var (
	plainReference = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`) // what the mapping of GET /charges/{reference} lets through
	plainCurrency  = regexp.MustCompile(`^[A-Z]{3}$`)
)

// provider is the double. Everything is guarded by one mutex, which is never
// held over a wait.
type provider struct {
	clock clock.Clock

	mu          sync.Mutex
	set         settings
	books       books
	chargeKeys  map[string]*keyed[charge]
	refundKeys  map[string]*keyed[refund]
	refundPosts map[string]int // by payment id
	loud        chan struct{}  // closed when the silences that there are end
	stats       double.Stats
}

// keyed is what an Idempotency-Key stands for, from when its first call came.
type keyed[C any] struct {
	call    C
	working bool // the first call is not answered yet
	posts   int  // with this body
	payment int  // of a charge: index once it is accepted, else -1
}

// An outcome is a decision and how it is told.
type outcome struct {
	double.Reply
	answer string // Final, Reset or Silent
}

func told(r double.Reply) outcome { return outcome{r, Final} }

// New gives a provider that is up, answers at once, captures every charge and
// has its callback due, once. The seed is not used: nothing here is left to
// chance.
func New(uint64) http.Handler {
	p := &provider{
		clock: clock.New(), set: defaults(), books: newBooks(), stats: double.NewStats(), loud: make(chan struct{}),
		chargeKeys: map[string]*keyed[charge]{}, refundKeys: map[string]*keyed[refund]{}, refundPosts: map[string]int{},
	}
	mux := http.NewServeMux()
	p.serve(mux, postCharges, p.charges)
	p.serve(mux, getCharges, p.ask)
	p.serve(mux, postRefunds, p.refunds)
	double.Control(mux, double.Controls[Config]{
		Name: Name, Lock: &p.mu, Stats: &p.stats,
		Change: p.change,
		Config: p.set.config,
		Ledger: func() any { return p.books.ledger() },
	})
	return mux
}

// serve registers a call: it counts it, lets it be decided unless it has to
// fail, counts the decision and tells it. The call goes on when its caller has
// gone, as a provider does.
func (p *provider) serve(mux *http.ServeMux, name string, decide func(*http.Request, []byte) outcome) {
	mux.HandleFunc(name, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
		if err != nil {
			return // never arrived whole
		}
		failing := p.arrive(name)
		defer p.leave(name)
		o := told(double.Refuse(http.StatusServiceUnavailable, failing))
		if failing == "" {
			o = decide(r, body)
		}
		p.decided(name, o.Reply)
		p.tell(w, r, o)
	})
}

// arrive counts a call, and gives the word for why it is not looked at, if so.
func (p *provider) arrive(name string) (failing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Arrive(name)
	if p.set.mode == Down {
		return "down"
	}
	left := p.set.failFirst[name]
	if left == 0 {
		return ""
	}
	if left > 0 {
		p.set.failFirst[name]--
	}
	return "failing"
}

func (p *provider) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Leave(name)
}

func (p *provider) decided(name string, r double.Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Decided(name, r.Status, r.Word)
}

// tell answers, or does not.
func (p *provider) tell(w http.ResponseWriter, r *http.Request, o outcome) {
	switch o.answer {
	case Silent:
		p.keepSilent(r.Context())
		double.WriteJSON(w, http.StatusGatewayTimeout, map[string]string{"error": "no_answer"}) // to whoever is still there: no decision
	case Reset:
		reset(w, r)
	default:
		double.WriteJSON(w, o.Status, o.Body)
	}
}

// keepSilent waits until the caller has gone, the silence is over, or all
// silences are ended.
func (p *provider) keepSilent(ctx context.Context) {
	p.mu.Lock()
	loud, silence := p.loud, p.set.silence
	p.mu.Unlock()
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-loud:
	}
}

// reset ends the connection without an answer. WireMock would make an answer
// of its own of that, which looks like a broken WireMock, so a call that came
// through it gets one without a decision instead, marked for the wire in front.
func reset(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(wireHeader) != "" {
		w.Header().Set(answerHeader, Reset)
		double.WriteJSON(w, http.StatusBadGateway, map[string]string{"error": "answer_lost"})
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server ends the connection, too
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a dead connection
	}
	_ = conn.Close()
}

// change does all of a valid change, or nothing. p.mu is held.
func (p *provider) change(c Config) error {
	set, books := p.set, p.books
	p.set, p.books = set.with(c), books.clone()
	if err := p.once(c); err != nil {
		p.set, p.books = set, books
		return err
	}
	if c.SilenceMS != nil {
		close(p.loud)
		p.loud = make(chan struct{})
	}
	return nil
}

// once does the part of a change that is done once. p.mu is held.
func (p *provider) once(c Config) error {
	var errs []error
	for _, d := range c.Decide {
		errs = append(errs, p.decide(d))
	}
	for _, x := range c.Cross {
		errs = append(errs, p.cross(x))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, card := range c.Release {
		p.release(card)
	}
	return nil
}

// keyOf gives the call's one Idempotency-Key, "" when there is none or several.
func keyOf(r *http.Request) string {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) != 1 {
		return ""
	}
	return keys[0]
}

// read decodes a body. An amount that is not written as an integer does not fit.
func read(body []byte, into any) bool { return json.Unmarshal(body, into) == nil }

func (p *provider) now() float64 { return float64(p.clock.Now()) / float64(time.Millisecond) }

// known looks a key up: a call that came before, and the refusal when this one
// can't be the same.
func known[C comparable](keys map[string]*keyed[C], key string, call C) (k *keyed[C], no *double.Reply) {
	k = keys[key]
	if k == nil {
		return nil, nil
	}
	if k.call != call {
		r := double.Refuse(http.StatusUnprocessableEntity, "key_reused")
		return k, &r
	}
	k.posts++
	if k.working {
		r := double.Refuse(http.StatusConflict, "in_progress")
		return k, &r
	}
	return k, nil
}

// latest gives the index of the newest payment of a card, -1 for none.
func (b *books) latest(card string) int {
	for i, p := range slices.Backward(b.payments) {
		if p.Card == card {
			return i
		}
	}
	return -1
}
