package library

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(c *pgtest.Cluster) { cluster = c }))
}

// migrated gives a fresh database with the library's schema.
func migrated(t *testing.T) string {
	t.Helper()
	return cluster.Template(t, "library", func(url string) error {
		_, err := Migrate(context.Background(), url)
		return err
	})
}

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// A world is a database, a pyxis and the replicas on them.
type world struct {
	t     *testing.T
	pyxis *fakePyxis
	url   string
	db    *pgx.Conn
	base  Config
}

func newWorld(t *testing.T, seats ...string) *world {
	t.Helper()
	w := &world{t: t, pyxis: newFakePyxis(t, seats...), url: migrated(t)}
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	w.db = conn
	w.base = Config{
		DatabaseURL: w.url, PoolSize: 12, PyxisURL: w.pyxis.base(), RedisPrefix: "test:", TestMode: true,
		Path: pathIntent, Tick: 50 * time.Millisecond, ActionTTL: 2 * time.Minute, ConfirmWait: 20 * time.Second,
		UpstreamTimeout: 5 * time.Second, Lease: 15 * time.Second, ReaperInterval: 20 * time.Millisecond,
		WaitBackoff: 50 * time.Millisecond, SeatLockTTL: 10 * time.Second, Workers: 8, CacheTTL: 20 * time.Millisecond,
		BreakerFailures: 1000, BreakerOpen: time.Second, BreakerProbes: 1,
		Clock: clock.New(0), Log: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		w.base.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return w
}

// A replica is a running service with its HTTP side.
type replica struct {
	*Service

	w   *world
	url string
	end func() // stops it as if it had died
}

func (w *world) start(change ...func(*Config)) *replica {
	w.t.Helper()
	cfg := w.base
	cfg.Replica = "sut-1"
	for _, c := range change {
		c(&cfg)
	}
	s, err := Start(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	var once sync.Once
	r := &replica{Service: s, w: w, url: srv.URL}
	r.end = func() {
		once.Do(func() {
			s.Close()
			srv.CloseClientConnections()
			srv.Close()
		})
	}
	w.t.Cleanup(r.end)
	return r
}

func named(name string) func(*Config) { return func(c *Config) { c.Replica = name } }

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	doc    map[string]any
	err    error
}

func (a answer) str(name string) string { v, _ := a.doc[name].(string); return v }

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: 60 * time.Second}

func (r *replica) call(method, path, student, body string) answer {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+student)
	req.Header.Set("X-Overbook-Op", "op-"+student)
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	var buf bytes.Buffer
	_, _ = buf.ReadFrom(resp.Body)
	a.err = json.Unmarshal(buf.Bytes(), &a.doc)
	return a
}

func (r *replica) prepare(student, seat string) string {
	r.w.t.Helper()
	a := r.call("POST", "/library/actions", student, fmt.Sprintf(`{"seat":%q}`, seat))
	if a.status != http.StatusCreated || a.str("action_id") == "" {
		r.w.t.Fatalf("prepare = %+v", a)
	}
	return a.str("action_id")
}

func (r *replica) confirm(student, action string) answer {
	return r.call("POST", "/library/actions/"+action+"/confirm", student, "")
}

func student(n int) string { return fmt.Sprintf("student-%d", n) }

// burst has n students confirm the seat at once, spread over the replicas.
func burst(t *testing.T, seat string, n int, replicas ...*replica) []answer {
	t.Helper()
	actions := make([]string, n)
	for i := range n {
		actions[i] = replicas[i%len(replicas)].prepare(student(i), seat)
	}
	answers := make([]answer, n)
	release := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-release
			answers[i] = replicas[i%len(replicas)].confirm(student(i), actions[i])
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
		out[fmt.Sprintf("%d %s", a.status, a.str("state"))]++
	}
	return out
}

// value reads one value from the database.
func value[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// states counts intents by state.
func (w *world) states() map[string]int {
	w.t.Helper()
	out := map[string]int{}
	rows, err := w.db.Query(context.Background(), "select state, count(*) from library_reservation_intents group by 1")
	if err != nil {
		w.t.Fatal(err)
	}
	var state string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { out[state] = n; return nil }); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// rests reports that no seat is being looked at.
func (w *worker) rests() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy == 0
}

// eventually waits until what holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v; intents %v", what, patience, w.states())
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// wellRecorded checks what must hold of the records after any run: history
// that replays to each intent's state, and an event, delivered, for each
// transition.
func (w *world) wellRecorded() {
	w.t.Helper()
	w.eventually("all events delivered", func() bool {
		return value[int](w, "select count(*) from library_reservation_outbox where delivered_at is null") == 0
	})
	for what, sql := range map[string]string{
		"intents whose state is not that of their last transition": `
			select count(*) from library_reservation_intents i where i.state is distinct from
			(select to_state from library_transitions t where t.intent_id = i.intent_id order by seq desc limit 1)`,
		"transitions that do not follow from the one before": `
			select count(*) from (select seq, from_state, lag(to_state) over w as was, row_number() over w as n from library_transitions
			window w as (partition by intent_id order by seq)) x where from_state is distinct from was or seq <> n`,
		"transitions without their event": `
			select count(*) from library_transitions t full join library_reservation_outbox o using (intent_id, seq)
			where t.intent_id is null or o.intent_id is null or o.type <> 'library.intent.' || lower(t.to_state)`,
		"events without their notification": `
			select count(*) from library_reservation_outbox o full join library_notifications n using (event_id)
			where o.event_id is null or n.event_id is null`,
		"consumed actions without exactly one intent": `
			select count(*) from library_actions a left join library_reservation_intents i using (action_id)
			where (a.state = 'CONFIRMED') is distinct from (i.intent_id is not null)`,
		"consumed actions without their audit": `
			select count(*) from library_actions a where a.state = 'CONFIRMED'
			and (select count(*) from action_audit u where u.action_id = a.action_id and u.event = 'CONFIRMED') <> 1`,
	} {
		if n := value[int](w, sql); n != 0 {
			w.t.Errorf("%d %s", n, what)
		}
	}
}
