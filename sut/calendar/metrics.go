package calendar

import (
	"fmt"
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// meters are the service's figures for GET /metrics, in Prometheus' text format.
type meters struct {
	set     *metrics.Set
	retries *metrics.Counter // transactions run again after 40001 or 40P01
	parked  *metrics.Counter // appointments whose synchronisation was left to staff
}

func newMeters() *meters {
	set := metrics.NewSet()
	return &meters{
		set:     set,
		retries: set.NewCounter("overbook_calendar_transaction_retries_total"),
		parked:  set.NewCounter("overbook_calendar_parked_total"),
	}
}

// gauge shows what read gives at the moment of asking. The name has its labels
// in it, and must be new.
func (m *meters) gauge(name string, read func() float64) { m.set.NewGauge(name, read) }

// answered counts an answer to a client by operation and type: "ok", the word
// at the end of the problem's type, or "replayed" for a stored one.
func (m *meters) answered(operation, kind string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_calendar_answers_total{operation=%q,type=%q}", operation, kind)).Inc()
}

// providerCall counts calls of the calendar provider by what was asked for
// ("freebusy", "create", "token") and outcome (a status, or a word).
func (m *meters) providerCall(call, outcome string, took time.Duration) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_calendar_provider_calls_total{call=%q,outcome=%q}", call, outcome)).Inc()
	m.set.GetOrCreateHistogram(fmt.Sprintf("overbook_calendar_provider_seconds{call=%q}", call)).Update(took.Seconds())
}

// refreshed counts token refreshes by what became of them: "done", "failed",
// "invalid_grant".
func (m *meters) refreshed(outcome string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_calendar_refreshes_total{outcome=%q}", outcome)).Inc()
}

// conflictFound counts conflicts by who found them: "check", "look",
// "reconciliation".
func (m *meters) conflictFound(by string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_calendar_conflicts_total{found_by=%q}", by)).Inc()
}

func (m *meters) write(w io.Writer) { m.set.WritePrometheus(w) }
