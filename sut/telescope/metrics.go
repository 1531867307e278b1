package telescope

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
}

func newMeters() *meters {
	set := metrics.NewSet()
	return &meters{set: set, retries: set.NewCounter("overbook_telescope_transaction_retries_total")}
}

// gauge shows what read gives at the moment of asking. The name has its labels
// in it, and must be new.
func (m *meters) gauge(name string, read func() float64) { m.set.NewGauge(name, read) }

// answered counts an answer to a client by operation and type: "ok", the word
// at the end of the problem's type, or "replayed" for a stored one.
func (m *meters) answered(operation, kind string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_telescope_answers_total{operation=%q,type=%q}", operation, kind)).Inc()
}

// emailCall counts calls of the email provider; status 0 is no answer.
func (m *meters) emailCall(status int, took time.Duration) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_telescope_email_calls_total{status=\"%d\"}", status)).Inc()
	m.set.GetOrCreateHistogram("overbook_telescope_email_seconds").Update(took.Seconds())
}

// refreshed counts refreshes of the public schedule and how long they took;
// what failed is counted apart.
func (m *meters) refreshed(took time.Duration, err error) {
	if err != nil {
		m.set.GetOrCreateCounter("overbook_telescope_schedule_refresh_failures_total").Inc()
		return
	}
	m.set.GetOrCreateHistogram("overbook_telescope_schedule_refresh_seconds").Update(took.Seconds())
}

func (m *meters) write(w io.Writer) { m.set.WritePrometheus(w) }
