package provision_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
)

// upPair brings up a pair with a database night and a table of numbers in it.
func upPair(t *testing.T, o provision.Options, synchronous bool) *provision.Pair {
	t.Helper()
	p, err := provision.UpPair(t.Context(), o, synchronous)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	must(t, p.Database(t.Context(), "night"))
	must(t, exec1(t.Context(), primaryURL(t, p), `create table seats (n int primary key)`))
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func primaryURL(t *testing.T, p *provision.Pair) string {
	t.Helper()
	url, err := p.PrimaryURL("night")
	must(t, err)
	return url
}

func standbyURL(t *testing.T, p *provision.Pair) string {
	t.Helper()
	url, err := p.StandbyURL("night")
	must(t, err)
	return url
}

// ask gives one value as text.
func ask(t *testing.T, url, sql string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.Background())
	must(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// wantReadOnly checks that the server takes no writes.
func wantReadOnly(t *testing.T, url string) {
	t.Helper()
	err := exec1(t.Context(), url, `insert into seats values (-1)`)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "25006" {
		t.Errorf("a write: %v; want SQLSTATE 25006", err)
	}
}

// await waits for a condition that is sure to come.
func await(t *testing.T, what string, holds func() (bool, string, error)) {
	t.Helper()
	must(t, clock.Await(t.Context(), what, 20*time.Second, 2*time.Millisecond, func(context.Context) (bool, string, error) { return holds() }))
}

// freeze stops the primary's sender, so that nothing reaches the standby any
// more. Nothing but its death ends that.
func freeze(t *testing.T, mark string) {
	t.Helper()
	found, err := proc.Living(mark)
	must(t, err)
	i := slices.IndexFunc(found, func(l proc.Leftover) bool { return strings.Contains(l.Command, "walsender") })
	if i < 0 {
		t.Fatalf("no walsender in %v", found)
	}
	must(t, syscall.Kill(found[i].PID, syscall.SIGSTOP))
	await(t, "the sender to stop", func() (bool, string, error) {
		now, err := proc.Living(mark)
		return slices.ContainsFunc(now, func(l proc.Leftover) bool { return l.PID == found[i].PID && l.State == "T" }), fmt.Sprint(now), err
	})
}

func failOver(t *testing.T, p *provision.Pair) {
	t.Helper()
	must(t, p.KillPrimary(t.Context()))
	must(t, p.Promote(t.Context()))
}

func TestPairIsDurableAndReplicates(t *testing.T) {
	p := upPair(t, provision.Options{}, true)
	if text := p.Describe(); !strings.HasPrefix(text, "two PostgreSQL ") || !strings.Contains(text, ", durability on, synchronous replication") {
		t.Errorf("Describe = %q", text)
	}
	const settings = `select concat_ws(' ', current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'), pg_is_in_recovery(), '[' || current_setting('synchronous_standby_names') || ']')`
	if got := ask(t, primaryURL(t, p), settings); got != "on on on f [*]" {
		t.Errorf("the primary: %s", got)
	}
	if got := ask(t, p.URL(), `select string_agg(state || ' ' || sync_state, ', ') from pg_stat_replication`); got != "streaming sync" {
		t.Errorf("the primary's standbys: %s", got)
	}
	await(t, "the standby to have the database", func() (bool, string, error) {
		err := exec1(t.Context(), standbyURL(t, p), `table seats`)
		return err == nil, fmt.Sprint(err), nil
	})
	if got := ask(t, standbyURL(t, p), settings); got != "on on on t []" {
		t.Errorf("the standby: %s", got)
	}
	wantReadOnly(t, standbyURL(t, p))
	for _, name := range []string{"", strings.Repeat("n", 64)} {
		_, err1 := p.PrimaryURL(name)
		_, err2 := p.StandbyURL(name)
		if err3 := p.Database(t.Context(), name); err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("a database called %q: %v, %v, %v", name, err1, err2, err3)
		}
	}
}

// With synchronous replication no commit that was answered is lost, whatever
// is under way when the primary dies.
func TestSynchronousPairLosesNothingAcknowledged(t *testing.T) {
	p := upPair(t, provision.Options{}, true)
	const writers, enough = 4, 50
	var writing sync.WaitGroup
	var acknowledged [writers][]int
	var total atomic.Int32
	half := make(chan struct{})
	for w := range writers {
		conn, err := pgx.Connect(t.Context(), primaryURL(t, p))
		must(t, err)
		defer conn.Close(context.Background())
		writing.Go(func() {
			for n := w; ; n += writers {
				if _, err := conn.Exec(t.Context(), `insert into seats values ($1)`, n); err != nil {
					return // the primary is dead
				}
				acknowledged[w] = append(acknowledged[w], n)
				if total.Add(1) == enough/2 {
					close(half)
				}
			}
		})
	}
	<-half
	failOver(t, p)
	writing.Wait()
	if p.URL() != strings.Replace(standbyURL(t, p), "/night", "/postgres", 1) {
		t.Errorf("URL = %s after the promotion", p.URL())
	}
	acks := slices.Concat(acknowledged[:]...)
	present := numbers(t, standbyURL(t, p))
	for _, n := range acks {
		if !present[n] {
			t.Errorf("row %d was acknowledged and is lost", n)
		}
	}
	if len(acks) < enough/2 || len(present) > len(acks)+writers {
		t.Errorf("%d acknowledged, %d present: want at least %d, and at most one more per writer", len(acks), len(present), enough/2)
	}
	// The promoted one has no standby, and its commits wait for none.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, exec1(ctx, standbyURL(t, p), `insert into seats values (-1)`))
	must(t, p.Database(ctx, "next"))
	if err := p.Died(); err != nil {
		t.Errorf("KillPrimary is no accident: %v", err)
	}
	t.Logf("%d commits acknowledged, %d rows present", len(acks), len(present))
}

func numbers(t *testing.T, url string) map[int]bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `select n from seats`)
	must(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[int])
	must(t, err)
	set := map[int]bool{}
	for _, n := range list {
		set[n] = true
	}
	return set
}

