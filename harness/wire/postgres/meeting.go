package pgwire

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

// A meeting is one that is arranged, and not over yet.
type meeting struct {
	harness.Meeting
	wire    *Wire
	pattern *regexp.Regexp

	mu     sync.Mutex
	here   map[*session]struct{}
	first  time.Duration // when the first one came; 0: nobody has
	over   chan struct{}
	report harness.MeetingReport
	err    error // it was called off
}

// Meet arranges a meeting: sessions are held at the moment until so many of
// them are there, and let go together. It is over once; units that come to
// the moment later pass. A meeting that is none panics.
func (w *Wire) Meet(m harness.Meeting) (wait func(context.Context) (harness.MeetingReport, error), cancel func()) {
	if !m.At.OnPostgres() || m.Sessions < 1 || m.Within <= 0 {
		panic(fmt.Sprintf("Postgres wire: no meeting of %d sessions at %q within %s: want a moment of this wire, sessions, and a time", m.Sessions, m.At, m.Within))
	}
	in := &meeting{
		Meeting: m, wire: w, pattern: regexp.MustCompile("(?i)" + m.Match),
		here: map[*session]struct{}{}, over: make(chan struct{}),
	}
	w.interceptors.add(in)
	return in.wait, in.cancel
}

func (m *meeting) wants(e encounter) bool {
	if m.At != e.moment {
		return false
	}
	_, ok := e.match(m.pattern.MatchString)
	return ok
}

func (m *meeting) meet(e encounter, _ bool) (do response, takes bool) {
	if !m.wants(e) {
		return nil, false
	}
	return func(ctx context.Context) verdict {
		m.hold(ctx, e)
		return verdict{}
	}, false
}

// hold is what a session does that comes to the meeting.
func (m *meeting) hold(ctx context.Context, e encounter) {
	left, ok := m.arrive(e)
	if !ok {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-m.over:
	case <-timer.C:
		m.end(nil)
	case <-ctx.Done():
		m.mu.Lock()
		if delete(m.here, e.session); len(m.here) == 0 {
			m.first = 0
		}
		m.mu.Unlock()
	}
}

// arrive adds a session, and says how long the meeting may take from now on.
func (m *meeting) arrive(e encounter) (left time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended() {
		return 0, false
	}
	m.wire.ledger.note(e.unit.record, func(r *harness.Unit) {
		if r.Fault != "" {
			r.Fault += ", "
		}
		r.Fault += m.String()
	})
	now := m.wire.ledger.now()
	if m.first == 0 {
		m.first = now
	}
	if m.here[e.session] = struct{}{}; len(m.here) >= m.Sessions {
		m.letGo(nil)
	}
	return max(m.first+m.Within-now, 0), true
}

// String is what a unit's record says about it.
func (m *meeting) String() string {
	text := fmt.Sprintf("meeting of %d at %s", m.Sessions, m.At)
	if m.Match != "" {
		text += "(" + m.Match + ")"
	}
	return text
}

func (m *meeting) ended() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

func (m *meeting) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended() {
		m.letGo(err)
	}
}

// letGo ends the meeting. mu is held.
func (m *meeting) letGo(err error) {
	m.report = harness.MeetingReport{Want: m.Sessions, Met: len(m.here), At: m.wire.ledger.now()}
	m.err = err
	close(m.over)
	m.wire.interceptors.remove(m)
}

var errCalledOff = errors.New("it was called off")

func (m *meeting) cancel() { m.end(errCalledOff) }

func (m *meeting) wait(ctx context.Context) (harness.MeetingReport, error) {
	select {
	case <-m.over:
		return m.result()
	case <-ctx.Done():
		return harness.MeetingReport{Want: m.Sessions}, fmt.Errorf("wait for the %s: %w; %s", m, context.Cause(ctx), m.state())
	case <-m.wire.ctx.Done():
		return harness.MeetingReport{Want: m.Sessions}, fmt.Errorf("wait for the %s: %s", m, whyClosed)
	}
}

func (m *meeting) result() (harness.MeetingReport, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.report, fmt.Errorf("%s: %w", m, m.err)
	}
	return m.report, nil
}

func (m *meeting) state() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%d sessions are there", len(m.here))
}
