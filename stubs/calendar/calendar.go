package calendar

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
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

// provider is the double. Everything is guarded by one mutex, which is never
// held over a wait.
type provider struct {
	clock     clock.Clock
	seed      uint64
	keyWindow time.Duration

	mu    sync.Mutex
	set   settings
	books map[string]*book
	rows  []Call           // only ever appended to
	holds map[string]*hold // by calendar: creates that wait
	loud  chan struct{}    // closed when the silences that there are end
	stats double.Stats
}

// A hold is what creates of a calendar wait for.
type hold struct {
	over    chan struct{}
	waiting int
}

// An outcome is a decision and how it is told.
type outcome struct {
	double.Reply
	answer     string        // Final, Reset, Silent or Slow
	slow       time.Duration // of Slow
	retryAfter int           // seconds, of a 429
}

// New gives a provider that is up and honours if_free, whose calendars are
// empty, and appear when they are first named. The seed makes the tokens.
func New(seed uint64) http.Handler { return newProvider(seed, keyWindow) }

func newProvider(seed uint64, window time.Duration) http.Handler {
	p := &provider{
		clock: clock.New(), seed: seed, keyWindow: window, books: map[string]*book{}, rows: []Call{}, holds: map[string]*hold{},
		loud: make(chan struct{}), stats: double.NewStats(),
	}
	p.set = defaults(p.wall())
	mux := http.NewServeMux()
	p.serve(mux, getFreebusy, Freebusy, p.freebusy)
	p.serve(mux, getEvents, List, p.list)
	p.serve(mux, getEvent, Get, p.get)
	p.serve(mux, postEvents, Create, p.create)
	p.serve(mux, putEvent, Update, p.update)
	p.serve(mux, deleteEvent, Delete, p.remove)
	p.serve(mux, postToken, Token, p.token)
	double.Control(mux, double.Controls[Config]{
		Name: Name, Lock: &p.mu, Stats: &p.stats,
		Change: p.change,
		Config: p.set.config,
		Ledger: func() any { return p.ledger() },
	})
	return mux
}

// serve registers a call: it counts it, waits, lets it be decided, counts the
// decision, waits and tells it. The call goes on when its caller has gone, as
// a provider does. decide is called with the lock held, for calls that are let in.
func (p *provider) serve(mux *http.ServeMux, name, kind string, decide func(*book, request) double.Reply) {
	mux.HandleFunc(name, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
		if err != nil {
			return // never arrived whole
		}
		q := read(kind, r, body)
		latency, refused := p.arrive(name, kind, q)
		defer p.leave(name)
		if refused != nil {
			p.tell(w, r, *refused)
			return
		}
		double.Wait(latency / 2)
		if kind == Create {
			p.hold(q.calendar)
		}
		o := p.decide(name, kind, q, decide)
		double.Wait(latency - latency/2)
		p.tell(w, r, o)
	})
}

// arrive counts a call, and gives its latency, or the refusal of one that is
// not looked at.
func (p *provider) arrive(name, kind string, q request) (time.Duration, *outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Arrive(name)
	set := p.set.of(q.calendar)
	refuse := func(status int, word string) *outcome {
		p.stats.Decided(name, status, word)
		return &outcome{Reply: double.Refuse(status, word), answer: Final}
	}
	if set.Mode == Down {
		return 0, refuse(http.StatusServiceUnavailable, "down")
	}
	if q.calendar == "" {
		return 0, refuse(http.StatusBadRequest, "bad_request") // of no calendar that anything could be counted for
	}
	b := p.book(q.calendar)
	if b.quota.failing(kind) {
		return 0, refuse(http.StatusServiceUnavailable, "failing")
	}
	if kind != Token && b.quota.limited() {
		o := refuse(http.StatusTooManyRequests, "rate_limited")
		o.retryAfter = b.quota.limit.RetryAfterS
		return 0, o
	}
	return double.Millis(set.LatencyMS[kind]), nil
}

func (p *provider) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Leave(name)
}

// hold has a create wait while the calendar holds them, at most [double.MaxWait].
func (p *provider) hold(calendar string) {
	h := p.joinHold(calendar)
	if h == nil {
		return
	}
	timer := time.NewTimer(double.MaxWait)
	defer timer.Stop()
	select {
	case <-h.over:
	case <-timer.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		h.waiting-- // nobody looks at it when the hold is over by now
	}
}

func (p *provider) joinHold(calendar string) *hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.set.of(calendar).HoldCreates {
		return nil
	}
	h := p.holds[calendar]
	if h == nil {
		h = &hold{over: make(chan struct{})}
		p.holds[calendar] = h
	}
	h.waiting++
	return h
}

// letGo has the creates decided that a calendar holds now. p.mu is held.
func (p *provider) letGo(calendar string) {
	close(p.holds[calendar].over)
	delete(p.holds, calendar)
}

// decide lets a call in, has it decided, and counts the decision.
func (p *provider) decide(name, kind string, q request, decide func(*book, request) double.Reply) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, set := p.book(q.calendar), p.set.of(q.calendar)
	o := outcome{answer: Final, slow: double.Millis(set.SlowMS)}
	word := ""
	if kind != Token {
		word = b.tokens.refuses(q.access)
	}
	switch {
	case !q.sound:
		o.Reply = double.Refuse(http.StatusBadRequest, "bad_request")
	case word != "":
		o.Reply = double.Refuse(http.StatusUnauthorized, word)
	default:
		o.Reply = decide(b, q)
		o.answer = b.quota.answer(set, kind, q.eventID)
	}
	p.stats.Decided(name, o.Status, o.Word)
	return o
}

// book gives a calendar, which appears when it is first named. p.mu is held.
func (p *provider) book(calendar string) *book {
	b := p.books[calendar]
	if b == nil {
		b = newBook(calendar)
		b.begin(p.set.of(calendar), p.set.standardAt)
		p.books[calendar] = b
	}
	return b
}

// note writes a row of the ledger. p.mu is held.
func (p *provider) note(row Call) {
	row.N, row.AtMS = len(p.rows)+1, float64(p.clock.Now())/float64(time.Millisecond)
	if row.Externals == nil {
		row.Externals = []string{}
	}
	p.rows = append(p.rows, row)
}

// ledger gives rows that later events don't change. p.mu is held.
func (p *provider) ledger() Ledger {
	l := Ledger{Calls: slices.Clone(p.rows)}
	for _, name := range slices.Sorted(maps.Keys(p.books)) {
		waiting := 0
		if h := p.holds[name]; h != nil {
			waiting = h.waiting
		}
		l.Events = append(l.Events, p.books[name].sorted()...)
		l.Calendars = append(l.Calendars, p.books[name].row(waiting))
	}
	return l
}

// wall is the provider's time of day, to the millisecond.
func (p *provider) wall() time.Time {
	return p.clock.Epoch().Add(p.clock.Now()).UTC().Truncate(time.Millisecond)
}

// tell answers, or does not.
func (p *provider) tell(w http.ResponseWriter, r *http.Request, o outcome) {
	switch o.answer {
	case Silent:
		p.keepSilent(r.Context())
		double.WriteJSON(w, http.StatusGatewayTimeout, map[string]string{"error": "no_answer"}) // to whoever is still there: no decision
		return
	case Reset:
		reset(w, r)
		return
	case Slow:
		double.Wait(o.slow)
	}
	if o.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(o.retryAfter))
	}
	if o.Status == http.StatusNoContent {
		w.WriteHeader(o.Status)
		return
	}
	double.WriteJSON(w, o.Status, o.Body)
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
