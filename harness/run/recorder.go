package run

import (
	"fmt"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// recorder is the notebook of one run; safe for concurrent use. It grows with
// the number of operations, which the scenario's plan bounds.
type recorder struct {
	clock clock.Clock

	mu       sync.Mutex
	history  harness.History
	activity []harness.ActivitySample
	witness  []harness.Witness
	measured map[string]float64
	trouble  []harness.Trouble
	ops      int
}

func newRecorder(c clock.Clock) *recorder {
	return &recorder{clock: c, measured: map[string]float64{}}
}

// opID gives the next operation its id.
func (r *recorder) opID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops++
	return fmt.Sprintf("op-%d", r.ops)
}

func (r *recorder) operations(ops ...harness.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Operations = append(r.history.Operations, ops...)
}

// operationIDs gives the ids of all operations so far.
func (r *recorder) operationIDs() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]bool, len(r.history.Operations))
	for _, op := range r.history.Operations {
		ids[op.ID] = true
	}
	return ids
}

func (r *recorder) burst(b harness.BurstReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Bursts = append(r.history.Bursts, b)
}

func (r *recorder) load(l harness.OpenLoopReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Loads = append(r.history.Loads, l)
}

func (r *recorder) event(e harness.Event) {
	if e.At == 0 {
		e.At = r.clock.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Events = append(r.history.Events, e)
}

// phase records how long a phase took.
func (r *recorder) phase(name string, from time.Duration) float64 {
	now := r.clock.Now()
	r.event(harness.Event{At: from, Until: now, Kind: harness.EventPhase, Subject: name})
	return float64(now-from) / float64(time.Millisecond)
}

func (r *recorder) measure(name string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured[name] = value
}

func (r *recorder) witnessed(w harness.Witness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.witness = append(r.witness, w)
}

func (r *recorder) sample(s harness.ActivitySample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.activity = append(r.activity, s)
}

// troubled notes a reason why the run can't be judged as a pass.
func (r *recorder) troubled(reason harness.Reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = append(r.trouble, harness.Trouble{Reason: reason, Text: fmt.Sprintf(format, args...)})
}

// record hands everything over; the recorder is not used afterwards.
func (r *recorder) record(plan harness.Plan) harness.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return harness.Record{
		Plan: plan, History: r.history, Activity: r.activity, Witness: r.witness,
		Measured: r.measured, Trouble: r.trouble, Rows: map[string]harness.Rows{},
	}
}