// The proof that a synchronous COMMIT waits: with a standby that receives
// nothing it is not answered. The row is then on the old primary alone.
func TestSynchronousCommitWaitsForTheStandby(t *testing.T) {
	const mark = "OVERBOOK_RUN=waits"
	p := upPair(t, provision.Options{MarkEnv: mark}, true)
	freeze(t, mark)
	answered := make(chan error, 1)
	go func() { answered <- exec1(context.Background(), primaryURL(t, p), `insert into seats values (1)`) }()
	await(t, "the commit to wait for the standby", func() (bool, string, error) {
		n := ask(t, p.URL(), `select count(*)::text from pg_stat_activity where wait_event = 'SyncRep'`)
		return n == "1", n, nil
	})
	failOver(t, p)
	if err := <-answered; err == nil {
		t.Error("the commit was answered although the standby had nothing")
	}
	if present := numbers(t, standbyURL(t, p)); len(present) != 0 {
		t.Errorf("the promoted one has %v", present)
	}
	must(t, p.StartOldFenced(t.Context()))
	if present := numbers(t, primaryURL(t, p)); !present[1] {
		t.Errorf("the old primary has %v, want the row that it had committed", present)
	}
	wantReadOnly(t, primaryURL(t, p))
}

// Without it acknowledged commits can be lost. The old primary, which has
// them, takes no writes.
func TestAsynchronousPairCanLoseAndTheOldPrimaryIsFenced(t *testing.T) {
	const mark = "OVERBOOK_RUN=loses"
	work := filepath.Join(t.TempDir(), "work")
	p := upPair(t, provision.Options{MarkEnv: mark, Durable: true, WorkDir: work}, false)
	if text := p.Describe(); !strings.HasSuffix(text, ", durability on, asynchronous replication") {
		t.Errorf("Describe = %q", text)
	}
	for _, url := range []string{p.URL(), standbyURL(t, p)} {
		if dir := ask(t, strings.Replace(url, "/night", "/postgres", 1), `show data_directory`); strings.HasPrefix(dir, "/dev/shm") {
			t.Errorf("durable commits in memory: %s", dir)
		}
	}
	if err := p.StartOldFenced(t.Context()); err == nil || !strings.Contains(err.Error(), "it has not been killed") {
		t.Errorf("started a primary that runs: %v", err)
	}
	await(t, "the standby to have the table", func() (bool, string, error) {
		err := exec1(t.Context(), standbyURL(t, p), `table seats`)
		return err == nil, fmt.Sprint(err), nil
	})
	freeze(t, mark)
	must(t, exec1(t.Context(), primaryURL(t, p), `insert into seats values (1)`))
	must(t, p.KillPrimary(t.Context()))
	if err := p.StartOldFenced(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing to follow") {
		t.Errorf("started the old primary before there was a new one: %v", err)
	}
	must(t, p.Promote(t.Context()))
	must(t, exec1(t.Context(), standbyURL(t, p), `insert into seats values (2)`))
	if present := numbers(t, standbyURL(t, p)); present[1] || !present[2] {
		t.Errorf("the promoted one has %v, want 2 alone", present)
	}
	must(t, p.StartOldFenced(t.Context()))
	wantReadOnly(t, primaryURL(t, p))
	if present := numbers(t, primaryURL(t, p)); !present[1] || present[2] {
		t.Errorf("the old primary has %v, want 1 alone", present)
	}
	for name, again := range map[string]func(context.Context) error{"killed": p.KillPrimary, "promoted": p.Promote, "started": p.StartOldFenced} {
		if err := again(t.Context()); err == nil || !strings.Contains(err.Error(), name+" already") {
			t.Errorf("%s again: %v", name, err)
		}
	}
	for _, log := range []string{"postgres-primary.log", "postgres-standby.log"} {
		if info, err := os.Stat(filepath.Join(work, log)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", log, err)
		}
	}
}
