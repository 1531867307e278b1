package provision_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/overbook/overbook/harness/provision"
)

// up brings the parts up, and takes them down at the end. Where they are not
// installed the test fails with what to do, as a skip would hide everything.
func up(t *testing.T, o provision.Options) *provision.Environment {
	t.Helper()
	env, err := provision.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return env
}

func checkPostgres(t *testing.T, p *provision.Postgres) {
	t.Helper()
	ctx := t.Context()
	migrated := 0
	migrate := func(ctx context.Context, url string) error {
		migrated++
		return exec1(ctx, url, `create table seats (seat text primary key)`)
	}
	for range 2 {
		if err := p.Template(ctx, "library", migrate); err != nil {
			t.Fatal(err)
		}
	}
	if migrated != 1 {
		t.Errorf("migrated %d times, want once", migrated)
	}
	one, err := p.Clone(ctx, "library", "one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.Clone(ctx, "library", "two")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec1(ctx, one.URL, `insert into seats values ('A-001')`); err != nil {
		t.Fatal(err)
	}
	if n := count(t, two.URL); n != 0 {
		t.Errorf("a row of one database is in another: %d", n)
	}
	// A session that is still there does not keep a database from being dropped.
	conn, err := pgx.Connect(ctx, one.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for range 2 {
		if err := one.Drop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if conn, err := pgx.Connect(ctx, one.URL); err == nil {
		conn.Close(ctx)
		t.Error("the database is still there")
	}
	if _, err := p.Clone(ctx, "nothing", "three"); err == nil || !strings.Contains(err.Error(), `clone database three from "nothing"`) {
		t.Errorf("clone of a template that is not there: %v", err)
	}
	if err := p.Template(ctx, "broken", func(context.Context, string) error { return errors.New("bad sql") }); err == nil || !strings.Contains(err.Error(), "bad sql") {
		t.Errorf("a migration that failed: %v", err)
	}
}

func exec1(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func count(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), `select count(*) from seats`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func checkRedis(t *testing.T, r *provision.Redis) {
	t.Helper()
	options, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Set(t.Context(), "seat", "A-001", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := client.Get(t.Context(), "seat").Val(); got != "A-001" {
		t.Errorf("Redis gave %q", got)
	}
}

func post(t *testing.T, url, body string, want int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("POST %s: %s, want %d: %s", url, resp.Status, want, text)
	}
}
