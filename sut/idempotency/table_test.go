package idempotency_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/idempotency"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(c *pgtest.Cluster) { cluster = c }))
}

var (
	noon   = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	policy = idempotency.Policy{RetryWindow: time.Hour, Retention: 3 * time.Hour}
	scope  = idempotency.Scope{Principal: "p", Type: "t", Key: "k"}
	said   = idempotency.Answer{Status: 201, ContentType: "application/json", Body: []byte("{\"a\":\x00 1}\n")}
)

// newTable gives a pool with the table "work", which has a column of its owner's.
func newTable(t *testing.T) (*pgxpool.Pool, *idempotency.Table) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), cluster.Database(t)+"&lock_timeout=200&pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `create table work (principal text, type text, key text, fingerprint text, status int, content_type text, body bytea,
overbook_op text, created_at timestamptz, completed_at timestamptz, note text, primary key (principal, type, key))`); err != nil {
		t.Fatal(err)
	}
	return pool, idempotency.NewTable("work", policy, "note")
}

// do does the operation, if it is to be done, and says what the key said.
func do(t *testing.T, pool *pgxpool.Pool, table *idempotency.Table, s idempotency.Scope, fingerprint string, now time.Time) (idempotency.Verdict, idempotency.Stored, error) {
	t.Helper()
	var verdict idempotency.Verdict
	var stored idempotency.Stored
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		if verdict, stored, err = table.Take(t.Context(), tx, s, fingerprint, "op", now); err != nil || verdict != idempotency.Taken {
			return err
		}
		return table.Complete(t.Context(), tx, s, said, now, "noted")
	})
	return verdict, stored, err
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "select count(*) from work where status = 201 and note = 'noted' and overbook_op = 'op'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestVerdicts(t *testing.T) {
	pool, table := newTable(t)
	stored := idempotency.Stored{Answer: said, Fingerprint: "f", CreatedAt: noon, CompletedAt: noon}
	steps := []struct {
		name        string
		scope       idempotency.Scope
		fingerprint string
		after       time.Duration
		want        idempotency.Verdict
		rows        int
	}{
		{"new", scope, "f", 0, idempotency.Taken, 1},
		{"at once again", scope, "f", 0, idempotency.Replay, 1},
		{"another request", scope, "g", 0, idempotency.Reused, 1},
		{"somebody else's", idempotency.Scope{Principal: "q", Type: "t", Key: "k"}, "f", 0, idempotency.Taken, 2},
		{"another type", idempotency.Scope{Principal: "p", Type: "u", Key: "k"}, "f", 0, idempotency.Taken, 3},
		{"another key", idempotency.Scope{Principal: "p", Type: "t", Key: "l"}, "f", 0, idempotency.Taken, 4},
		{"just in the window", scope, "f", time.Hour - 1, idempotency.Replay, 4},
		{"the window is over", scope, "f", time.Hour, idempotency.WindowOver, 4},
		{"another request then", scope, "g", time.Hour, idempotency.Reused, 4},
		{"just remembered", scope, "f", 3*time.Hour - time.Microsecond, idempotency.WindowOver, 4},
		{"a clock that was turned back", scope, "f", -time.Hour, idempotency.Replay, 4},
		{"forgotten", scope, "g", 3 * time.Hour, idempotency.Taken, 4},
		{"the new one counts", scope, "f", 3 * time.Hour, idempotency.Reused, 4},
	}
	for _, s := range steps {
		verdict, got, err := do(t, pool, table, s.scope, s.fingerprint, noon.Add(s.after))
		if err != nil || verdict != s.want {
			t.Fatalf("%s: verdict %d, %v, want %d", s.name, verdict, err, s.want)
		}
		if verdict == idempotency.Replay {
			got.CreatedAt, got.CompletedAt = got.CreatedAt.UTC(), got.CompletedAt.UTC()
			if diff := cmp.Diff(stored, got); diff != "" {
				t.Errorf("%s: %s", s.name, diff)
			}
		}
		if n := count(t, pool); n != s.rows {
			t.Errorf("%s: %d rows, want %d", s.name, n, s.rows)
		}
	}
}

func TestLook(t *testing.T) {
	pool, table := newTable(t)
	look := func(after time.Duration) bool {
		t.Helper()
		got, known, err := table.Look(t.Context(), pool, scope, noon.Add(after))
		if err != nil || (known && string(got.Body) != string(said.Body)) {
			t.Fatalf("Look = %+v, %v", got, err)
		}
		return known
	}
	if look(0) {
		t.Error("known before it was done")
	}
	if _, _, err := do(t, pool, table, scope, "f", noon); err != nil {
		t.Fatal(err)
	}
	if !look(2*time.Hour) || look(3*time.Hour) {
		t.Error("known for as long as it is remembered, and no longer")
	}
}

// TestCopiesAtOnce: of many, one does it, whether the key is new or was
// forgotten; the others wait and get its answer.
func TestCopiesAtOnce(t *testing.T) {
	pool, table := newTable(t)
	for round, now := range []time.Time{noon, noon.Add(4 * time.Hour)} {
		verdicts := make([]idempotency.Verdict, 15)
		var all sync.WaitGroup
		for i := range verdicts {
			all.Go(func() {
				var err error
				if verdicts[i], _, err = do(t, pool, table, scope, "f", now); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		did := 0
		for _, v := range verdicts {
			if v == idempotency.Taken {
				did++
			} else if v != idempotency.Replay {
				t.Errorf("verdict %d", v)
			}
		}
		if did != 1 || count(t, pool) != 1 {
			t.Errorf("round %d: done %d times", round, did)
		}
	}
}

func TestInProgress(t *testing.T) {
	pool, table := newTable(t)
	first, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if verdict, _, err := table.Take(t.Context(), first, scope, "f", "op", noon); err != nil || verdict != idempotency.Taken {
		t.Fatalf("verdict %d, %v", verdict, err)
	}
	if _, _, err := do(t, pool, table, scope, "f", noon); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("while the first is at work: %v", err)
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if verdict, _, err := do(t, pool, table, scope, "f", noon); err != nil || verdict != idempotency.Taken {
		t.Errorf("after the first gave up: verdict %d, %v", verdict, err)
	}
	if _, err := pool.Exec(t.Context(), "update work set status = null, completed_at = null"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := do(t, pool, table, scope, "f", noon); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("committed without its answer: %v", err)
	}
}

func TestCompleteNeedsTheKey(t *testing.T) {
	pool, table := newTable(t)
	if err := table.Complete(t.Context(), pool, scope, said, noon, "noted"); err == nil {
		t.Error("an answer was stored under a key that nobody took")
	}
	if _, _, err := do(t, pool, table, scope, "f", noon); err != nil {
		t.Fatal(err)
	}
	if err := table.Complete(t.Context(), pool, scope, said, noon, "noted"); err == nil {
		t.Error("an answer was stored a second time")
	}
	broken, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := table.Take(broken, pool, scope, "f", "op", noon); err == nil || errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("a database that can't be asked: %v", err)
	}
}
