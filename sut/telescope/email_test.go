package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// soon is how long a test of the background work waits for what must happen.
const soon = 30 * time.Second

// A backstage is a database with what the background work needs around it,
// and without the rest of the server.
type backstage struct {
	t    *testing.T
	pool *pgxpool.Pool
	cfg  Config
}

// newBackstage gives one of its own; tests that have one run side by side.
func newBackstage(t *testing.T) *backstage {
	t.Helper()
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), databases.Take(t)+"&pool_max_conns=12&application_name=backstage&lock_timeout=2000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `do $$ begin
		alter table audit_history disable trigger user;
		alter table outbox disable trigger user;
		truncate observing_slots, active_reservations, booking_operations, audit_history, outbox, email_deliveries, slot_schedule, schedule_refreshes;
		alter table audit_history enable trigger user;
		alter table outbox enable trigger user;
	end $$`)
	if err != nil {
		t.Fatalf("empty the database: %v", err)
	}
	zone, err := time.LoadLocation("Pacific/Honolulu")
	if err != nil {
		t.Fatal(err)
	}
	return &backstage{t: t, pool: pool, cfg: Config{
		TimeZone: zone, Retention: 168 * time.Hour, ProjectionInterval: time.Second,
		EmailInterval: time.Second, EmailTimeout: 2 * time.Second, EmailParkAfter: 4,
		Clock: clock.New(0), Log: slog.New(slog.DiscardHandler),
	}}
}

func (b *backstage) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](b *backstage, sql string, args ...any) (v T) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// event commits an event of a slot and gives its id.
func (b *backstage) event(slot int64, seq int, event string) string {
	b.t.Helper()
	payload, err := json.Marshal(map[string]any{
		"event": event, "slot_id": slot, "booking_id": bookingOf(slot), "member": fmt.Sprintf("member-%d", slot), "actor": "staff-1",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "op": fmt.Sprintf("op-%d-%d", slot, seq),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return value[string](b, `insert into outbox (slot_id, seq, type, payload, created_at) values ($1, $2, $3, $4, $5) returning event_id::text`,
		slot, seq, "telescope."+strings.ToLower(event), string(payload), b.cfg.Clock.Now())
}

func bookingOf(slot int64) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", slot) }

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for !holds() {
		if clock.Pause(ctx, 2*time.Millisecond) != nil {
			t.Fatalf("waited %v for %s", soon, what)
		}
	}
}

// A post is one call that the provider got.
type post struct {
	Key, Event, To, Kind, Booking string
	Slot                          int64
	Op, Traceparent               string
}

// A postOffice is the email provider. decide, if set, may give another answer
// than 202, or wait; n counts the posts of that event from 1.
type postOffice struct {
	url    string
	decide func(p post, n int) (status int)

	mu           sync.Mutex
	posts        []post
	inside, most int
}

// dropped is a status that means: no answer, the connection is closed.
const dropped = -1

func newPostOffice(t *testing.T, decide func(p post, n int) int) *postOffice {
	t.Helper()
	o := &postOffice{decide: decide}
	server := httptest.NewServer(http.StripPrefix("/base", o))
	t.Cleanup(server.Close)
	o.url = server.URL + "/base/"
	return o
}

func (o *postOffice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var in map[string]any
	if err := json.Unmarshal(body, &in); err != nil || r.Method != http.MethodPost || r.URL.Path != "/messages" || len(in) != 5 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	p := post{Key: r.Header.Get("Idempotency-Key"), Op: r.Header.Get("X-Overbook-Op"), Traceparent: r.Header.Get("Traceparent")}
	p.Event, p.To, p.Kind, p.Booking = in["event_id"].(string), in["to"].(string), in["kind"].(string), in["booking_id"].(string)
	p.Slot = int64(in["slot_id"].(float64))
	status := http.StatusAccepted
	if n := o.arrive(p); o.decide != nil {
		status = o.decide(p, n)
	}
	o.mu.Lock()
	o.inside--
	o.mu.Unlock()
	if status == dropped {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"message_id":"message-for-%s"}`, p.Event)
}

func (o *postOffice) arrive(p post) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside++
	o.most = max(o.most, o.inside)
	o.posts = append(o.posts, p)
	for _, q := range o.posts {
		if q.Event == p.Event {
			n++
		}
	}
	return n
}

