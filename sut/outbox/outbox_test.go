package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/internal/pgtest"
	"github.com/overbook/overbook/sut/outbox"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(c *pgtest.Cluster) { cluster = c }))
}

func newTable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), cluster.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec(t, pool, `create table events (event_id uuid primary key default gen_random_uuid(), subject uuid not null, seq int not null,
		type text not null, payload jsonb not null default '{}', created_at timestamptz not null, claimed_until timestamptz,
		delivered_at timestamptz, attempts int not null default 0, last_error text, parked_at timestamptz, unique (subject, seq))`)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const (
	first  = "00000000-0000-0000-0000-000000000001"
	second = "00000000-0000-0000-0000-000000000002"
)

func write(t *testing.T, pool *pgxpool.Pool, c *clock.Clock, subject string, events int) {
	t.Helper()
	for seq := 1; seq <= events; seq++ {
		exec(t, pool, "insert into events (subject, seq, type, created_at) values ($1, $2, $3, $4)", subject, seq, fmt.Sprintf("e%d", seq), c.Now())
	}
}

// pump makes passes until nothing is due.
func pump(t *testing.T, r *outbox.Relay) {
	t.Helper()
	for range 1000 {
		n, err := r.Pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	t.Fatal("the relay does not come to an end")
}

func relay(pool *pgxpool.Pool, c *clock.Clock, consume outbox.Consumer) *outbox.Relay {
	return outbox.New(outbox.NewPostgres(pool, "events", "subject"), consume, outbox.Config{
		Clock: c, Log: slog.New(slog.DiscardHandler), ParkAfter: 3, Claim: 10 * time.Second,
	})
}

func TestInOrderPerSubject(t *testing.T) {
	pool, c := newTable(t), clock.New(0)
	write(t, pool, c, first, 5)
	write(t, pool, c, second, 3)
	var mu sync.Mutex
	got := map[string][]int{}
	consume := func(_ context.Context, events []outbox.Event) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			got[e.Subject] = append(got[e.Subject], e.Seq)
		}
		return nil
	}
	var both sync.WaitGroup
	for range 2 { // two relays on one table leave each other's events alone
		r := relay(pool, c, consume)
		both.Go(func() {
			for range 50 {
				if _, err := r.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	if diff := cmp.Diff(map[string][]int{first: {1, 2, 3, 4, 5}, second: {1, 2, 3}}, got); diff != "" {
		t.Error(diff)
	}
	if n := count(t, pool, "select count(*) from events where delivered_at is null"); n != 0 {
		t.Errorf("%d events not noted as delivered", n)
	}
}

func TestUndeliveredIsOfferedAgainUnderTheSameID(t *testing.T) {
	pool, c := newTable(t), clock.New(0)
	write(t, pool, c, first, 1)
	var ids []string
	dying, cancel := context.WithCancel(t.Context())
	r := relay(pool, c, func(_ context.Context, events []outbox.Event) error {
		ids = append(ids, events[0].ID)
		if len(ids) == 1 {
			cancel() // consumed, but the relay dies before it can say so
		}
		return nil
	})
	if _, err := r.Pass(dying); err == nil {
		t.Error("the dying pass reported no error")
	}
	c.Set(time.Second)
	if n, _ := r.Pass(t.Context()); n != 0 {
		t.Error("a claimed event was offered while its claim lasted")
	}
	if age := r.OldestPending(); age < 900*time.Millisecond {
		t.Errorf("oldest pending %v, want about a second", age)
	}
	c.Set(11 * time.Second)
	pump(t, r)
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("offered as %v, want twice under one id", ids)
	}
	if r.OldestPending() != 0 {
		t.Errorf("oldest pending %v after all was delivered", r.OldestPending())
	}
}

func TestPoisonIsParkedAndHoldsUpNobody(t *testing.T) {
	pool, c := newTable(t), clock.New(0)
	write(t, pool, c, first, 3)
	write(t, pool, c, second, 2)
	var got []string
	r := relay(pool, c, func(_ context.Context, events []outbox.Event) error {
		for _, e := range events {
			if e.Subject == first && e.Seq == 2 {
				return errors.New("can't stomach it")
			}
		}
		for _, e := range events {
			got = append(got, e.Subject[len(e.Subject)-1:]+"/"+e.Type)
		}
		return nil
	})
	for i := range 6 {
		c.Set(time.Duration(i) * time.Minute)
		pump(t, r)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"1/e1", "1/e3", "2/e1", "2/e2"}, got); diff != "" {
		t.Error(diff)
	}
	if r.Parked() != 1 || count(t, pool, "select count(*) from events where parked_at is not null and attempts = 3 and last_error like '%stomach%'") != 1 {
		t.Errorf("parked %d, want the one, with its reason, after three attempts", r.Parked())
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	pool, c := newTable(t), clock.New(0)
	write(t, pool, c, first, 2)
	var mu sync.Mutex
	var got []string
	ctx, cancel := context.WithCancel(t.Context())
	r := relay(pool, c, func(_ context.Context, events []outbox.Event) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			got = append(got, e.Type)
		}
		if len(got) == 2 {
			cancel()
		}
		return nil
	})
	r.Run(ctx)
	if s := strings.Join(got, " "); s != "e1 e2" {
		t.Errorf("delivered %q", s)
	}
}
