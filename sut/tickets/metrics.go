package tickets

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
	return &meters{set: set, retries: set.NewCounter("overbook_tickets_transaction_retries_total")}
}

// gauge shows what read gives at the moment of asking. The name has its labels
// in it, and must be new.
func (m *meters) gauge(name string, read func() float64) { m.set.NewGauge(name, read) }

// answered counts an answer to a client by operation and type: "ok", or the
// word at the end of the problem's type.
func (m *meters) answered(operation, kind string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_tickets_answers_total{operation=%q,type=%q}", operation, kind)).Inc()
}

// providerCall counts calls of the payment provider by what was asked for
// ("charge", "payments", "refund"); status 0 is no answer.
func (m *meters) providerCall(call string, status int, took time.Duration) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_tickets_provider_calls_total{call=%q,status=\"%d\"}", call, status)).Inc()
	m.set.GetOrCreateHistogram(fmt.Sprintf("overbook_tickets_provider_seconds{call=%q}", call)).Update(took.Seconds())
}

// refundAttempt counts attempts to give money back by what became of them:
// "done", "failed", or "parked" for the failure after which staff are needed.
func (m *meters) refundAttempt(result string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("overbook_tickets_refund_attempts_total{result=%q}", result)).Inc()
}

func (m *meters) write(w io.Writer) { m.set.WritePrometheus(w) }
