package payments_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
	"github.com/overbook/overbook/stubs/payments"
)

// call calls the handler without a network; key "" sends no Idempotency-Key.
func call(tb testing.TB, h http.Handler, method, path, key, body string) (int, string) {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func chargeBody(reference, card string) string {
	return fmt.Sprintf(`{"reference":%q,"intent":"hold-%s","amount":4500,"currency":"EUR","card":%q}`, reference, reference, card)
}

func refundBody(payment string, amount int) string {
	return fmt.Sprintf(`{"payment_id":%q,"amount":%d,"currency":"EUR"}`, payment, amount)
}

// charge posts a charge under its reference as the key.
func charge(tb testing.TB, h http.Handler, reference, card string) (int, string) {
	tb.Helper()
	return call(tb, h, "POST", "/charges", reference, chargeBody(reference, card))
}

func configure(tb testing.TB, h http.Handler, change payments.Config) {
	tb.Helper()
	text, err := json.Marshal(change)
	if err != nil {
		tb.Fatal(err)
	}
	if status, answer := call(tb, h, "POST", "/__double/config", "", string(text)); status != 200 {
		tb.Fatalf("configure %s: %d %s", text, status, answer)
	}
}

// card configures the behaviour of one card.
func card(tb testing.TB, h http.Handler, name string, b payments.Behaviour) {
	tb.Helper()
	configure(tb, h, payments.Config{Cards: map[string]payments.Behaviour{name: b}})
}

func ledger(tb testing.TB, h http.Handler) (l payments.Ledger) {
	tb.Helper()
	_, answer := call(tb, h, "GET", "/__double/ledger", "", "")
	if err := json.Unmarshal([]byte(answer), &l); err != nil {
		tb.Fatalf("ledger: %s: %v", answer, err)
	}
	return l
}

func statsOf(tb testing.TB, h http.Handler) (s double.Stats) {
	tb.Helper()
	_, answer := call(tb, h, "GET", "/__double/stats", "", "")
	if err := json.Unmarshal([]byte(answer), &s); err != nil {
		tb.Fatalf("stats: %s: %v", answer, err)
	}
	return s
}

func payment(n int, reference, status string) string {
	return fmt.Sprintf(`{"payment_id":"pay_%d","reference":%q,"intent":"hold-%s","amount":4500,"currency":"EUR","status":%q}`, n, reference, reference, status)
}

// step is a call and the answer that it must have.
type step struct {
	call, key, body string
	status          int
	answer          string
}

func walk(t *testing.T, h http.Handler, steps []step) {
	t.Helper()
	for _, s := range steps {
		method, path, _ := strings.Cut(s.call, " ")
		if status, answer := call(t, h, method, path, s.key, s.body); status != s.status || answer != s.answer {
			t.Errorf("%s %s with key %q: %d %s\nwant %d %s", s.call, s.body, s.key, status, answer, s.status, s.answer)
		}
	}
}

func refused(word string) string { return fmt.Sprintf(`{"error":%q}`, word) }

func TestCharges(t *testing.T) {
	h := payments.New(1)
	if _, rows := call(t, h, "GET", "/__double/ledger", "", ""); rows != "[]" {
		t.Errorf("the ledger of nothing: %s", rows)
	}
	card(t, h, "poor", payments.Behaviour{Attempts: []string{payments.Declined}})
	card(t, h, "later", payments.Behaviour{Answer: payments.Pending})
	sound := chargeBody("c-1", "card-1")
	with := func(old, replacement string) string { return strings.Replace(sound, old, replacement, 1) }
	bad := func(body string) step { return step{"POST /charges", "c-9", body, 400, refused("bad_request")} }
	walk(t, h, []step{
		{"GET /charges/c-1", "", "", 404, refused("unknown")},
		{"POST /charges", "c-1", sound, 201, payment(1, "c-1", "captured")},
		{"POST /charges", "c-1", sound, 200, payment(1, "c-1", "captured")},
		{"POST /charges", "c-1", strings.ReplaceAll(sound, `","`, `", "`), 200, payment(1, "c-1", "captured")},
		{"POST /charges", "c-1", with("4500", "4501"), 422, refused("key_reused")},
		{"POST /charges", "c-1", with("card-1", "card-2"), 422, refused("key_reused")},
		{"POST /charges", "c-2", chargeBody("c-2", "poor"), 201, payment(2, "c-2", "declined")},
		{"POST /charges", "c-2", chargeBody("c-2", "poor"), 200, payment(2, "c-2", "declined")},
		{"POST /charges", "c-3", chargeBody("c-3", "later"), 201, payment(3, "c-3", "pending")},
		{"POST /charges", "c-3", chargeBody("c-3", "later"), 200, payment(3, "c-3", "captured")},
		{"POST /charges", "other-key", sound, 201, payment(4, "c-1", "captured")}, // a second payment: the key alone makes it one
		{"GET /charges/c-1", "", "", 200, `{"payments":[` + payment(1, "c-1", "captured") + "," + payment(4, "c-1", "captured") + `],"reference":"c-1"}`},
		{"GET /charges/c-9", "", "", 404, refused("unknown")},
		{"POST /charges", "", sound, 400, refused("bad_request")},
		bad(with("4500", "4500.0")), bad(with("4500", "45e2")), bad(with("4500", "4500.5")), bad(with("4500", `"4500"`)), bad(with("4500", "0")),
		bad(with("4500", "-1")), bad(with("4500", "9223372036854775808")), bad(with("4500", "null")), bad(with("EUR", "eur")), bad(with(`"c-1"`, `"c/1"`)),
		bad(with(`"c-1"`, `""`)), bad(with(`"hold-c-1"`, `""`)), bad(with(`"card-1"`, `""`)), bad(`{`), bad(`[]`), bad(sound + "x"),
		{"POST /charges", "c-9", with("c-1", "c-9"), 201, strings.Replace(payment(5, "c-9", "captured"), "hold-c-9", "hold-c-1", 1)}, // a refused call leaves its key free
	})
	stats := statsOf(t, h)
	if got := stats.Decisions["POST /charges 201 captured"]; got != 3 || stats.Calls["POST /charges"] != 28 || stats.Calls["GET /charges/{reference}"] != 3 {
		t.Errorf("stats: %+v", stats)
	}
}

func TestRefunds(t *testing.T) {
	h := payments.New(1)
	card(t, h, "poor", payments.Behaviour{Attempts: []string{payments.Declined}})
	card(t, h, "held", payments.Behaviour{Decide: payments.Held})
	charge(t, h, "c-1", "card-1")
	charge(t, h, "c-2", "poor")
	charge(t, h, "c-3", "held")
	given := `{"refund_id":"re_1","payment_id":"pay_1","amount":4500,"currency":"EUR","status":"succeeded"}`
	walk(t, h, []step{
		{"POST /refunds", "r-1", refundBody("pay_9", 4500), 404, refused("unknown_payment")},
		{"POST /refunds", "r-1", refundBody("pay_2", 4500), 409, refused("not_captured")},
		{"POST /refunds", "r-1", refundBody("pay_3", 4500), 409, refused("not_captured")},
		{"POST /refunds", "r-1", refundBody("pay_1", 4501), 422, refused("amount_too_large")},
		{"POST /refunds", "r-1", strings.Replace(refundBody("pay_1", 4500), "EUR", "USD", 1), 400, refused("bad_request")},
		{"POST /refunds", "r-1", strings.Replace(refundBody("pay_1", 4500), "4500", "4500.0", 1), 400, refused("bad_request")},
		{"POST /refunds", "r-1", refundBody("pay_1", 0), 400, refused("bad_request")},
		{"POST /refunds", "", refundBody("pay_1", 4500), 400, refused("bad_request")},
		{"POST /refunds", "r-1", refundBody("pay_1", 4500), 201, given}, // refused calls leave their key free
		{"POST /refunds", "r-1", refundBody("pay_1", 4500), 200, given},
		{"POST /refunds", "r-1", refundBody("pay_1", 4499), 422, refused("key_reused")},
		{"POST /refunds", "r-1", refundBody("pay_2", 4500), 422, refused("key_reused")},
		{"POST /refunds", "r-2", refundBody("pay_1", 4500), 200, given},
		{"POST /refunds", "r-3", refundBody("pay_1", 1), 200, given},
		{"POST /refunds", "r-4", refundBody("pay_1", 4501), 422, refused("amount_too_large")},
	})
	l := ledger(t, h)
	want := []payments.Refund{{RefundID: "re_1", PaymentID: "pay_1", Amount: 4500, Currency: "EUR", Keys: []string{"r-1", "r-2", "r-3"}, Posts: 8, Accepted: 4}}
	for i := range l.Refunds {
		l.Refunds[i].AtMS = 0
	}
	if diff := cmp.Diff(want, l.Refunds); diff != "" {
		t.Error(diff)
	}
	if got, want := told(l), "1 captured pay_1, 2 declined pay_2, 3 refunded pay_1"; got != want {
		t.Errorf("callbacks: %s, want %s", got, want)
	}
}

// told is the ledger's callbacks in short, those that are not due in brackets.
func told(l payments.Ledger) string {
	words := make([]string, len(l.Callbacks))
	for i, c := range l.Callbacks {
		words[i] = fmt.Sprintf("%d %s %s", c.Seq, strings.TrimPrefix(c.Type, "payment."), c.PaymentID)
		if !c.Due {
			words[i] = "(" + words[i] + ")"
		}
	}
	return strings.Join(words, ", ")
}

func TestOutages(t *testing.T) {
	h := payments.New(1)
	two, all, none := 2, -1, 0
	charge(t, h, "c-1", "card-1")
	down, failing, bad := refused("down"), refused("failing"), refused("bad_request")
	configure(t, h, payments.Config{Mode: payments.Down})
	walk(t, h, []step{
		{"POST /charges", "c-2", chargeBody("c-2", "card-1"), 503, down}, {"GET /charges/c-1", "", "", 503, down}, {"POST /refunds", "r-1", refundBody("pay_1", 1), 503, down},
	})
	configure(t, h, payments.Config{Mode: payments.Up, ChargeFailFirst: &two, AskFailFirst: &all, RefundFailFirst: &two})
	walk(t, h, []step{
		{"POST /charges", "c-2", chargeBody("c-2", "card-1"), 503, failing},
		{"POST /charges", "c-2", `{`, 503, failing},
		{"POST /charges", "c-2", `{`, 400, bad},
		{"GET /charges/c-1", "", "", 503, failing},
		{"GET /charges/c-1", "", "", 503, failing},
		{"GET /charges/c-1", "", "", 503, failing},
		{"POST /refunds", "r-1", refundBody("pay_1", 1), 503, failing},
		{"POST /refunds", "r-2", refundBody("pay_1", 1), 503, failing},
		{"POST /refunds", "r-1", `{`, 400, bad},
	})
	configure(t, h, payments.Config{AskFailFirst: &none})
	walk(t, h, []step{{"GET /charges/c-2", "", "", 404, refused("unknown")}})
	if l := ledger(t, h); len(l.Payments) != 1 || len(l.Refunds) != 0 {
		t.Errorf("an outage let something through: %+v", l)
	}
}

// atOnce makes n calls at once and gives how often each status came.
func atOnce(n int, do func(i int) int) map[int]int {
	var all sync.WaitGroup
	statuses := make([]int, n)
	for i := range n {
		all.Go(func() { statuses[i] = do(i) })
	}
	all.Wait()
	count := map[int]int{}
	for _, s := range statuses {
		count[s]++
	}
	return count
}

func TestSameKeyAtOnceIsOnePayment(t *testing.T) {
	for _, latency := range []float64{0, 20} {
		h := payments.New(1)
		configure(t, h, payments.Config{Default: &payments.Behaviour{LatencyMS: latency}, RefundLatencyMS: &latency})
		const n = 100
		got := atOnce(n, func(i int) int {
			status, _ := charge(t, h, "c-1", "card-1")
			if i%10 == 0 {
				_ = ledger(t, h) // while others write
			}
			return status
		})
		if got[201] != 1 || got[200]+got[409] != n-1 {
			t.Errorf("charges, %g ms: %v", latency, got)
		}
		got = atOnce(n, func(int) int {
			status, _ := call(t, h, "POST", "/refunds", "r-1", refundBody("pay_1", 4500))
			return status
		})
		if got[201] != 1 || got[200]+got[409] != n-1 {
			t.Errorf("refunds, %g ms: %v", latency, got)
		}
		l := ledger(t, h)
		if len(l.Payments) != 1 || l.Payments[0].Posts != n || len(l.Refunds) != 1 || l.Refunds[0].Posts != n || len(l.Refunds[0].Keys) != 1 || len(l.Callbacks) != 2 {
			t.Errorf("ledger after %d calls each: %+v", n, l)
		}
	}
}

// Under as many keys as calls, there are as many payments, in an unbroken
// order, and one refund.
func TestOtherKeysAtOnce(t *testing.T) {
	h := payments.New(1)
	const n = 100
	got := atOnce(n, func(i int) int {
		status, _ := call(t, h, "POST", "/charges", fmt.Sprint("k-", i), chargeBody("c-1", "card-1"))
		if i%10 == 0 {
			_ = ledger(t, h) // while others write
		}
		return status
	})
	refunds := atOnce(n, func(i int) int {
		status, _ := call(t, h, "POST", "/refunds", fmt.Sprint("k-", i), refundBody("pay_1", 4500))
		if i%10 == 0 {
			_ = ledger(t, h) // while others write
		}
		return status
	})
	if got[201] != n || refunds[201] != 1 || refunds[200] != n-1 {
		t.Errorf("charges %v, refunds %v", got, refunds)
	}
	l := ledger(t, h)
	if len(l.Payments) != n || len(l.Refunds) != 1 || len(l.Refunds[0].Keys) != n || l.Refunds[0].Accepted != n {
		t.Fatalf("ledger: %d payments, refunds %+v", len(l.Payments), l.Refunds)
	}
	for i, p := range l.Payments {
		if p.PaymentID != fmt.Sprintf("pay_%d", i+1) || p.Status != payments.Captured || p.CreatedMS <= 0 || p.DecidedMS < p.CreatedMS {
			t.Errorf("payment %d: %+v", i+1, p)
		}
	}
}

// While the first call is worked on the same key is told so; a charge is not
// known before it is accepted, which is at half time.
func TestFirstCallInWork(t *testing.T) {
	h := payments.New(1)
	card(t, h, "slow", payments.Behaviour{Answer: payments.Slow, LatencyMS: 1200})
	watch := clock.New()
	first := make(chan string, 1)
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		status, answer := charge(t, h, "c-1", "slow")
		first <- fmt.Sprint(status, " ", answer)
	})
	arrived := func(context.Context) (bool, string, error) {
		s := statsOf(t, h)
		return s.Calls["POST /charges"] == 1, fmt.Sprint(s.Calls), nil
	}
	if err := clock.Await(t.Context(), "the first call to arrive", 10*time.Second, time.Millisecond, arrived); err != nil {
		t.Fatal(err)
	}
	walk(t, h, []step{{"GET /charges/c-1", "", "", 404, refused("unknown")}})
	accepted := func(context.Context) (bool, string, error) {
		status, answer := call(t, h, "GET", "/charges/c-1", "", "")
		return status == 200, answer, nil
	}
	if err := clock.Await(t.Context(), "the charge to be accepted", 10*time.Second, time.Millisecond, accepted); err != nil {
		t.Fatal(err)
	}
	if took := watch.Now(); took < 600*time.Millisecond {
		t.Errorf("accepted after %s", took)
	}
	walk(t, h, []step{
		{"POST /charges", "c-1", chargeBody("c-1", "slow"), 409, refused("in_progress")},
		{"POST /charges", "c-1", chargeBody("c-1", "other"), 422, refused("key_reused")},
	})
	if got := <-first; got != "201 "+payment(1, "c-1", "captured") || watch.Now() < 1200*time.Millisecond {
		t.Errorf("the first call got %s after %s", got, watch.Now())
	}
	if l := ledger(t, h); l.Payments[0].Posts != 2 {
		t.Errorf("ledger: %+v", l.Payments)
	}
}

