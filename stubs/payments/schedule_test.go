package payments_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/payments"
)

// Each step configures or calls, then the ledger must tell so much.
func TestSchedules(t *testing.T) {
	held, lost := payments.Behaviour{Callbacks: payments.Held}, payments.Behaviour{Callbacks: payments.Lost}
	twice := []string{payments.Declined, payments.Captured}
	decide := func(d payments.Decision) payments.Config { return payments.Config{Decide: []payments.Decision{d}} }
	release := func(cards ...string) payments.Config { return payments.Config{Release: cards} }
	for name, tc := range map[string]struct {
		b     payments.Behaviour // of card-1
		then  []payments.Config
		now   string // told after two charges, one each of card-1 and card-2
		after string // and after then
	}{
		"at once": {payments.Behaviour{}, nil, "1 captured pay_1, 2 captured pay_2", "1 captured pay_1, 2 captured pay_2"},
		"held until released": {
			held,
			[]payments.Config{release("card-2"), release("card-1")},
			"(1 captured pay_1), 2 captured pay_2", "1 captured pay_1, 2 captured pay_2",
		},
		"another card's release does nothing": {held, []payments.Config{release("card-2", "nobody")}, "(1 captured pay_1), 2 captured pay_2", "(1 captured pay_1), 2 captured pay_2"},
		"everything released":                 {held, []payments.Config{release("*")}, "(1 captured pay_1), 2 captured pay_2", "1 captured pay_1, 2 captured pay_2"},
		"lost is for ever":                    {lost, []payments.Config{release("*")}, "(1 captured pay_1), 2 captured pay_2", "(1 captured pay_1), 2 captured pay_2"},
		"decision held, named by its card": {
			payments.Behaviour{Decide: payments.Held},
			[]payments.Config{decide(payments.Decision{Card: "card-1"})},
			"1 captured pay_2", "1 captured pay_2, 2 captured pay_1",
		},
		"decision held, declined by its reference": {
			payments.Behaviour{Decide: payments.Held},
			[]payments.Config{decide(payments.Decision{Reference: "c-1", Outcome: payments.Declined})},
			"1 captured pay_2", "1 captured pay_2, 2 declined pay_1",
		},
		"decided, but the callback stays held": {
			payments.Behaviour{Decide: payments.Held, Callbacks: payments.Held},
			[]payments.Config{decide(payments.Decision{Card: "card-1"})},
			"1 captured pay_2", "1 captured pay_2, (2 captured pay_1)",
		},
		"release decides, too": {
			payments.Behaviour{Decide: payments.Held, Callbacks: payments.Held},
			[]payments.Config{release("card-1")},
			"1 captured pay_2", "1 captured pay_2, 2 captured pay_1",
		},
		"declined, then captured when named": {
			payments.Behaviour{Attempts: twice},
			[]payments.Config{decide(payments.Decision{Card: "card-1"})},
			"1 declined pay_1, 2 captured pay_2", "1 declined pay_1, 2 captured pay_2, 3 captured pay_3",
		},
		"declined, then captured, both decisions held": {
			payments.Behaviour{Attempts: twice, Decide: payments.Held},
			[]payments.Config{decide(payments.Decision{Card: "card-1"}), decide(payments.Decision{Reference: "c-1"})},
			"1 captured pay_2", "1 captured pay_2, 2 declined pay_1, 3 captured pay_3",
		},
		"all attempts at once": {
			payments.Behaviour{Attempts: twice, AttemptsAtOnce: true},
			nil,
			"1 declined pay_1, 2 captured pay_2, 3 captured pay_3", "1 declined pay_1, 2 captured pay_2, 3 captured pay_3",
		},
		"all attempts at release": {
			payments.Behaviour{Attempts: twice, AttemptsAtOnce: true, Decide: payments.Held, Callbacks: payments.Held},
			[]payments.Config{release("*")},
			"1 captured pay_2", "1 captured pay_2, 2 declined pay_1, 3 captured pay_3",
		},
		"crossed": {
			held,
			[]payments.Config{{Cross: []payments.Crossing{{Card: "card-1", Other: "card-2"}}}},
			"(1 captured pay_1), 2 captured pay_2", "(1 captured pay_1), 2 captured pay_2, 3 captured pay_1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := payments.New(1)
			card(t, h, "card-1", tc.b)
			charge(t, h, "c-1", "card-1")
			charge(t, h, "c-2", "card-2")
			now := told(ledger(t, h))
			if now != tc.now {
				t.Errorf("at first %s, want %s", now, tc.now)
			}
			for _, c := range tc.then {
				configure(t, h, c)
			}
			if after := told(ledger(t, h)); after != tc.after {
				t.Errorf("then %s, want %s", after, tc.after)
			}
		})
	}
}

