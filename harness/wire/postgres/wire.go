package pgwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

const (
	defaultUnitLimit = 500_000
	acceptPause      = 5 * time.Millisecond
)

// A Config says what a wire connects.
type Config struct {
	Clock   clock.Clock // of the run; stamps are its offsets
	Target  string      // postgres:// URL of the database behind
	Servers []string    // replica names; each gets a listener of its own on 127.0.0.1:0

	// Kill and Stop do what ActionKill and ActionStop want. They run to their
	// end before anything else happens to the unit.
	Kill, Stop func(ctx context.Context, server string) error

	OnStrike func(f harness.Fault, s harness.Strike) // told of each strike, before the action; may be nil
	OnHeal   func(f harness.Fault)                   // told when a fault is taken back; may be nil

	UnitLimit int  // most units recorded; 0 takes 500,000; beyond it Err says that the record is not whole
	Split     bool // what can be split at its commit always is, also where no fault or meeting asks for it
	_         struct{}
}

// A Wire is a running proxy. Its methods may be called from any goroutine,
// those that read also after Close.
type Wire struct {
	config       Config
	ledger       ledger
	interceptors interceptors
	gone         *register
	urls         map[string]string
	listeners    []net.Listener
	handlers     sync.WaitGroup
	close        func() error    // once
	ctx          context.Context //nolint:containedctx // ends with Close: holds end, too
	cancel       context.CancelCauseFunc

	mu       sync.Mutex
	target   *target
	sessions map[*session]struct{}
	ended    bool
}

var _ harness.PostgresWire = (*Wire)(nil)

// Start listens on a free loopback port for each server, and passes their
// connections on to the target until Close. It does not try whether the
// target answers. ctx bounds the start alone.
func Start(ctx context.Context, c Config) (*Wire, error) {
	if c.UnitLimit == 0 {
		c.UnitLimit = defaultUnitLimit
	}
	t, err := parseTarget(c.Target)
	if err != nil {
		return nil, fmt.Errorf("start Postgres wire: %w", err)
	}
	w := &Wire{
		config: c, ledger: ledger{clock: c.Clock, limit: c.UnitLimit}, gone: newRegister(),
		urls: map[string]string{}, target: t, sessions: map[*session]struct{}{},
	}
	w.ctx, w.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	w.close = sync.OnceValue(w.shut)
	for _, name := range c.Servers {
		if err := w.listen(ctx, name); err != nil {
			return nil, errors.Join(fmt.Errorf("start Postgres wire for %s: %w", name, err), w.Close())
		}
	}
	return w, nil
}

// listen opens one server's door.
func (w *Wire) listen(ctx context.Context, name string) error {
	if _, twice := w.urls[name]; twice {
		return fmt.Errorf("server %q is named twice", name)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.listeners = append(w.listeners, l)
	w.urls[name] = w.target.through(l.Addr().String())
	w.handlers.Go(func() { w.accept(name, l) }) //nolint:contextcheck // ctx is the start's alone
	return nil
}

// accept hands every connection to a goroutine of its own; Close waits for all.
func (w *Wire) accept(name string, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err == nil {
			w.handlers.Go(func() { w.serve(name, conn) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// It was gone before we took it, or we are out of descriptors: no spinning.
		timer := time.NewTimer(acceptPause)
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// URL is the DATABASE_URL for a replica: the target's, with the host and port
// of the replica's listener and sslmode=disable. "" for an unknown one.
func (w *Wire) URL(server string) string { return w.urls[server] }

// Units gives what has gone over the wire so far, in order of arrival. Units
// that are under way are in it with the stamps they have. Their statements
// are shared with the record: they are to be read only.
//
// The end of a connection inside of a transaction is a unit of its own,
// without statements and with Err.
func (w *Wire) Units() []harness.Unit { return w.ledger.snapshot() }

// OpenTransactions gives the transactions that are open now, of one replica
// or of all (""), in the order of their numbers. Implicit ones are not among
// them.
func (w *Wire) OpenTransactions(server string) []harness.Transaction {
	var units []*harness.Unit
	for _, s := range w.all() {
		if server != "" && s.name != server {
			continue
		}
		s.mu.Lock()
		if s.tx.status != 'I' && !s.tx.implicit && s.lost == "" {
			units = append(units, s.tx.units...)
		}
		s.mu.Unlock()
	}
	return harness.Transactions(w.ledger.copies(units))
}

// Retarget leads new connections to another database from now on, and closes
// the existing ones with a reset. The URLs of the replicas stay as they are.
func (w *Wire) Retarget(url string) error {
	t, err := parseTarget(url)
	if err != nil {
		return fmt.Errorf("lead the Postgres wire elsewhere: %w", err)
	}
	w.mu.Lock()
	w.target = t
	w.mu.Unlock()
	for _, s := range w.all() {
		s.sever(whyRetarget)
	}
	w.gone.retarget(t)
	return nil
}

// Heal takes back every fault and calls off every meeting.
func (w *Wire) Heal() {
	for _, i := range w.interceptors.all() {
		switch i := i.(type) {
		case *fault:
			i.Heal()
		case *meeting:
			i.cancel()
		}
	}
}

// Err says why the record is not whole, nil when it is.
func (w *Wire) Err() error { return w.ledger.err() }

// Close ends every connection with a reset, also those with units that are
// held, and returns when all goroutines have ended. The record stays readable.
// Closing again does nothing.
func (w *Wire) Close() error { return w.close() }

func (w *Wire) shut() error {
	w.cancel(&lostError{whyClosed})
	var errs []error
	for _, l := range w.listeners {
		errs = append(errs, l.Close())
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	for _, s := range w.all() {
		s.sever(whyClosed)
	}
	w.handlers.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close Postgres wire: %w", err)
	}
	return nil
}

func (w *Wire) current() *target {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.target
}

func (w *Wire) all() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*session, 0, len(w.sessions))
	for s := range w.sessions {
		list = append(list, s)
	}
	return list
}

// admit adds a session; false after Close.
func (w *Wire) admit(s *session) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.sessions[s] = struct{}{}
	}
	return !w.ended
}

func (w *Wire) forget(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sessions, s)
	w.gone.forget(s)
}

// abandon takes it that a server is dead: its connections are closed. What
// Postgres has in hand of them it finishes, as it would.
func (w *Wire) abandon(server string) {
	for _, s := range w.all() {
		if s.name == server {
			w.gone.ended(s)
			_ = s.clientConn.Close()
		}
	}
}
