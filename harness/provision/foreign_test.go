package provision_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
)

func commands(t *testing.T, mark string) string {
	t.Helper()
	found, err := proc.Living(mark)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(found)
}

// On a cluster that was named by URL only our own databases are ever dropped:
// at the end, and those of runs that were killed at the next start.
func TestForeignClusterIsLeftAsItWas(t *testing.T) {
	server := up(t, provision.Options{Prefer: "local", Need: provision.Need{Postgres: true}}).Postgres
	for _, sql := range []string{`create database overbook_notes`, `create database "overbook_abcdefgh_library"`, `create database customers`} {
		if err := exec1(t.Context(), server.AdminURL(), sql); err != nil {
			t.Fatal(err)
		}
	}
	o := provision.Options{Need: provision.Need{Postgres: true}, PostgresURL: server.AdminURL()}
	first, second := up(t, o), up(t, o)
	if got := databases(t, server); strings.Contains(got, "overbook_abcdefgh_library") {
		t.Errorf("the leftover of a killed run is still there: %s", got)
	}
	if text := first.Postgres.Describe(); !strings.Contains(text, "given at 127.0.0.1:") || !strings.Contains(text, "fsync off") {
		t.Errorf("Describe = %q", text)
	}
	if first.Postgres.Done() != nil || first.Postgres.Died() != nil {
		t.Error("a server that is not ours is not watched")
	}
	checkPostgres(t, first.Postgres)
	checkPostgres(t, second.Postgres) // the same names do not collide
	third := up(t, o)                 // and its start leaves the living ones alone
	if got := databases(t, server); strings.Count(got, "_library") != 2 {
		t.Errorf("want the templates of two living runs: %s", got)
	}
	for _, env := range []*provision.Environment{first, second, third} {
		if err := env.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := databases(t, server); got != "customers overbook_notes postgres" {
		t.Errorf("after all: %s", got)
	}
}

func databases(t *testing.T, p *provision.Postgres) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var names string
	if err := conn.QueryRow(t.Context(), `select string_agg(datname, ' ' order by datname) from pg_database where not datistemplate`).Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}