// got gives the posts until now, in the order in which they came.
func (o *postOffice) got() []post {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.posts)
}

// times is how often the provider was asked to send an event's mail.
func (o *postOffice) times(event string) (n int) {
	for _, p := range o.got() {
		if p.Event == event {
			n++
		}
	}
	return n
}

// mailer gives a mailer for this provider.
func (b *backstage) mailer(o *postOffice) *mailer {
	cfg := b.cfg
	cfg.EmailURL = o.url
	return newMailer(b.pool, cfg, newMeters())
}

// pump relays what is due now, until nothing is.
func (b *backstage) pump(m *mailer) {
	b.t.Helper()
	for range 1000 {
		n, err := m.relay.Pass(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	b.t.Fatal("the mailer does not come to an end")
}

// later moves the clock on, past every pause and claim, and relays again.
func (b *backstage) later(m *mailer) {
	b.t.Helper()
	b.cfg.Clock.Set(b.cfg.Clock.Offset() + time.Minute)
	b.pump(m)
}

// background runs a loop until the test ends, and waits for it.
func background(t *testing.T, run func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(soon):
			t.Error("the loop did not end with its context")
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestMailIsSentForWhatConcernsTheMember(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, nil)
	var want []post
	for i, event := range []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", "KEPT", "REOPENED", "CANCELLED"} {
		id := b.event(7, i+1, event)
		if slices.Contains([]string{"BOOKED", "FLAGGED", "CANCELLED"}, event) {
			want = append(want, post{
				Key: id, Event: id, To: "member-7", Kind: event, Booking: bookingOf(7), Slot: 7,
				Op: fmt.Sprintf("op-7-%d", i+1), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			})
		}
	}
	m := b.mailer(o)
	b.pump(m)
	if diff := cmp.Diff(want, o.got()); diff != "" {
		t.Error(diff)
	}
	if n := value[int](b, `select count(*) from outbox where delivered_at is null or attempts <> 1`); n != 0 {
		t.Errorf("%d events are not delivered at the first attempt", n)
	}
	stored := value[int](b, `select count(*) from email_deliveries d join outbox o using (event_id)
		where d.message_id = 'message-for-' || event_id and o.payload->>'event' in ('BOOKED', 'FLAGGED', 'CANCELLED')`)
	if n := value[int](b, `select count(*) from email_deliveries`); n != 3 || stored != 3 {
		t.Errorf("%d rows of mails, %d right, want 3", n, stored)
	}
	if m.oldestPending() != 0 || m.parked() != 0 {
		t.Errorf("oldest pending %v, parked %d, want nothing", m.oldestPending(), m.parked())
	}
}

func TestWithoutProviderEventsStayPending(t *testing.T) {
	b := newBackstage(t)
	b.event(7, 1, "BOOKED")
	m := newMailer(b.pool, b.cfg, newMeters())
	m.run(t.Context())
	if n := value[int](b, `select count(*) from outbox where delivered_at is null and claimed_until is null and attempts = 0`); n != 1 {
		t.Errorf("%d events untouched, want the one", n)
	}
	if m.oldestPending() != 0 || m.parked() != 0 {
		t.Errorf("a mailer that does not run tells of %v and %d", m.oldestPending(), m.parked())
	}
}

// Two replicas share the work: each event once, those of a slot in order, many
// at the same time, and no transaction open while the provider is waited for.
func TestTwoMailersShareTheWork(t *testing.T) {
	const slots, each = 40, 5
	b := newBackstage(t)
	b.cfg.EmailInterval = 10 * time.Millisecond
	open := make(chan int, slots*each)
	o := newPostOffice(t, func(p post, _ int) int {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if p.Slot%8 == 0 { // asking each time would be the bottleneck
			var n int
			err := b.pool.QueryRow(ctx, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'backstage' and state like 'idle in transaction%'`).Scan(&n)
			if err != nil {
				n = -1
			}
			open <- n
		}
		_ = clock.Pause(ctx, 2*time.Millisecond)
		return http.StatusAccepted
	})
	want := map[int64][]string{}
	for seq := range each {
		for slot := range int64(slots) {
			want[slot+1] = append(want[slot+1], b.event(slot+1, seq+1, []string{"BOOKED", "CANCELLED"}[seq%2]))
		}
	}
	stops := []func(){background(t, b.mailer(o).run), background(t, b.mailer(o).run)}
	until(t, "all events to be delivered", func() bool { return value[int](b, `select count(*) from outbox where delivered_at is null`) == 0 })
	for _, stop := range stops {
		stop()
	}
	got := map[int64][]string{}
	for _, p := range o.got() {
		got[p.Slot] = append(got[p.Slot], p.Event)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if o.most < 4 || o.most > 2*mailLanes {
		t.Errorf("at most %d calls at once, want several and no more than %d", o.most, 2*mailLanes)
	}
	close(open)
	for n := range open {
		if n != 0 {
			t.Errorf("%d transactions were open during a call", n)
		}
	}
}

func TestWhatWasSentIsNotSentAgain(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, nil)
	id := b.event(7, 1, "BOOKED")
	b.exec(`insert into email_deliveries values ($1, 'message-1', $2)`, id, b.cfg.Clock.Now())
	b.pump(b.mailer(o))
	if got := o.got(); len(got) != 0 {
		t.Errorf("sent again: %+v", got)
	}
	if n := value[int](b, `select count(*) from outbox where delivered_at is not null`); n != 1 {
		t.Error("the event is not noted as delivered")
	}
}

// A mailer dies between the provider's answer and its row: the mail is sent
// again, under the same id.
func TestCrashBetweenAnswerAndRowRepeatsUnderTheSameID(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, nil)
	id := b.event(7, 1, "BOOKED")
	t.Cleanup(func() { _, _ = b.pool.Exec(context.Background(), `drop function if exists dies cascade`) })
	b.exec(`create function dies() returns trigger language plpgsql as $$ begin raise exception 'gone'; end $$`)
	b.exec(`create trigger dies before insert on email_deliveries for each row execute function dies()`)
	b.pump(b.mailer(o))
	if got := o.times(id); got != 1 {
		t.Fatalf("sent %d times, want once", got)
	}
	if why := value[string](b, `select last_error from outbox where delivered_at is null`); !strings.Contains(why, "took the mail") || !strings.Contains(why, "gone") {
		t.Errorf("the reason is %q", why)
	}
	b.exec(`drop trigger dies on email_deliveries`)
	b.later(b.mailer(o))
	for _, p := range o.got() {
		if p.Key != id || p.Event != id {
			t.Errorf("sent as %+v, want event %s", p, id)
		}
	}
	if o.times(id) != 2 {
		t.Errorf("sent %d times, want twice", o.times(id))
	}
	if n := value[int](b, `select count(*) from email_deliveries d join outbox o using (event_id) where o.delivered_at is not null`); n != 1 {
		t.Errorf("%d rows, want one", n)
	}
}

// The server is told to stop while the provider works: the call ends, its row
// is kept, and the event has not failed.
func TestStoppingKeepsWhatTheProviderTook(t *testing.T) {
	b := newBackstage(t)
	called, release := make(chan struct{}), make(chan struct{})
	o := newPostOffice(t, func(post, int) int {
		close(called)
		<-release
		return http.StatusAccepted
	})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	id := b.event(7, 1, "BOOKED")
	m := b.mailer(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); m.run(ctx) }()
	<-called
	cancel()
	select {
	case <-ended:
		t.Error("the mailer left a call behind")
	case <-time.After(50 * time.Millisecond):
	}
	free()
	select {
	case <-ended:
	case <-time.After(soon):
		t.Fatal("the mailer does not stop")
	}
	if n := value[int](b, `select count(*) from email_deliveries where event_id = $1`, id); n != 1 {
		t.Error("the row of the mail is missing")
	}
	if n := value[int](b, `select count(*) from outbox where last_error is null and parked_at is null`); n != 1 {
		t.Error("stopping counts as a failure of the event")
	}
	o.decide = func(post, int) int { t.Error("sent again"); return http.StatusAccepted }
	b.later(b.mailer(o))
	if n := value[int](b, `select count(*) from outbox where delivered_at is not null`); n != 1 {
		t.Error("the next one did not note the delivery")
	}
}
