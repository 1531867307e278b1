package telescope

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// operation stores a result that is so old.
func (b *backstage) operation(key string, age time.Duration) {
	b.t.Helper()
	b.exec(`insert into booking_operations (principal, type, key, fingerprint, status, content_type, body, created_at, completed_at)
		values ('member-1', 'book', $1, 'f', 201, 'application/json', '{}', $2, $2)`, key, b.cfg.Clock.Now().Add(-age))
}

func (b *backstage) kept() []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `select key from booking_operations order by key`)
	if err != nil {
		b.t.Fatal(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	return keys
}

func (b *backstage) purge() int {
	b.t.Helper()
	n, err := newPurger(b.pool, b.cfg).purge(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func TestPurgeTakesWhatIsOlderThanRetention(t *testing.T) {
	b := newBackstage(t)
	const day = 24 * time.Hour
	b.operation("fresh", 0)
	b.operation("a day", 25*time.Hour)
	b.operation("nearly", 7*day-time.Minute)
	b.operation("over", 7*day+time.Second)
	b.operation("long over", 300*day)
	if n := b.purge(); n != 2 {
		t.Errorf("%d rows purged, want 2", n)
	}
	if diff := cmp.Diff([]string{"a day", "fresh", "nearly"}, b.kept()); diff != "" {
		t.Error(diff)
	}
	b.cfg.Clock.Set(2 * time.Minute)
	b.purge()
	b.cfg.Clock.Set(0)
	b.purge()
	if diff := cmp.Diff([]string{"a day", "fresh"}, b.kept()); diff != "" {
		t.Error(diff)
	}
}

func TestPurgeGoesInBatches(t *testing.T) {
	b := newBackstage(t)
	b.exec(`insert into booking_operations (principal, type, key, fingerprint, status, content_type, body, created_at, completed_at)
		select 'member-1', 'book', n::text, 'f', 201, 'application/json', '{}', $1, $1 from generate_series(1, $2) n`,
		b.cfg.Clock.Now().Add(-200*time.Hour), 2*purgeBatch+10)
	b.operation("fresh", 0)
	n, err := newPurger(b.pool, b.cfg).batch(t.Context(), b.cfg.Clock.Now().Add(-b.cfg.Retention))
	if err != nil || n != purgeBatch {
		t.Fatalf("one batch took %d rows, want %d: %v", n, purgeBatch, err)
	}
	if n := b.purge(); n != purgeBatch+10 {
		t.Errorf("the rest was %d rows, want %d", n, purgeBatch+10)
	}
	if diff := cmp.Diff([]string{"fresh"}, b.kept()); diff != "" {
		t.Error(diff)
	}
}

// A row that somebody takes for a new operation is not waited for, and what
// takes its place stays.
func TestPurgeLeavesWhatIsBeingReplaced(t *testing.T) {
	b := newBackstage(t)
	b.operation("used again", 200*time.Hour)
	b.operation("old", 200*time.Hour)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	now := b.cfg.Clock.Now()
	for _, sql := range []string{
		`delete from booking_operations where key = 'used again' and created_at < $1`,
		`insert into booking_operations (principal, type, key, fingerprint, created_at) values ('member-1', 'book', 'used again', 'g', $1)`,
	} {
		if _, err := tx.Exec(t.Context(), sql, now); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.purge(); n != 1 {
		t.Errorf("%d rows purged beside the one that is taken, want 1", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.purge()
	if diff := cmp.Diff([]string{"used again"}, b.kept()); diff != "" {
		t.Error(diff)
	}
}

func TestPurgersShareTheWorkAndWakeWithTheClock(t *testing.T) {
	b := newBackstage(t)
	for i := range 20 {
		b.operation(fmt.Sprint(i), 0)
	}
	for range 2 {
		background(t, newPurger(b.pool, b.cfg).run)
	}
	b.cfg.Clock.Set(167 * time.Hour)
	if n := len(b.kept()); n != 20 {
		t.Errorf("%d rows left after less than seven days, want 20", n)
	}
	b.cfg.Clock.Set(169 * time.Hour)
	until(t, "the rows to go", func() bool { return len(b.kept()) == 0 })
}
