package tickets

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

	"github.com/google/uuid"
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

const (
	secret      = "between-shop-and-bank"
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// A shop is a database with a show on sale, its payment provider, and a
// replica that serves it all over HTTP.
type shop struct {
	t        *testing.T
	db       *pgxpool.Pool
	provider *fakePayments
	service  *Service
	clock    *clock.Clock
	cfg      Config
	url      string

	deadlocks int // of the database, before the test
}

const sqlDeadlocks = "select deadlocks from pg_stat_database where datname = current_database()"

// newShop gives a shop of its own with show 1, of so many seats, ...;
// tests that have one run side by side.
func newShop(t *testing.T, seats int, change ...func(*Config)) *shop {
	t.Helper()
	t.Parallel()
	url := databases.Take(t)
	// The test's own session must never be the one that a deadlock ends.
	db, err := pgxpool.New(t.Context(), url+"&application_name=test&deadlock_timeout=10000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if _, err := db.Exec(t.Context(), beginning); err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, db: db, provider: newFakePayments(t), clock: clock.New(0)}
	s.cfg = Config{
		DatabaseURL: url, PoolSize: 4, Replica: "sut-1", TestMode: true,
		PaymentsURL: s.provider.url, CallbackSecret: secret, CallbackWindow: 5 * time.Minute, Policy: policyQuarantine,
		Hold: 8 * time.Minute, HardTimeout: 15 * time.Minute, Tick: time.Hour, ReconcileAfter: 24 * time.Hour, ReconcileEvery: 24 * time.Hour,
		RefundBackoff: time.Second, PaymentTimeout: 5 * time.Second, RefundParkAfter: 3,
		LockTimeout: 15 * time.Second, StatementTimeout: 20 * time.Second, Tries: 5,
		Clock: s.clock, Log: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		s.cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, c := range change {
		c(&s.cfg)
	}
	s.start()
	s.show(1, seats, "")
	s.deadlocks = scan[int](s, sqlDeadlocks)
	return s
}

// crowded is for bursts.
func crowded(c *Config) { c.PoolSize = 14 }

// releasing is the other policy.
func releasing(c *Config) { c.Policy = policyRelease }

// start runs a replica. Its background work is not what is tested here: the
// ticks come once an hour, the outcome of every rule must not depend on them.
func (s *shop) start() {
	s.t.Helper()
	service, err := Start(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewServer(service.Handler())
	s.service, s.url = service, srv.URL
	s.t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		service.Close()
	})
}

// later turns the shop's clock on.
func (s *shop) later(d time.Duration) { s.clock.Set(s.clock.Offset() + d) }

// A call is what a client sends. Empty fields are not sent.
type call struct{ who, body, contentType, op, signature string }

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	doc    map[string]any
	err    error
}

func (a answer) str(name string) string { v, _ := a.doc[name].(string); return v }

// kind is "201" or "409 seat-taken".
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

func (s *shop) send(method, path string, c call) answer {
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(c.body))
	if err != nil {
		return answer{err: err}
	}
	auth := ""
	if c.who != "" {
		auth = "Bearer " + c.who
	}
	for name, value := range map[string]string{
		"Content-Type": c.contentType, "X-Overbook-Op": c.op, "Traceparent": traceparent, "Authorization": auth, "Payments-Signature": c.signature,
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

func (s *shop) show(id, seats int, policy string) {
	s.t.Helper()
	names := make([]string, seats)
	for i := range names {
		names[i] = fmt.Sprintf("A-%d", i+1)
	}
	doc, _ := json.Marshal(map[string]any{
		"show_id": id, "on_sale_at": s.clock.Now(), "price": 4500, "currency": "EUR", "policy": policy, "seats": names,
	})
	wants(s.t, s.send("POST", "/tickets/shows", call{who: "staff-1", body: string(doc), op: fmt.Sprint("show-", id)}), "201")
}

func (s *shop) claim(who, seat string) answer {
	return s.send("POST", "/tickets/shows/1/holds", call{who: who, body: fmt.Sprintf(`{"seat":%q}`, seat), op: "claim-" + who})
}

func (s *shop) best(who string) answer {
	return s.send("POST", "/tickets/shows/1/holds", call{who: who, body: `{"best_available":true}`, op: "best-" + who})
}

func (s *shop) charge(who, hold string) answer {
	return s.send("POST", "/tickets/holds/"+hold+"/charges", call{who: who, body: `{"card":"card-` + who + `"}`, op: "charge-" + who})
}

func (s *shop) release(who, hold string) answer {
	return s.send("DELETE", "/tickets/holds/"+hold, call{who: who, op: "release-" + who})
}

// held claims a seat and gives the hold.
func (s *shop) held(who, seat string) string {
	s.t.Helper()
	return wants(s.t, s.claim(who, seat), "201").str("hold_id")
}

// order is the order's document as staff see it.
func (s *shop) order(hold string) orderView {
	s.t.Helper()
	a := wants(s.t, s.send("GET", "/tickets/orders/"+hold, call{who: "staff-1"}), "200")
	var v orderView
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// event is the body of a callback about a charge's payment.
func event(id, kind, payment, reference, intent string, amount int64) string {
	doc, _ := json.Marshal(callback{Event: id, Type: kind, Payment: payment, Reference: reference, Intent: intent, Amount: amount, Currency: "EUR"})
	return string(doc)
}

// signature of a body at server time plus a shift.
func (s *shop) signature(body string, shift time.Duration) string {
	return signatureBy(secret, body, s.clock.Now().Add(shift))
}

func signatureBy(key, body string, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return fmt.Sprintf("t=%s,v1=%x", t, sign(key, t, []byte(body)))
}

// tell delivers a callback, signed anew.
func (s *shop) tell(body string) answer {
	return s.send("POST", "/tickets/provider-callbacks", call{body: body, signature: s.signature(body, 0)})
}

// told delivers a callback that must be answered with the result.
func (s *shop) told(body, result string) {
	s.t.Helper()
	if got := wants(s.t, s.tell(body), "200").str("result"); got != result {
		s.t.Fatalf("callback %s: result %q, want %q", body, got, result)
	}
}

// inFlight claims a seat, has it charged, and leaves the charge without an
// answer; it gives hold and charge.
func (s *shop) inFlight(who, seat string) (hold, charge string) {
	s.t.Helper()
	hold = s.held(who, seat)
	s.provider.on("card-"+who, silent)
	return hold, wants(s.t, s.charge(who, hold), "202").str("charge_id")
}

// states is "hold seat charges refunds", as "EXPIRED - REFUNDING PENDING"; the
// seat is that of the hold, - when the hold does not have it.
func (s *shop) states(hold string) string {
	s.t.Helper()
	return scan[string](s, `select concat_ws(' ', h.state, coalesce((select s.state from seats s where s.hold_id = h.hold_id), '-'),
		(select string_agg(c.state, ',' order by c.sent_at, c.charge_id) from charges c where c.hold_id = h.hold_id),
		(select string_agg(r.state, ',' order by r.created_at) from refunds r join charges using (charge_id) where hold_id = h.hold_id))
		from holds h where hold_id = $1::text::uuid`, hold)
}

// is fails the test unless the order's states are those.
func (s *shop) is(hold, want string) {
	s.t.Helper()
	if got := s.states(hold); got != want {
		s.t.Fatalf("order is %q, want %q", got, want)
	}
}

// change runs something of the background's on an order, as it would.
func (s *shop) change(hold string, do func(ctx context.Context, o *order) error) {
	s.t.Helper()
	err := s.service.background.changeOrder(s.t.Context(), uuid.MustParse(hold), cause{actor: actorServer}, func(ctx context.Context, o *order) (bool, error) {
		return true, do(ctx, o)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// runOut is what the tick does to an order.
func (s *shop) runOut(hold string) {
	s.t.Helper()
	s.change(hold, func(ctx context.Context, o *order) error { _, err := o.runOut(ctx, s.clock.Now()); return err })
}

// giveUp is what the tick does to an order's charge at the hard timeout.
func (s *shop) giveUp(hold string) {
	s.t.Helper()
	s.change(hold, func(ctx context.Context, o *order) error { return o.giveUp(ctx, s.clock.Now(), o.inFlight()) })
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
