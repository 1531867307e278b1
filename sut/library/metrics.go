package library

import (
	"fmt"
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// meters are the service's figures for GET /metrics, in Prometheus' text format.
type meters struct {
	set          *metrics.Set
	suppressed   *metrics.Counter
	redisTrouble *metrics.Counter
}

func newMeters(s *Service) *meters {
	set := metrics.NewSet()
	m := &meters{
		set:          set,
		suppressed:   set.NewCounter("overbook_library_suppressed_total"),
		redisTrouble: set.NewCounter("overbook_library_seat_lock_trouble_total"),
	}
	set.NewGauge("overbook_library_waiting_intents", func() float64 { return float64(s.waiters.count()) })
	set.NewGauge("overbook_library_outbox_oldest_pending_seconds", func() float64 { return s.relay.OldestPending().Seconds() })
	set.NewGauge("overbook_library_outbox_parked", func() float64 { return float64(s.relay.Parked()) })
	set.NewGauge("overbook_library_clock_offset_seconds", func() float64 { return s.cfg.Clock.Offset().Seconds() })
	for _, state := range []string{"closed", "half-open", "open"} {
		set.NewGauge(fmt.Sprintf("overbook_library_breaker{state=%q}", state), func() float64 {
			if s.pyxis.BreakerState() == state {
				return 1
			}
			return 0
		})
	}
	set.NewGauge(`overbook_library_database_connections{pool="requests",state="acquired"}`, func() float64 {
		return float64(s.store.requests.Pool().Stat().AcquiredConns())
	})
	set.NewGauge(`overbook_library_database_connections{pool="background",state="acquired"}`, func() float64 {
		return float64(s.store.background.Pool().Stat().AcquiredConns())
	})
	return m
}

// ended counts intents that reached a terminal state in this replica.
func (m *meters) ended(records []record) {
	for _, r := range records {
		if terminal(r.State) {
			m.set.GetOrCreateCounter(fmt.Sprintf("overbook_library_intents_ended_total{state=%q}", r.State)).Inc()
		}
	}
}

// late counts answers that came after their intent was decided.
func (m *meters) late(state string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_library_late_answers_total{answer=%q}", state)).Inc()
}

// reaped counts leases that ran out, by what was decided.
func (m *meters) reaped(state string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_library_reaped_total{state=%q}", state)).Inc()
}

// upstreamCall counts calls to pyxis; status 0 is no answer.
func (m *meters) upstreamCall(call string, status int, took time.Duration) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_library_upstream_calls_total{call=%q,status=\"%d\"}", call, status)).Inc()
	m.set.GetOrCreateHistogram(fmt.Sprintf("overbook_library_upstream_seconds{call=%q}", call)).Update(took.Seconds())
}

func (m *meters) write(w io.Writer) { m.set.WritePrometheus(w) }
