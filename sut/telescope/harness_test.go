package telescope

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	c, err := pgtest.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need a Postgres:", err)
		return 1
	}
	defer c.Stop()
	defer databases.Drop()
	cluster = c
	return m.Run()
}

// today is when all tests of the whole server happen.
var today = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// An observatory is a database with open slots 1 to 40, all in December, and
// the replicas on it.
type observatory struct {
	t    *testing.T
	url  string
	db   *pgxpool.Pool
	base Config
}

// newObservatory gives a world of its own; tests that have one run side by side.
func newObservatory(t *testing.T) *observatory {
	t.Helper()
	t.Parallel()
	o := &observatory{t: t, url: databases.Take(t)}
	pool, err := pgxpool.New(t.Context(), o.url+"&application_name=test&deadlock_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), beginning); err != nil {
		t.Fatal(err)
	}
	o.db = pool
	zone, err := time.LoadLocation("Pacific/Honolulu")
	if err != nil {
		t.Fatal(err)
	}
	o.base = Config{
		DatabaseURL: o.url, PoolSize: 8, TestMode: true, TimeZone: zone,
		LockTimeout: 2 * time.Second, StatementTimeout: 5 * time.Second, Tries: 5,
		RetryWindow: 24 * time.Hour, Retention: 168 * time.Hour, ProjectionInterval: 20 * time.Millisecond,
		EmailInterval: 20 * time.Millisecond, EmailTimeout: 2 * time.Second, EmailParkAfter: 10,
		Clock: clock.New(time.Until(today)), Log: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		o.base.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return o
}

// patiently is for bursts: a machine that is busy with something else must not
// make their lock waits too long.
func (o *observatory) patiently() {
	o.base.LockTimeout, o.base.StatementTimeout = 15*time.Second, 20*time.Second
}

// A replica is a running service with its HTTP side.
type replica struct {
	*Service

	o   *observatory
	url string
	end func() // stops it as if it had died
}

func (o *observatory) start(change ...func(*Config)) *replica {
	o.t.Helper()
	cfg := o.base
	cfg.Replica = "sut-1"
	for _, c := range change {
		c(&cfg)
	}
	s, err := Start(o.t.Context(), cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	var once sync.Once
	r := &replica{Service: s, o: o, url: srv.URL}
	r.end = func() {
		once.Do(func() {
			s.Close()
			srv.CloseClientConnections()
			srv.Close()
		})
	}
	o.t.Cleanup(r.end)
	return r
}

// A call is what a client sends. Empty fields are not sent.
type call struct {
	who, key, body, contentType, op string
	keys                            []string // instead of key
}

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	doc    map[string]any
	err    error
}

func (a answer) str(name string) string { v, _ := a.doc[name].(string); return v }

// kind is "201" or "409 slot-taken".
func (a answer) kind() string {
	if word, ok := strings.CutPrefix(a.str("type"), "/problems/"); ok {
		return fmt.Sprint(a.status, " ", word)
	}
	return fmt.Sprint(a.status)
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: 60 * time.Second}

func (r *replica) send(method, path string, c call) answer {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(c.body))
	if err != nil {
		return answer{err: err}
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set("Content-Type", c.contentType)
	set("X-Overbook-Op", c.op)
	set("Traceparent", traceparent)
	if c.who != "" {
		set("Authorization", "Bearer "+c.who)
	}
	if c.keys == nil && c.key != "" {
		c.keys = []string{c.key}
	}
	req.Header["Idempotency-Key"] = c.keys
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, resp.Body); err != nil {
		return answer{err: err}
	}
	a.body = buf.String()
	a.err = json.Unmarshal(buf.Bytes(), &a.doc)
	return a
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (r *replica) get(path, who string) answer { return r.send("GET", path, call{who: who}) }

func (r *replica) book(who, key string, slot int) answer {
	return r.send("POST", fmt.Sprintf("/telescope/slots/%d/reservations", slot), call{who: who, key: key, op: "op-" + key})
}

func (r *replica) cancel(who, key, booking string) answer {
	return r.send("DELETE", "/telescope/reservations/"+booking, call{who: who, key: key})
}

func (r *replica) closeSlot(who, key string, slot int) answer {
	return r.send("POST", fmt.Sprintf("/telescope/slots/%d/closure", slot), call{who: who, key: key})
}

func (r *replica) reopenSlot(who, key string, slot int) answer {
	return r.send("POST", fmt.Sprintf("/telescope/slots/%d/reopening", slot), call{who: who, key: key})
}

func member(n int) string { return fmt.Sprintf("member-%d", n) }

// wants fails the test unless the answer is of the kind.
func wants(t *testing.T, a answer, kind string) answer {
	t.Helper()
	if a.err != nil || a.kind() != kind {
		t.Fatalf("answer %d %s (%v), want %s", a.status, a.body, a.err, kind)
	}
	return a
}

// burst sends n requests at once and gives the answers.
func burst(n int, send func(i int) answer) []answer {
	answers := make([]answer, n)
	release := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-release
			answers[i] = send(i)
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
	return answers
}

func tally(answers []answer) map[string]int {
	out := map[string]int{}
	for _, a := range answers {
		if a.err != nil {
			out[a.err.Error()]++
			continue
		}
		out[a.kind()]++
	}
	return out
}

// scan reads one value from the database.
func scan[T any](o *observatory, sql string, args ...any) (v T) {
	o.t.Helper()
	if err := o.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// lines reads one column of text.
func (o *observatory) lines(sql string, args ...any) []string {
	o.t.Helper()
	rows, err := o.db.Query(context.Background(), sql, args...)
	if err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// history is what happened to a slot, in order.
func (o *observatory) history(slot int) string {
	o.t.Helper()
	return strings.Join(o.lines("select event from audit_history where slot_id = $1 order by seq", slot), " ")
}

// soundly checks what must hold of the records after any run.
func (o *observatory) soundly() {
	o.t.Helper()
	for what, sql := range map[string]string{
		"slots whose version is not the number of their last history row": `
			select count(*) from observing_slots s where version is distinct from (select max(seq) from audit_history a where a.slot_id = s.slot_id)`,
		"slots whose history has gaps": `
			select count(*) from (select slot_id from audit_history group by 1 having count(*) <> max(seq) or min(seq) <> 1) x`,
		"slots whose state is not what their history says": `
			select count(*) from observing_slots s where state is distinct from (
			  select case when event = 'CLOSED' then 'closed' else 'open' end from audit_history a
			  where a.slot_id = s.slot_id and event in ('CREATED', 'CLOSED', 'REOPENED') order by seq desc limit 1)`,
		"slots whose reservation is not what their history says": `
			select count(*) from observing_slots s left join active_reservations r using (slot_id)
			left join lateral (
			  select event, booking_id, member from audit_history a
			  where a.slot_id = s.slot_id and event in ('BOOKED', 'CANCELLED') order by seq desc limit 1) l on true
			where (case when l.event = 'BOOKED' then (l.booking_id, l.member) end) is distinct from
			      (case when r.slot_id is not null then (r.booking_id, r.member) end)`,
		"reservations whose flag is not what their history says": `
			select count(*) from active_reservations r where flag_state is distinct from (
			  select case event when 'FLAGGED' then 'open' when 'KEPT' then 'kept' end from audit_history a
			  where a.slot_id = r.slot_id and event in ('BOOKED', 'FLAGGED', 'KEPT', 'REOPENED') order by seq desc limit 1)`,
		"unflagged reservations on closed slots": `
			select count(*) from active_reservations r join observing_slots s using (slot_id) where s.state = 'closed' and r.flagged_at is null`,
		"history rows without their event, or events without their row": `
			select count(*) from audit_history a full join outbox o using (slot_id, seq)
			where a.slot_id is null or o.slot_id is null or o.type <> 'telescope.' || lower(a.event)`,
		"members over their quota": `select count(*) from (select 1 from active_reservations group by member, month having count(*) > 2) x`,
		"bookings without their operation, or operations without their booking": `
			select count(*) from (select booking_id from audit_history where event = 'BOOKED') b
			full join (select booking_id from booking_operations where type = 'book' and status = 201) k using (booking_id)
			where b.booking_id is null or k.booking_id is null`,
		"operations without a result": `select count(*) from booking_operations where completed_at is null`,
	} {
		if n := scan[int](o, sql); n != 0 {
			o.t.Errorf("%d %s", n, what)
		}
	}
}

// rows counts everything that calls may have written.
func (o *observatory) rows() string {
	o.t.Helper()
	return scan[string](o, `select concat_ws(' ', (select count(*) from observing_slots), (select sum(version) from observing_slots),
  (select count(*) from active_reservations), (select count(*) from member_quotas), (select count(*) from booking_operations),
  (select count(*) from audit_history), (select count(*) from outbox))`)
}

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// await asks until the answer will do, and gives it.
func await[T any](t *testing.T, what string, ask func() (T, bool)) T {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		v, ok := ask()
		if ok {
			return v
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v, last %+v", what, patience, v)
		}
	}
}

// hold runs a statement in a transaction of the test and keeps its locks until
// the function is called.
func (o *observatory) hold(sql string, args ...any) (release func()) {
	o.t.Helper()
	tx := o.session(sql, args...)
	return func() { _ = tx.Rollback(context.Background()) }
}

// session is a transaction of the test in which a statement was run.
func (o *observatory) session(sql string, args ...any) pgx.Tx {
	o.t.Helper()
	tx, err := o.db.Begin(context.Background())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // a second time does nothing
	if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return tx
}

// awaitWaiting waits until n sessions of the replica wait for a lock.
func (o *observatory) awaitWaiting(replica string, n int) {
	o.t.Helper()
	await(o.t, fmt.Sprintf("%d sessions of %s waiting for a lock", n, replica), func() (int, bool) {
		got := scan[int](o, "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock' and datname = current_database()", replica)
		return got, got == n
	})
}
