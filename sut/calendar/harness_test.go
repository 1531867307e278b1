package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // offices are where they are, whatever the machine knows

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	c, err := pgtest.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need a Postgres:", err)
		os.Exit(1)
	}
	cluster = c
	code := m.Run()
	databases.Drop()
	c.Stop()
	os.Exit(code)
}

// databases are used by one office after another.
var databases = pgtest.Shelf{
	Cluster: func() *pgtest.Cluster { return cluster }, Name: "calendar",
	Prepare: func(url string) error {
		_, err := Migrate(context.Background(), url)
		return err
	},
}

// beginning empties a database, past the triggers that refuse to.
const beginning = `
set session_replication_role = replica;
truncate resources, accounts, appointments, appointment_audit, outbox, syncs, conflicts, external_events, looks, appointment_operations
  restart identity cascade;
set session_replication_role = default`

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// today is when an office's clock begins to stand still, unless a test says
// otherwise: a Sunday, with a summer and its two changes ahead.
var today = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// An office is a database with active resources, and a replica that serves it
// over HTTP. Its clock stands still at today.
type office struct {
	t       *testing.T
	db      *pgxpool.Pool
	service *Service
	clock   *clock.Clock
	cfg     Config
	url     string
}

// newOffice gives an office of its own with resources 1 and 2, active, and 3,
// which is not; tests that have one run side by side. Its background work has
// ended: what is tested here must not depend on it.
func newOffice(t *testing.T, change ...func(*Config)) *office {
	t.Helper()
	o := newOfficeAtWork(t, change...)
	if err := o.service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// newOfficeAtWork gives an office whose background work goes on. Unless told
// otherwise it looks once an hour, and finds no provider.
func newOfficeAtWork(t *testing.T, change ...func(*Config)) *office {
	t.Helper()
	t.Parallel()
	url := databases.Take(t)
	// The test's own session must never be the one that a deadlock ends.
	db, err := pgxpool.New(t.Context(), url+"&application_name=test&deadlock_timeout=10000&timezone=UTC")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	o := &office{t: t, db: db, clock: clock.New(0)}
	o.exec(beginning)
	o.clock.Stop(today, 0)
	o.cfg = Config{
		DatabaseURL: url, PoolSize: 4, Replica: "sut-1", TestMode: true, CalendarURL: "http://127.0.0.1:1", CalendarTimeout: 5 * time.Second,
		SyncInterval: time.Hour, SyncBackoff: time.Second, SyncClaim: 2 * time.Minute, ReconcileInterval: time.Hour, Horizon: 17520 * time.Hour,
		RefreshLease: 15 * time.Second, ParkAfter: 50,
		LockTimeout: 15 * time.Second, StatementTimeout: 20 * time.Second, Tries: 5, RetryWindow: 24 * time.Hour, Retention: 168 * time.Hour,
		Clock: o.clock, Log: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		o.cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, c := range change {
		c(&o.cfg)
	}
	o.start()
	for id := 1; id <= 3; id++ {
		o.resource(id)
	}
	o.exec(`update resources set state = 'ACTIVE', provider_contract = 'check-then-create', conflict_policy = 'keep-and-flag',
		conflict_limit = 3, activated_at = '2026-03-01' where resource_id < 3`)
	return o
}

// crowded is for bursts.
func crowded(c *Config) { c.PoolSize = 14 }

// start runs a replica.
func (o *office) start() {
	o.t.Helper()
	service, err := Start(o.t.Context(), o.cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	srv := httptest.NewServer(service.Handler())
	o.service, o.url = service, srv.URL
	o.t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		service.Close()
	})
}

func (o *office) exec(sql string, args ...any) {
	o.t.Helper()
	if _, err := o.db.Exec(context.Background(), sql, args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

// scan gives the one value that a query gives.
func scan[T any](o *office, sql string, args ...any) (v T) {
	o.t.Helper()
	if err := o.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// A call is what a client sends. Empty fields are not sent.
type call struct{ who, key, body, op string }

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	doc    map[string]any
	err    error
}

func (a answer) str(name string) string { v, _ := a.doc[name].(string); return v }

// list gives what a member that is a list has under a name in each element.
func (a answer) list(name, field string) (out []string) {
	all, _ := a.doc[name].([]any)
	for _, one := range all {
		doc, _ := one.(map[string]any)
		out = append(out, fmt.Sprint(doc[field]))
	}
	return out
}

// kind is "201" or "409 overlap".
func (a answer) kind() string {
	if a.err != nil {
		return a.err.Error()
	}
	if word, ok := strings.CutPrefix(a.str("type"), "/problems/"); ok {
		return fmt.Sprint(a.status, " ", word)
	}
	return strconv.Itoa(a.status)
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 400}, Timeout: 60 * time.Second}

func (o *office) send(method, path string, c call) answer {
	req, err := http.NewRequest(method, o.url+path, strings.NewReader(c.body))
	if err != nil {
		return answer{err: err}
	}
	auth := ""
	if c.who != "" {
		auth = "Bearer " + c.who
	}
	for name, value := range map[string]string{
		"Idempotency-Key": c.key, "X-Overbook-Op": c.op, "Traceparent": traceparent, "Authorization": auth,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{err: err}
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(body)}
	a.err = json.Unmarshal(body, &a.doc)
	return a
}

// keyed sends a write under a key, which is the operation's name, too.
func (o *office) keyed(method, path, who, key, body string) answer {
	return o.send(method, path, call{who: who, key: key, op: key, body: body})
}

func (o *office) resource(id int) {
	o.t.Helper()
	body := fmt.Sprintf(`{"resource_id":%d,"calendar":"cal-%d","refresh_token":"r-%d"}`, id, id, id)
	wants(o.t, o.send("POST", "/calendar/resources", call{who: "staff-1", body: body, op: fmt.Sprint("resource-", id)}), "201")
}

// times is a body's members: wall-clock times of 2026 in Berlin.
func times(start, end string) string {
	return fmt.Sprintf(`"start":"2026-%s","end":"2026-%s","time_zone":"Europe/Berlin"`, start, end)
}

func (o *office) book(who, key string, resource int, start, end string) answer {
	return o.keyed("POST", fmt.Sprintf("/calendar/resources/%d/appointments", resource), who, key, "{"+times(start, end)+"}")
}

// booked books and gives the appointment's id.
func (o *office) booked(who, key string, resource int, start, end string) string {
	o.t.Helper()
	return wants(o.t, o.book(who, key, resource, start, end), "201").str("appointment_id")
}

func (o *office) cancel(who, key, id string) answer {
	return o.keyed("DELETE", "/calendar/appointments/"+id, who, key, "")
}

func (o *office) move(who, key, id, start, end string) answer {
	return o.keyed("PATCH", "/calendar/appointments/"+id, who, key, "{"+times(start, end)+"}")
}

// sum stands for everything that is stored: two that are equal say that
// nothing has changed in between.
func (o *office) sum() string {
	o.t.Helper()
	var all []string
	for _, table := range []string{"resources", "accounts", "appointments", "appointment_audit", "outbox", "syncs", "conflicts", "external_events", "looks", "appointment_operations"} {
		all = append(all, scan[string](o, `select '`+table+` ' || count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '') from `+table+` t`))
	}
	return strings.Join(all, "\n")
}

// story is an appointment's state with its audit rows, its outbox events and
// its sync row.
func (o *office) story(id string) string {
	o.t.Helper()
	return scan[string](o, `select a.state || ' ' || a.version || ': ' ||
		(select string_agg(h.seq || ' ' || h.event, ', ' order by h.seq) from appointment_audit h where h.appointment_id = a.appointment_id) || '; ' ||
		coalesce((select string_agg(e.seq || ' ' || e.type, ', ' order by e.seq) from outbox e where e.appointment_id = a.appointment_id), 'no event') ||
		coalesce((select case when due_at is null then '; not due' else '; due' end from syncs y where y.appointment_id = a.appointment_id), '; no sync')
		from appointments a where a.appointment_id = $1::text::uuid`, id)
}

// is fails the test unless the appointment's story is that.
func (o *office) is(id, want string) {
	o.t.Helper()
	if got := o.story(id); got != want {
		o.t.Errorf("appointment is %q, want %q", got, want)
	}
}

// during is when an appointment is, as the database says it.
func (o *office) during(id string) string {
	o.t.Helper()
	return scan[string](o, `select during::text from appointments where appointment_id = $1::text::uuid`, id)
}

// conflictFree fails the test when two active appointments overlap: asked
// without the constraint's help.
func (o *office) conflictFree() {
	o.t.Helper()
	n := scan[int](o, `select count(*)::int from appointments a join appointments b on a.resource_id = b.resource_id and a.appointment_id < b.appointment_id
		where a.state in ('BOOKED', 'CREATED') and b.state in ('BOOKED', 'CREATED')
		and lower(a.during) < upper(b.during) and lower(b.during) < upper(a.during)`)
	if n != 0 {
		o.t.Errorf("%d pairs of active appointments overlap", n)
	}
}

// wants fails the test unless the answer is of the kind.
func wants(t *testing.T, a answer, kind string) answer {
	t.Helper()
	if a.kind() != kind {
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
		out[a.kind()]++
	}
	return out
}

// await waits until a query says yes.
func (o *office) await(what, sql string, args ...any) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	for !scan[bool](o, sql, args...) {
		if clock.Pause(ctx, 2*time.Millisecond) != nil {
			o.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second