// The second attempt is the provider's own: another payment under the same
// reference and intent, which the key does not stand for.
func TestSecondAttempt(t *testing.T) {
	h := payments.New(1)
	card(t, h, "card-1", payments.Behaviour{Attempts: []string{payments.Declined, payments.Captured}})
	if status, answer := charge(t, h, "c-1", "card-1"); status != 201 || answer != payment(1, "c-1", "declined") {
		t.Errorf("the charge: %d %s", status, answer)
	}
	again := payments.Config{Decide: []payments.Decision{{Reference: "c-1"}}}
	configure(t, h, again)
	walk(t, h, []step{
		{"POST /charges", "c-1", chargeBody("c-1", "card-1"), 200, payment(1, "c-1", "declined")},
		{"GET /charges/c-1", "", "", 200, `{"payments":[` + payment(1, "c-1", "declined") + "," + payment(2, "c-1", "captured") + `],"reference":"c-1"}`},
		{"POST /__double/config", "", `{"decide":[{"reference":"c-1"}]}`, 400, refused("configure payments: decide: no payment of c-1 is pending, and no attempt is left; look at the ledger first")},
	})
	l := ledger(t, h)
	if own := l.Payments[1]; own.Key != "" || own.Posts != 0 || own.Intent != "hold-c-1" || own.Captured != 4500 || l.Payments[0].Posts != 2 || l.Payments[0].Captured != 0 {
		t.Errorf("payments: %+v", l.Payments)
	}
}

