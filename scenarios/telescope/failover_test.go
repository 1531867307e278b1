package telescope

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

// failedOver is a record of four bookings, the last acknowledged after the
// promotion; those named are missing on the promoted standby.
func failedOver(missing ...string) harness.Record {
	rec := emptyRecord()
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	gone := map[string]bool{}
	for _, id := range missing {
		gone[id] = true
		rec.History.Events = append(rec.History.Events, harness.Event{Kind: harness.EventNote, Subject: lostSubject, Attrs: map[string]string{"booking": id, "on_old": "true"}})
	}
	var history []harness.Row
	for i, id := range []string{"b-1", "b-2", "b-3", "b-4"} {
		op := bookedOp("op-"+strconv.Itoa(i+1), kindBook, member(i), int64(i+1), id)
		op.Sent, op.Answered = at(10*i+1), at(10*i+9)
		rec.History.Operations = append(rec.History.Operations, op)
		if !gone[id] {
			history = append(history, harness.Row{"event": "BOOKED", "booking_id": id})
		}
	}
	tableOf(rec, "table:audit_history", history...)
	rec.History.Events = append(rec.History.Events, harness.Event{Kind: harness.EventNote, Subject: failoverSubject, Attrs: map[string]string{
		"killed_ns": strconv.Itoa(int(at(30))), "promoted_ns": strconv.Itoa(int(at(31))),
	}})
	rec.Measured[measuredLost] = float64(len(missing))
	return rec
}

func TestAcknowledgedBookingsSurvive(t *testing.T) {
	wantStatus(t, noneLost(), failedOver(), harness.Pass, "4 acknowledged")
	wantStatus(t, noneLost(), failedOver("b-3"), harness.Failed, "1 of 4")
	wantStatus(t, noneLost(), emptyRecord(), harness.Unknown, "")

	looked := failedOver()
	op := bookedOp("op-9", kindLookup, "member-1", 1, "b-9")
	op.Status, op.Output = 200, `{"status":201,"body":`+op.Output+`}`
	looked.History.Operations = append(looked.History.Operations, op)
	wantStatus(t, noneLost(), looked, harness.Failed, "looked up, and not on the promoted standby")
}

func TestLossIsCountedAndExplained(t *testing.T) {
	wantStatus(t, lossCounted(), failedOver(), harness.Pass, "0 of 4")
	wantStatus(t, lossCounted(), failedOver("b-2", "b-3"), harness.Pass, "2 of 4 acknowledged bookings were lost, as asynchronous replication allows")
	wantStatus(t, lossCounted(), failedOver("b-2"), harness.Failed, "although the later op-3 is there")
	wantStatus(t, lossCounted(), failedOver("b-4"), harness.Failed, "after the promotion")

	hidden := failedOver("b-3")
	hidden.Measured[measuredLost] = 0
	wantStatus(t, lossCounted(), hidden, harness.Failed, "0 were counted as lost, 1 are")

	lied := failedOver("b-3")
	lied.History.Events[0].Attrs["on_old"] = "false"
	wantStatus(t, lossCounted(), lied, harness.Failed, "never had it")

	uncounted := failedOver("b-3")
	delete(uncounted.Measured, measuredLost)
	wantStatus(t, lossCounted(), uncounted, harness.Unknown, "not counted")
}

func TestFenced(t *testing.T) {
	rec := emptyRecord()
	wantStatus(t, fenced(), rec, harness.Unknown, "nobody tried")
	for said, want := range map[string]harness.Status{
		"ERROR: cannot execute UPDATE in a read-only transaction (SQLSTATE 25006)": harness.Pass,
		"it was done":        harness.Failed,
		"connection refused": harness.Unknown,
	} {
		rec.History.Events = []harness.Event{{Kind: harness.EventNote, Subject: fencedSubject, Attrs: map[string]string{"said": said}}}
		wantStatus(t, fenced(), rec, want, "")
	}
}

// Every client has a slot of its own for each month, so that no quota and no
// rival is in its way, and the kill comes in the middle.
func TestFailoverPlan(t *testing.T) {
	for seed := range harness.Seed(50) {
		plan, err := failover().MakePlan(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		var c failoverChoice
		if err := json.Unmarshal(plan.Choices, &c); err != nil {
			t.Fatal(err)
		}
		if len(c.Slots) != 320 || c.Break < 40 || c.Break >= 80 || c.Kill < 1 || c.Break+c.Kill > 100 {
			t.Fatalf("seed %s: %d slots, break %d, kill %d", seed, len(c.Slots), c.Break, c.Kill)
		}
		seen := map[[2]int]bool{}
		for i, s := range c.Slots {
			month := [2]int{i / 40, s.Month}
			if seen[month] || s.HalfHours >= 48*28 {
				t.Fatalf("seed %s: client %d has two slots in month %d, or slot %+v is outside", seed, i/40, s.Month, s)
			}
			seen[month] = true
		}
	}
}
