package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// A backstage is a database with what the background work needs around it, a
// bank, and no clients: orders are put into the tables as they are wanted.
type backstage struct {
	t    *testing.T
	pool *pgxpool.Pool
	cfg  Config
	bank *bank
	seat int // number of the last seat

	once      sync.Once
	callbacks *store
}

// newBackstage gives one of its own; tests that have one run side by side.
func newBackstage(t *testing.T) *backstage {
	t.Helper()
	t.Parallel()
	url := databases.Take(t)
	pool, err := pgxpool.New(t.Context(), url+"&application_name=backstage")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := &backstage{t: t, pool: pool, bank: newBank(t)}
	b.cfg = Config{
		DatabaseURL: url, PoolSize: 10, Replica: "sut-1", TestMode: true,
		PaymentsURL: b.bank.url, CallbackSecret: "between-bank-and-shop", CallbackWindow: 5 * time.Minute, Policy: policyQuarantine,
		Hold: 8 * time.Minute, HardTimeout: 15 * time.Minute, Tick: 10 * time.Millisecond, ReconcileAfter: time.Minute, ReconcileEvery: 30 * time.Second,
		RefundBackoff: time.Second, PaymentTimeout: 10 * time.Second, RefundParkAfter: 3,
		LockTimeout: 5 * time.Second, StatementTimeout: 10 * time.Second, Tries: 5,
		Clock: clock.New(0), Log: slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		b.cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	b.exec(beginning)
	b.exec(`insert into shows (show_id, on_sale_at, price, currency, policy, created_at) values (1, $1, 4500, 'EUR', 'quarantine', $1)`, b.now())
	return b
}

func (b *backstage) now() time.Time { return b.cfg.Clock.Now() }

// later turns the clock on.
func (b *backstage) later(d time.Duration) { b.cfg.Clock.Set(b.cfg.Clock.Offset() + d) }

func (b *backstage) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// row reads one value from the backstage's database.
func row[T any](b *backstage, sql string, args ...any) (v T) {
	b.t.Helper()
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// store gives a store as a replica's background has one.
func (b *backstage) store() *store {
	b.t.Helper()
	st, err := newStore(b.t.Context(), context.Background(), b.cfg, 2, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(st.Close)
	return st
}

// hold puts a RESERVED hold with its HELD seat there, made that long ago.
func (b *backstage) hold(ago time.Duration, policy string) uuid.UUID {
	b.t.Helper()
	b.seat++
	id, seat, at := uuid.New(), fmt.Sprintf("A-%d", b.seat), b.now().Add(-ago)
	b.exec(`insert into holds (hold_id, show_id, seat, login, state, amount, currency, policy, created_at, expires_at)
		values ($1, 1, $2, $3, 'RESERVED', 4500, 'EUR', $4, $5, $6)`, id, seat, fmt.Sprintf("member-%d", b.seat), policy, at, at.Add(b.cfg.Hold))
	b.exec(`insert into seats (show_id, seat, rank, state, hold_id, changed_at) values (1, $1, $2, 'HELD', $3, $4)`, seat, b.seat, id, at)
	return id
}

// sent puts a CHARGING charge there, sent that long ago.
func (b *backstage) sent(hold uuid.UUID, ago time.Duration) uuid.UUID {
	b.t.Helper()
	id, at := uuid.New(), b.now().Add(-ago)
	b.exec(`insert into charges (charge_id, hold_id, intent, amount, currency, card, state, origin, sent_at, next_ask_at, overbook_op, traceparent)
		values ($1, $2, $7, 4500, 'EUR', 'card-1', 'CHARGING', 'request', $3, $4, $5, $6)`,
		id, hold, at, at.Add(b.cfg.ReconcileAfter), "op-"+id.String()[:8], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", hold.String())
	return id
}

// over makes a charge what a path that is not under test would have made of it.
func (b *backstage) over(id uuid.UUID, state, by string, at time.Time) {
	b.t.Helper()
	b.exec(`update charges set state = $2, resolved_by = $3, resolved_at = $4, next_ask_at = sent_at + $5::interval where charge_id = $1`, id, state, by, at, b.cfg.HardTimeout)
}

// late puts a charge there whose money came too late and goes back.
func (b *backstage) late() (hold uuid.UUID, payment string) {
	b.t.Helper()
	hold = b.hold(9*time.Minute, policyRelease)
	id := b.sent(hold, 10*time.Second)
	payment = b.bank.captures(id, hold)
	b.callback(hold, func(ctx context.Context, o *order) (string, error) {
		return o.outcome(ctx, b.now(), b.bank.told(payment), byCallback)
	})
	return hold, payment
}

// callback does to an order what a callback does.
func (b *backstage) callback(hold uuid.UUID, do func(context.Context, *order) (string, error)) {
	b.t.Helper()
	b.once.Do(func() { b.callbacks = b.store() })
	err := b.callbacks.changeOrder(context.Background(), hold, cause{actor: actorProvider}, func(ctx context.Context, o *order) (bool, error) {
		_, err := do(ctx, o)
		return err == nil, err
	})
	if err != nil {
		b.t.Error(err)
	}
}

// states is "hold seat charges refunds" of an order, as "EXPIRED - REFUNDED DONE".
func (b *backstage) states(hold uuid.UUID) string {
	b.t.Helper()
	return row[string](b, `select concat_ws(' ', h.state, coalesce((select s.state from seats s where s.hold_id = h.hold_id), '-'),
		(select string_agg(c.state, ',' order by c.sent_at, c.charge_id) from charges c where c.hold_id = h.hold_id),
		(select string_agg(r.state, ',' order by r.created_at) from refunds r join charges using (charge_id) where hold_id = h.hold_id))
		from holds h where hold_id = $1`, hold)
}

// is fails the test unless the order's states are those.
func (b *backstage) is(hold uuid.UUID, want string) {
	b.t.Helper()
	if got := b.states(hold); got != want {
		b.t.Errorf("order is %q, want %q", got, want)
	}
}

// becomes waits until the order's states are those.
func (b *backstage) becomes(hold uuid.UUID, want string) {
	b.t.Helper()
	until(b.t, fmt.Sprintf("the order to be %q", want), func() (string, bool) { got := b.states(hold); return got, got == want })
}

// until waits for a condition, and says what was last seen.
func until(t *testing.T, what string, holds func() (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		seen, ok := holds()
		if ok {
			return
		}
		if clock.Pause(ctx, 3*time.Millisecond) != nil {
			t.Fatalf("waited in vain for %s, last saw %q", what, seen)
		}
	}
}

// running has loops run until the function is called, or the test ends.
func running(t *testing.T, loops ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	for _, run := range loops {
		under.Go(func() { run(ctx) })
	}
	stop = sync.OnceFunc(func() { cancel(); under.Wait() })
	t.Cleanup(stop)
	return stop
}

// A bank is the payment provider. A card's name is what becomes of its charges.
type bank struct {
	url string

	mu       sync.Mutex
	payments map[string][]payment // by reference, oldest first
	answer   func(call, about string) int
	calls    []bankCall
	refunded map[string]string // payment by refund id
	inside   map[string]int    // calls under way, by what they are about
	most     int               // of one thing at once
}

// A bankCall is a call that the bank got.
type bankCall struct{ kind, about, op, traceparent string }

// Answers beside HTTP statuses that answer may give.
const (
	properly = 0  // as the bank would
	dropped  = -1 // none: the connection is closed
	lost     = -2 // it is done, but nobody is told
)

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{payments: map[string][]payment{}, refunded: map[string]string{}, inside: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /base/charges/{reference}", func(w http.ResponseWriter, r *http.Request) {
		b.serve(w, r, "payments", r.PathValue("reference"), func() (int, any) {
			found, known := b.payments[r.PathValue("reference")]
			if !known {
				return http.StatusNotFound, map[string]string{"error": "unknown"}
			}
			return http.StatusOK, map[string]any{"reference": r.PathValue("reference"), "payments": found}
		})
	})
	mux.HandleFunc("POST /base/charges", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Reference, Intent, Currency, Card string
			Amount                            int64
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b.serve(w, r, "charge", in.Reference, func() (int, any) {
			p := payment{ID: "pay-" + uuid.NewString(), Reference: in.Reference, Intent: in.Intent, Amount: in.Amount, Currency: in.Currency, Status: in.Card}
			b.payments[p.Reference] = append(b.payments[p.Reference], p)
			return http.StatusCreated, p
		})
	})
	mux.HandleFunc("POST /base/refunds", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Payment  string `json:"payment_id"`
			Amount   int64  `json:"amount"`
			Currency string `json:"currency"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		key := r.Header.Get("Idempotency-Key")
		b.serve(w, r, "refund", key, func() (int, any) {
			b.refunded[key] = in.Payment
			return http.StatusCreated, map[string]any{"refund_id": key, "payment_id": in.Payment, "amount": in.Amount, "currency": in.Currency, "status": "succeeded"}
		})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.url = server.URL + "/base"
	return b
}

// serve counts a call, answers it, and does it when it is to be done properly.
func (b *bank) serve(w http.ResponseWriter, r *http.Request, kind, about string, do func() (int, any)) {
	b.mu.Lock()
	b.calls = append(b.calls, bankCall{kind, about, r.Header.Get("X-Overbook-Op"), r.Header.Get("Traceparent")})
	b.inside[kind+about]++
	b.most = max(b.most, b.inside[kind+about])
	answer := b.answer
	b.mu.Unlock()
	status := properly
	if answer != nil {
		status = answer(kind, about)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside[kind+about]--
	if status == dropped {
		panic(http.ErrAbortHandler)
	}
	var doc any = map[string]string{"error": "down"}
	if status == properly || status == lost {
		done, body := do()
		if status == lost {
			panic(http.ErrAbortHandler)
		}
		status, doc = done, body
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

// answers has the bank answer calls in its own way from now on; nil: properly.
func (b *bank) answers(how func(kind, about string) int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = how
}

// has makes a payment under a reference.
func (b *bank) has(charge, hold uuid.UUID, status string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := payment{ID: "pay-" + uuid.NewString(), Reference: charge.String(), Intent: hold.String(), Amount: 4500, Currency: "EUR", Status: status}
	b.payments[p.Reference] = append(b.payments[p.Reference], p)
	return p.ID
}

func (b *bank) captures(charge, hold uuid.UUID) string { return b.has(charge, hold, paymentCaptured) }

// decides ends what was pending.
func (b *bank) decides(id, status string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.payments {
		for i := range list {
			if list[i].ID == id {
				list[i].Status = status
			}
		}
	}
}

// told is a payment as the bank tells of it.
func (b *bank) told(id string) payment {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.payments {
		if i := slices.IndexFunc(list, func(p payment) bool { return p.ID == id }); i >= 0 {
			return list[i]
		}
	}
	return payment{}
}

// got gives the calls of a kind until now, about one thing or, with "", all.
func (b *bank) got(kind, about string) []bankCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []bankCall
	for _, c := range b.calls {
		if c.kind == kind && (about == "" || c.about == about) {
			out = append(out, c)
		}
	}
	return out
}

// returned is how many refunds of a payment the bank has made, under whatever ids.
func (b *bank) returned(payment string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, p := range b.refunded {
		if p == payment {
			n++
		}
	}
	return n
}

// atOnce is the most calls about one thing that were under way at once.
func (b *bank) atOnce() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in %.600q", p, text)
		}
	}
}