func TestCallbackBodies(t *testing.T) {
	h := payments.New(1)
	card(t, h, "short", payments.Behaviour{CaptureAmount: 4000, Copies: 3, Reversed: true, Callbacks: payments.Held})
	charge(t, h, "c-1", "short")
	charge(t, h, "c-2", "card-2")
	configure(t, h, payments.Config{Cross: []payments.Crossing{{Card: "short", Other: "card-2"}}})
	walk(t, h, []step{{"POST /refunds", "r-1", refundBody("pay_1", 4500), 422, refused("amount_too_large")}})
	call(t, h, "POST", "/refunds", "r-2", refundBody("pay_1", 4000))
	var got []string
	for _, c := range ledger(t, h).Callbacks {
		got = append(got, fmt.Sprintf("%s %s x%d reversed=%t crossed=%t due=%t %s", c.EventID, c.Card, c.Copies, c.Reversed, c.Crossed, c.Due, c.Body))
	}
	body := func(id, kind, payment, reference string, amount int) string {
		return fmt.Sprintf(`{"event_id":%q,"type":"payment.%s","payment_id":%q,"reference":%q,"intent":"hold-%s","amount":%d,"currency":"EUR"}`, id, kind, payment, reference, reference, amount)
	}
	want := []string{
		"evt_1 short x3 reversed=true crossed=false due=false " + body("evt_1", "captured", "pay_1", "c-1", 4000),
		"evt_2 card-2 x1 reversed=false crossed=false due=true " + body("evt_2", "captured", "pay_2", "c-2", 4500),
		"evt_3 short x3 reversed=true crossed=true due=true " + body("evt_3", "captured", "pay_1", "c-2", 4000),
		"evt_4 short x3 reversed=true crossed=false due=false " + body("evt_4", "refunded", "pay_1", "c-1", 4000),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if l := ledger(t, h); l.Payments[0].Amount != 4500 || l.Payments[0].Captured != 4000 {
		t.Errorf("payment: %+v", l.Payments[0])
	}
}

func TestSign(t *testing.T) {
	body, at := []byte(`{"event_id":"evt_1"}`), time.Unix(1_798_099_200, 999_000_000)
	mac := hmac.New(sha256.New, []byte("a secret of sixteen"))
	mac.Write([]byte(`1798099200.{"event_id":"evt_1"}`))
	want := "t=1798099200,v1=" + hex.EncodeToString(mac.Sum(nil))
	if got := payments.Sign("a secret of sixteen", at, body); got != want {
		t.Errorf("signed %s, want %s", got, want)
	}
	for _, other := range []string{
		payments.Sign("another of sixteen", at, body), payments.Sign("a secret of sixteen", at.Add(time.Second), body), payments.Sign("a secret of sixteen", at, body[1:]),
	} {
		if other == want {
			t.Error("another secret, time or body has the same signature")
		}
	}
}

func TestConfigIsMergedAndWrongOnesChangeNothing(t *testing.T) {
	h := payments.New(1)
	card(t, h, "a", payments.Behaviour{Decide: payments.Held})
	card(t, h, "b", payments.Behaviour{Callbacks: payments.Lost, Copies: 2})
	card(t, h, "a", payments.Behaviour{Attempts: []string{payments.Declined, payments.Captured}})
	card(t, h, "held", payments.Behaviour{Decide: payments.Held})
	charge(t, h, "c-1", "a")
	charge(t, h, "c-2", "held")
	_, before := call(t, h, "GET", "/__double/config", "", "")
	of := func(attempts, callbacks string, copies int) string {
		return fmt.Sprintf(`{"answer":"final","decide":"at-once","attempts":[%s],"callbacks":%q,"copies":%d}`, attempts, callbacks, copies)
	}
	want := `{"mode":"up","default":` + of(`"captured"`, "at-once", 1) +
		`,"cards":{"a":` + of(`"declined","captured"`, "at-once", 1) + `,"b":` + of(`"captured"`, "lost", 2) +
		`,"held":` + strings.Replace(of(`"captured"`, "at-once", 1), `"decide":"at-once"`, `"decide":"held"`, 1) +
		`},"charge_fail_first":0,"ask_fail_first":0,"refund_fail_first":0,"refund_answer":"final","refund_first":-1,"refund_latency_ms":0,"silence_ms":7000}`
	if before != want {
		t.Errorf("config: %s\nwant    %s", before, want)
	}
	_, rows := call(t, h, "GET", "/__double/ledger", "", "")
	for _, bad := range []string{
		`{"mod": "down"}`, `{"mode": "sideways"}`, `{"refund_fail_first": -2}`, `{"refund_fail_first": 1.5}`, `{"refund_answer": "slow"}`, `{"refund_first": -2}`,
		`{"silence_ms": 1e9}`, `{"refund_latency_ms": -1}`, `{"cards": {"": {}}}`, `{"cards": {"*": {}}}`, `{"cards": {"a": {"answer": "late"}}}`,
		`{"default": {"answer": "slow"}}`, `{"default": {"decide": "later"}}`, `{"default": {"attempts": ["pending"]}}`, `{"default": {"attempts": [""]}}`,
		`{"default": {"callbacks": "none"}}`, `{"default": {"copies": 101}}`, `{"default": {"copies": -1}}`, `{"default": {"latency_ms": 30001}}`,
		`{"default": {"capture_amount": -1}}`, `{"default": {"capture_amount": 1.5}}`, `{"decide": [{}]}`, `{"decide": [{"card": "a", "reference": "c-1"}]}`,
		`{"decide": [{"card": "a", "outcome": "pending"}]}`, `{"cross": [{"card": "a"}]}`, `{"cross": [{"card": "a", "other": "a"}]}`, `{"release": [""]}`,
		`{"mode": "down", "decide": [{"card": "a"}, {"card": "b"}]}`, `{"cards": {"a": {}}, "decide": [{"card": "a"}]}`, `{"decide": [{"card": "held"}, {"card": "b"}]}`,
		`{"decide": [{"card": "a"}], "cross": [{"card": "a", "other": "b"}]}`, `{} {}`, `[]`, ``,
	} {
		if status, answer := call(t, h, "POST", "/__double/config", "", bad); status != 400 || !strings.Contains(answer, "configure payments") {
			t.Errorf("%s: %d %s", bad, status, answer)
		}
	}
	if _, after := call(t, h, "GET", "/__double/config", "", ""); after != before {
		t.Errorf("a refused change changed the configuration to %s", after)
	}
	if _, after := call(t, h, "GET", "/__double/ledger", "", ""); after != rows {
		t.Errorf("a refused change changed the ledger from\n%s\nto\n%s", rows, after)
	}
}

// A payment that is pending has nothing to tell, not even of another order.
func TestCrossingNeedsADecision(t *testing.T) {
	h := payments.New(1)
	card(t, h, "a", payments.Behaviour{Decide: payments.Held})
	charge(t, h, "c-1", "a")
	charge(t, h, "c-2", "b")
	for change, want := range map[string]string{
		`{"cross":[{"card":"a","other":"b"}]}`: "pay_1 of card a is pending",
		`{"cross":[{"card":"b","other":"c"}]}`: "must have a payment each",
	} {
		if status, answer := call(t, h, "POST", "/__double/config", "", change); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", change, status, answer)
		}
	}
	configure(t, h, payments.Config{Decide: []payments.Decision{{Card: "a"}}, Cross: []payments.Crossing{{Card: "b", Other: "a"}, {Card: "a", Other: "b"}}})
	if got, want := told(ledger(t, h)), "1 captured pay_2, 2 captured pay_1, 3 captured pay_2, 4 captured pay_1"; got != want {
		t.Errorf("callbacks: %s, want %s", got, want)
	}
}

