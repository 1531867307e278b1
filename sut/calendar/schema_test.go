package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusal is the SQLSTATE with which the database refuses a statement, and the
// constraint's name; "" when it does not. Nothing of the statement stays.
func (o *office) refusal(sql string, args ...any) string {
	o.t.Helper()
	tx, err := o.db.Begin(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(o.t.Context()) }()
	_, err = tx.Exec(o.t.Context(), sql, args...)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.TrimSpace(pg.Code + " " + pg.ConstraintName)
	}
	if err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return ""
}

// Every arrow of the automaton that there is, and every one that there is not.
func TestArrows(t *testing.T) {
	o := newOffice(t)
	states := []string{"BOOKED", "CREATED", "REJECTED", "CANCELLED"}
	allowed := []string{"BOOKED CREATED", "BOOKED REJECTED", "BOOKED CANCELLED", "CREATED REJECTED", "CREATED CANCELLED"}
	const ended = `case when $1::text in ('REJECTED', 'CANCELLED') then '2026-03-01'::timestamptz end`
	for i, from := range states {
		o.exec(`insert into appointments (appointment_id, resource_id, member, during, time_zone, state, event_id, created_at, ended_at)
			values (gen_random_uuid(), 1, 'member-1', tstzrange('2026-04-01'::timestamptz + $2 * interval '1 hour', '2026-04-01 00:05'::timestamptz + $2 * interval '1 hour'),
			'Etc/UTC', $1, 'event-' || $1, '2026-03-01', `+ended+`)`, from, i)
		for _, to := range states {
			got := o.refusal(`update appointments set state = $1, ended_at = `+ended+` where event_id = 'event-' || $2`, to, from)
			if want := from == to || slices.Contains(allowed, from+" "+to); (got == "") != want {
				t.Errorf("%s to %s: %q", from, to, got)
			}
		}
	}
	for _, set := range []string{
		"resource_id = 2", "member = 'member-2'", "event_id = 'event-9'", "created_at = '2026-03-02'", "series_id = gen_random_uuid(), series_no = 0",
		"appointment_id = gen_random_uuid()",
	} {
		if got := o.refusal(`update appointments set ` + set + ` where event_id = 'event-BOOKED'`); got != "23001" {
			t.Errorf("%s: %q", set, got)
		}
	}
	for state, want := range map[string]string{"BOOKED": "", "CREATED": "", "REJECTED": "23001", "CANCELLED": "23001"} {
		if got := o.refusal(`update appointments set during = '[2026-05-01,2026-05-02)' where event_id = 'event-' || $1`, state); got != want {
			t.Errorf("moving one that is %s: %q", state, got)
		}
	}
}

// What the database refuses, whoever asks.
func TestSchemaGuards(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	c := o.conflict(id, "overlap", "x-1", "2026-03-01 08:00+00")
	insert := func(during, state string) string {
		return fmt.Sprintf(`insert into appointments (appointment_id, resource_id, member, during, time_zone, state, event_id, created_at, ended_at)
			values (gen_random_uuid(), 1, 'member-9', '%s', 'Etc/UTC', '%s', gen_random_uuid()::text, '2026-03-01', case when '%s' = 'CANCELLED' then '2026-03-01'::timestamptz end)`, during, state, state)
	}
	done := `update outbox set done_at = '2026-03-01', result = 'created'`
	resolve := `update conflicts set resolved_at = '2026-03-01', resolution = 'kept', resolved_by = 'staff-1'`
	for _, c := range []struct{ sql, want string }{
		{insert(`[2026-03-10 08:59+00,2026-03-10 10:00+00)`, "BOOKED"), "23P01 appointments_no_overlap"},
		{insert(`[2026-03-10 08:59+00,2026-03-10 10:00+00)`, "CREATED"), "23P01 appointments_no_overlap"},
		{insert(`[2026-03-10 07:00+00,2026-03-10 10:00+00)`, "BOOKED"), "23P01 appointments_no_overlap"},
		{insert(`[2026-03-10 08:10+00,2026-03-10 08:20+00)`, "BOOKED"), "23P01 appointments_no_overlap"},
		{insert(`[2026-03-10 08:10+00,2026-03-10 08:20+00)`, "CANCELLED"), ""},
		{insert(`[2026-03-10 09:00+00,2026-03-10 10:00+00)`, "BOOKED"), ""},
		{insert(`[2026-03-10 07:00+00,2026-03-10 08:00+00)`, "BOOKED"), ""},
		{insert(`[2026-03-11 07:00+00,2026-03-11 08:00+00]`, "BOOKED"), "23514 appointments_during_check"},
		{insert(`empty`, "BOOKED"), "23514 appointments_during_check"},
		{insert(`[2026-03-11 07:00+00,)`, "BOOKED"), ""},
		{"delete from appointments", "23001"},
		{"update appointment_audit set reason = 'x'", "23001"},
		{"delete from appointment_audit", "23001"},
		{"truncate appointment_audit", "23001"},
		{"delete from outbox", "23001"},
		{"update outbox set payload = '{}'", "23001"},
		{"update outbox set seq = 2", "23001"},
		{"update outbox set done_at = '2026-03-01'", "23514 outbox_check"},
		{done, ""},
		{"insert into outbox (appointment_id, seq, type, payload, created_at) select appointment_id, seq, type, payload, created_at from outbox", "23505 outbox_appointment_id_seq_key"},
		{"delete from conflicts", "23001"},
		{"update conflicts set external_event = 'x-2'", "23001"},
		{"update conflicts set resolved_at = '2026-03-01'", "23514 conflicts_check"},
		{resolve, ""},
		{"insert into conflicts select gen_random_uuid(), resource_id, appointment_id, kind, external_event, found_at, found_by from conflicts", "23505 conflicts_once"},
		{"update appointment_operations set status = 200", "23001"},
		{"update resources set state = 'ACTIVATING', activation = gen_random_uuid(), activating_until = '2026-03-01' where resource_id = 3", ""},
		{"update resources set state = 'ACTIVATING', activation = gen_random_uuid(), activating_until = '2026-03-01' where resource_id > 1", "23505 resources_one_activation"},
		{"update resources set state = 'ACTIVE' where resource_id = 3", "23514 resources_check"},
		{"update resources set state = 'ACTIVATING' where resource_id = 3", "23514 resources_check1"},
	} {
		if got := o.refusal(c.sql); got != c.want {
			t.Errorf("%s: %q, want %q", c.sql, got, c.want)
		}
	}
	o.exec(done)
	o.exec(resolve)
	for _, sql := range []string{"update outbox set result = 'deleted'", "update conflicts set resolution = 'ended'"} {
		if got := o.refusal(sql); got != "23001" {
			t.Errorf("%s: %q, and that was over", sql, got)
		}
	}
	if got := o.resolved(c); !strings.HasPrefix(got, "kept") {
		t.Error(got)
	}
}
