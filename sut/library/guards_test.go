package library

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestTheDatabaseRefuses tries by hand what the server never does.
func TestTheDatabaseRefuses(t *testing.T) {
	w := newWorld(t, "A-1")
	r := w.start()
	r.confirm(student(1), r.prepare(student(1), "A-1"))
	r.confirm(student(2), r.prepare(student(2), "A-1"))
	r.prepare(student(3), "A-1")
	r.call("POST", "/library/waits", student(4), `{"seats":["A-1"]}`)
	w.eventually("the wait waits", func() bool { return w.states()[stateWaiting] == 1 })
	w.wellRecorded()
	r.end()

	const terminalRow = "where state = 'FAILED_RACE'"
	for name, sql := range map[string]string{
		"another state for a terminal intent":   "update library_reservation_intents set state = 'SUCCEEDED', charge_id = 'x', seq = seq + 1 " + terminalRow,
		"any change of a terminal intent":       "update library_reservation_intents set failure = 'x' " + terminalRow,
		"no way back from terminal":             "update library_reservation_intents set state = 'REQUESTED', terminal_at = null, seq = seq + 1 " + terminalRow,
		"deleting an intent":                    "delete from library_reservation_intents",
		"skipping the claim":                    "update library_reservation_intents set state = 'FAILED_UPSTREAM', terminal_at = created_at, seq = seq + 1 where state = 'WAITING_FOR_SEAT'",
		"a wait closed as lost":                 "update library_reservation_intents set state = 'FAILED_RACE', terminal_at = created_at, seq = seq + 1 where state = 'WAITING_FOR_SEAT'",
		"a transition without a sequence":       "update library_reservation_intents set state = 'RESERVING', seat = 'A-1', locked_by = 'x', locked_until = created_at where state = 'WAITING_FOR_SEAT'",
		"a sequence without a transition":       "update library_reservation_intents set seq = seq + 1 where state = 'WAITING_FOR_SEAT'",
		"a fence that goes back":                "update library_reservation_intents set fence = -1 where state = 'WAITING_FOR_SEAT'",
		"RESERVING without a lease":             "update library_reservation_intents set state = 'RESERVING', seat = 'A-1', seq = seq + 1 where state = 'WAITING_FOR_SEAT'",
		"an intent born terminal":               "insert into library_reservation_intents select gen_random_uuid(), gen_random_uuid(), 'intent', 'immediate', 'x', 'A-1', null, 'FAILED_RACE', 1, 0, 0, null, null, 0, null, null, null, '', '', now(), now(), now()",
		"an action used again":                  "update library_actions set confirmed_at = now() where state = 'CONFIRMED'",
		"a second intent for an action":         "insert into library_reservation_intents select gen_random_uuid(), action_id, 'intent', 'immediate', student, 'A-1', null, 'REQUESTED', 1, 0, 0, null, null, 0, null, null, null, '', '', now(), now(), null from library_actions where state = 'CONFIRMED' limit 1",
		"changing the audit":                    "update action_audit set event = 'PREPARED'",
		"deleting the audit":                    "delete from action_audit",
		"truncating the audit":                  "truncate action_audit",
		"changing a transition":                 "update library_transitions set reason = 'x'",
		"deleting a transition":                 "delete from library_transitions",
		"truncating the transitions":            "truncate library_transitions cascade",
		"a transition twice":                    "insert into library_transitions (intent_id, seq, from_state, to_state, replica, reason, at) select intent_id, seq, from_state, to_state, replica, reason, at from library_transitions limit 1",
		"an event that says something else now": "update library_reservation_outbox set payload = '{}'",
		"deleting an event":                     "delete from library_reservation_outbox",
	} {
		tag, err := w.db.Exec(context.Background(), sql)
		if err == nil {
			t.Errorf("%s was allowed (%s)", name, tag)
		} else if code, _ := sqlCode(err); !strings.HasPrefix(code, "23") {
			t.Errorf("%s: %v, want it refused by a constraint or guard", name, err)
		}
	}
	if _, err := w.db.Exec(context.Background(), "update library_reservation_outbox set attempts = attempts + 1"); err != nil {
		t.Errorf("delivery can't be noted: %v", err)
	}
}

// TestOneReservingPerSeat: the index that backs up the seat's row lock.
func TestOneReservingPerSeat(t *testing.T) {
	w := newWorld(t, "A-1")
	hold := make(chan struct{})
	w.pyxis.before = func(post) { <-hold }
	defer close(hold)
	r := w.start(func(c *Config) { c.WakeByTick = true })
	a, b := r.prepare(student(1), "A-1"), r.prepare(student(2), "A-1")
	go r.confirm(student(1), a)
	go r.confirm(student(2), b)
	w.eventually("one upstream, one queued", func() bool {
		s := w.states()
		return s[stateReserving] == 1 && s[stateRequested] == 1
	})
	_, err := w.db.Exec(context.Background(), `update library_reservation_intents
		set state = 'RESERVING', seq = seq + 1, locked_by = 'x', locked_until = $1 where state = 'REQUESTED'`, time.Now().Add(time.Hour))
	if err == nil || !strings.Contains(err.Error(), "library_one_reserving_per_seat") {
		t.Errorf("a second RESERVING on the seat: %v, want it refused by the index", err)
	}
}