// post calls over a real connection; status 0 is no answer.
func post(t *testing.T, url, key, body string, patience time.Duration) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(answer)
}

// An answer that is lost was decided all the same; asked again, the provider tells.
func TestLostAnswers(t *testing.T) {
	h := payments.New(1)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	card(t, h, "reset", payments.Behaviour{Answer: payments.Reset})
	card(t, h, "silent", payments.Behaviour{Answer: payments.Silent})
	one := 1
	configure(t, h, payments.Config{RefundAnswer: payments.Reset, RefundFirst: &one})
	if status, why := post(t, server.URL+"/charges", "c-1", chargeBody("c-1", "reset"), bound); status != 0 || !strings.Contains(why, "reset") {
		t.Errorf("reset: %d %s", status, why)
	}
	if status, why := post(t, server.URL+"/charges", "c-2", chargeBody("c-2", "silent"), 100*time.Millisecond); status != 0 || !strings.Contains(why, "Timeout") {
		t.Errorf("silent: %d %s", status, why)
	}
	if status, why := post(t, server.URL+"/refunds", "r-1", refundBody("pay_1", 4500), bound); status != 0 || !strings.Contains(why, "reset") {
		t.Errorf("refund: %d %s", status, why)
	}
	walk(t, h, []step{
		{"POST /charges", "c-1", chargeBody("c-1", "reset"), 200, payment(1, "c-1", "captured")},
		{"POST /charges", "c-2", chargeBody("c-2", "silent"), 200, payment(2, "c-2", "captured")},
		{"POST /refunds", "r-1", refundBody("pay_1", 4500), 200, `{"refund_id":"re_1","payment_id":"pay_1","amount":4500,"currency":"EUR","status":"succeeded"}`},
	})
	var quiet sync.WaitGroup
	defer quiet.Wait()
	watch := clock.New()
	quiet.Go(func() {
		if status, answer := post(t, server.URL+"/charges", "c-3", chargeBody("c-3", "silent"), bound); status != 504 || answer != refused("no_answer") {
			t.Errorf("a silence that was ended: %d %s", status, answer)
		}
	})
	awaitPayments(t, h, 3)
	soon := 50.0
	configure(t, h, payments.Config{SilenceMS: &soon}) // ends those that there are
	quiet.Wait()
	if took := watch.Now(); took > 6*time.Second {
		t.Errorf("the silence lasted %s", took)
	}
	if status, answer := post(t, server.URL+"/charges", "c-4", chargeBody("c-4", "silent"), bound); status != 504 {
		t.Errorf("a silence that is over: %d %s", status, answer)
	}
	if stats, err := json.Marshal(statsOf(t, h).Decisions); err != nil || !strings.Contains(string(stats), `"POST /charges 201 captured":4`) {
		t.Errorf("decisions: %s, %v", stats, err)
	}
}

func awaitPayments(t *testing.T, h http.Handler, n int) {
	t.Helper()
	err := clock.Await(t.Context(), "the payments", 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		l := ledger(t, h)
		return len(l.Payments) == n, fmt.Sprint(len(l.Payments)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
