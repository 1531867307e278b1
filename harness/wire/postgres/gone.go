package pgwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
)

const (
	goneDeadline = 60 * time.Second
	gonePause    = 3 * time.Millisecond
	goneSlack    = 100 * time.Millisecond // between a backend's start and the news of it, and of two clocks
)

// A register knows the backends behind the sessions: by their cancel keys,
// and those whose connection has ended and that may still be there.
type register struct {
	mu   sync.Mutex
	keys map[string]*backend
	left map[*backend]struct{}
}

// A backend is one of Postgres' processes.
type backend struct {
	target *target
	pid    int
	key    string
	known  time.Time // it had begun by then
}

func newRegister() *register {
	return &register{keys: map[string]*backend{}, left: map[*backend]struct{}{}}
}

// began notes a session's backend. A process number that comes again shows
// that the process that had it is gone. session.mu is held.
func (r *register) began(s *session, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.backend = &backend{target: s.target, pid: s.pid, key: key, known: clock.Wall()}
	r.keys[key] = s.backend
	for b := range r.left {
		if b.pid == s.pid && b.target == s.target {
			delete(r.left, b)
		}
	}
}

// target is where the session with this cancel key was opened.
func (r *register) target(key []byte) *target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.keys[string(key)]; b != nil {
		return b.target
	}
	return nil
}

// ended notes that a session's connection has come to its end, whatever its
// backend still does.
func (r *register) ended(s *session) {
	s.mu.Lock()
	b, again := s.backend, s.departed
	s.departed = true
	s.mu.Unlock()
	if b == nil || again {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[b] = struct{}{}
}

// gone notes how Postgres' side of a session ended: where Postgres closed it,
// the process has let go of everything.
func (r *register) gone(s *session, err error) {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	if b == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, net.ErrClosed) {
		delete(r.left, b)
	}
}

// forget drops what a session that is over can't be asked for any more.
func (r *register) forget(s *session) {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if b != nil && r.keys[b.key] == b {
		delete(r.keys, b.key)
	}
}

// retarget forgets the backends elsewhere: there nobody can be asked any more.
func (r *register) retarget(t *target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := range r.left {
		if b.target != t {
			delete(r.left, b)
		}
	}
}

func (r *register) leftOver() []*backend {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*backend, 0, len(r.left))
	for b := range r.left {
		list = append(list, b)
	}
	return list
}

func (r *register) drop(list []*backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range list {
		delete(r.left, b)
	}
}

// AwaitGone waits until no backend of a connection that has ended on this
// wire is left in Postgres: only then is what it left undone rolled back. It
// asks pg_stat_activity on a connection of its own, with the target's user.
// Backends of a database from which the wire was led away are not asked for.
// The wait ends with ctx, at the latest after a minute.
func (w *Wire) AwaitGone(ctx context.Context) error {
	if len(w.departing()) == 0 && len(w.gone.leftOver()) == 0 {
		return nil
	}
	config, err := pgx.ParseConfig(w.current().url.String())
	if err != nil {
		return fmt.Errorf("wait for backends to be gone: %w", err)
	}
	config.RuntimeParams["application_name"] = "overbook"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("wait for backends to be gone: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var theirs time.Time
	ours := clock.Wall()
	if err := conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&theirs); err != nil {
		return fmt.Errorf("wait for backends to be gone: ask Postgres for the time: %w", err)
	}
	ahead := theirs.Sub(ours)
	return clock.Await(ctx, "backends of ended connections to be gone from Postgres", goneDeadline, gonePause, func(ctx context.Context) (bool, string, error) {
		if n := w.departing(); len(n) > 0 {
			return false, fmt.Sprintf("the ends of %d connections are not read yet", len(n)), nil
		}
		pids, err := w.askGone(ctx, conn, ahead)
		return len(pids) == 0 && err == nil, fmt.Sprintf("processes %v", pids), err
	})
}

// askGone gives the processes that are still there, and forgets the others.
func (w *Wire) askGone(ctx context.Context, conn *pgx.Conn, ahead time.Duration) ([]int, error) {
	left := w.gone.leftOver()
	var pids []int
	for _, b := range left {
		pids = append(pids, b.pid)
	}
	rows, err := conn.Query(ctx, `select pid, backend_start from pg_stat_activity where pid = any($1)`, pids)
	if err != nil {
		return nil, fmt.Errorf("ask for backends: %w", err)
	}
	began := map[int]*time.Time{}
	for rows.Next() {
		var pid int
		var start *time.Time
		if err := rows.Scan(&pid, &start); err != nil {
			return nil, fmt.Errorf("ask for backends: %w", err)
		}
		began[pid] = start
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("ask for backends: %w", err)
	}
	var still []int
	var gone []*backend
	for _, b := range left {
		start, there := began[b.pid]
		// One that began later has taken over the number.
		if there && (start == nil || !start.After(b.known.Add(ahead+goneSlack))) {
			still = append(still, b.pid)
		} else {
			gone = append(gone, b)
		}
	}
	w.gone.drop(gone)
	slices.Sort(still)
	return still, nil
}

// departing are the sessions whose server has gone, and that have not noticed.
func (w *Wire) departing() []*session {
	var list []*session
	for _, s := range w.all() {
		s.mu.Lock()
		unnoticed := s.backend != nil && !s.departed
		s.mu.Unlock()
		if unnoticed && hungUp(s.clientConn) {
			list = append(list, s)
		}
	}
	return list
}

// deadline is so long from now.
func deadline(d time.Duration) time.Time { return clock.Wall().Add(d) }
