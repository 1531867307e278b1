package calendar

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Who is at work under a key keeps the others waiting, for as long as a lock.
func TestInProgress(t *testing.T) {
	o := newOffice(t, func(c *Config) { c.LockTimeout = 200 * time.Millisecond })
	tx, err := o.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `insert into appointment_operations (principal, type, key, fingerprint, created_at) values ('member-1', 'book', 'b-1', 'x', '2026-03-01')`)
	if err != nil {
		t.Fatal(err)
	}
	a := wants(t, o.book("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00"), "409 in-progress")
	if a.header.Get("Retry-After") != "1" {
		t.Error("nobody is told when to come back")
	}
	wants(t, o.book("member-2", "b-1", 1, "03-10T09:00", "03-10T10:00"), "201") // another one's key
	if _, err := tx.Exec(t.Context(), `select from resources where resource_id = 1 for update`); err != nil {
		t.Fatal(err)
	}
	busy := wants(t, o.book("member-1", "b-2", 1, "03-11T09:00", "03-11T10:00"), "503 busy") // the resource's lock
	if busy.header.Get("Retry-After") != "1" {
		t.Error("nobody is told when to come back")
	}
	wants(t, o.book("member-1", "b-2", 2, "03-11T09:00", "03-11T10:00"), "201") // and the key is as new
}

// A rule that the commit itself breaks is the same refusal, of which nothing
// is stored.
func TestOverlapAtTheCommit(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	other := o.booked("member-1", "b-2", 1, "03-10T10:00", "03-10T11:00")
	before := o.sum()
	err := o.service.store.change(t.Context(), cause{actor: "member-1"}, func(ctx context.Context, c *change) (bool, error) {
		if _, err := c.tx.Exec(ctx, sqlDeferOverlap); err != nil {
			return false, err
		}
		_, err := c.tx.Exec(ctx, `update appointments set during = (select during from appointments where appointment_id = $1::text::uuid) where appointment_id = $2::text::uuid`, id, other)
		return true, err
	})
	if !overlaps(err) {
		t.Fatalf("the commit says %v", err)
	}
	req := httptest.NewRequest("PATCH", "/calendar/appointments/"+id, nil)
	if p := o.service.problemOf(req, err); p != timeTaken {
		t.Errorf("answered with %v", p)
	}
	if overlaps(&pgconn.PgError{Code: "23P01", ConstraintName: "another"}) || overlaps(errors.New("23P01")) {
		t.Error("only this rule is this rule")
	}
	if o.sum() != before {
		t.Error("something stayed")
	}
}