// The run stores the ledger as plain rows: these are the columns that checks
// read, and a check can have the ledger back.
func TestLedgerRows(t *testing.T) {
	h := payments.New(1)
	charge(t, h, "c-1", "card-1")
	call(t, h, "POST", "/refunds", "r-1", refundBody("pay_1", 4500))
	_, text := call(t, h, "GET", "/__double/ledger", "", "")
	var rows []harness.Row
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	back, err := payments.LedgerOf(rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := range back.Callbacks { // the fields of the body lost their order
		back.Callbacks[i].Body = ledger(t, h).Callbacks[i].Body
	}
	if diff := cmp.Diff(ledger(t, h), back); diff != "" {
		t.Error(diff)
	}
	for _, row := range rows {
		for _, at := range []string{"at_ms", "created_ms", "decided_ms"} {
			delete(row, at)
		}
	}
	body := func(id, kind string) map[string]any {
		return map[string]any{"event_id": id, "type": kind, "payment_id": "pay_1", "reference": "c-1", "intent": "hold-c-1", "amount": 4500.0, "currency": "EUR"}
	}
	callback := func(seq float64, id, kind string) harness.Row {
		return harness.Row{
			"row": "callback", "seq": seq, "event_id": id, "type": kind, "payment_id": "pay_1", "card": "card-1", "body": body(id, kind),
			"due": true, "lost": false, "copies": 1.0, "reversed": false, "crossed": false,
		}
	}
	want := []harness.Row{
		{
			"row": "payment", "payment_id": "pay_1", "reference": "c-1", "intent": "hold-c-1", "amount": 4500.0, "currency": "EUR", "card": "card-1",
			"status": "captured", "captured": 4500.0, "key": "c-1", "posts": 1.0,
		},
		{"row": "refund", "refund_id": "re_1", "payment_id": "pay_1", "amount": 4500.0, "currency": "EUR", "keys": []any{"r-1"}, "posts": 1.0, "accepted": 1.0},
		callback(1, "evt_1", "payment.captured"), callback(2, "evt_2", "payment.refunded"),
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{}`, `[{"row":"cheque"}]`, `[{}]`, `[{"row":"payment","amount":1.5}]`} {
		if err := json.Unmarshal([]byte(bad), new(payments.Ledger)); err == nil {
			t.Errorf("%s was read as a ledger", bad)
		}
	}
}
