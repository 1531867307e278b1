package tickets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A reaction is how the fake provider treats a card.
type reaction string

const (
	captures   reaction = "captures"   // and says so
	declines   reaction = "declines"   // and says so
	waits      reaction = "waits"      // pending
	silent     reaction = "silent"     // takes it, drops the connection
	refuses    reaction = "refuses"    // 400
	working    reaction = "working"    // 409
	down       reaction = "down"       // 503
	nonsense   reaction = "nonsense"   // 201 of something else
	otherMoney reaction = "othermoney" // captures less
)

// fakePayments is the payment provider, over HTTP.
type fakePayments struct {
	url string

	mu    sync.Mutex
	cards map[string]reaction
	gates map[string]chan struct{} // a card's charges wait until it is closed
	calls []providerCall
	at    chan string // gets the card of every charge that waits at a gate
}

// A providerCall is a charge as it came over the wire.
type providerCall struct {
	key, op, traceparent, contentType string
	Reference, Intent, Currency, Card string
	Amount                            int64
	payment                           string
}

func newFakePayments(t *testing.T) *fakePayments {
	t.Helper()
	f := &fakePayments{cards: map[string]reaction{}, gates: map[string]chan struct{}{}, at: make(chan string, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(f.serve))
	f.url = srv.URL + "/payments"
	t.Cleanup(func() {
		f.mu.Lock()
		for card, gate := range f.gates {
			close(gate)
			delete(f.gates, card)
		}
		f.mu.Unlock()
		srv.CloseClientConnections()
		srv.Close()
	})
	return f
}

func (f *fakePayments) on(card string, r reaction) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cards[card] = r
}

// gate has the card's charges wait until the function is called.
func (f *fakePayments) gate(card string) (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[card] = make(chan struct{})
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if gate, ok := f.gates[card]; ok {
			close(gate)
			delete(f.gates, card)
		}
	}
}

// charges are the charges that came.
func (f *fakePayments) charges() []providerCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]providerCall(nil), f.calls...)
}

func (f *fakePayments) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/payments/charges" || r.Method != http.MethodPost {
		http.Error(w, `{"error":"unknown"}`, http.StatusNotFound)
		return
	}
	c := providerCall{
		key: r.Header.Get("Idempotency-Key"), op: r.Header.Get("X-Overbook-Op"), traceparent: r.Header.Get("Traceparent"), contentType: r.Header.Get("Content-Type"),
	}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	c.payment = fmt.Sprintf("pay_%d", len(f.calls)+1)
	f.calls = append(f.calls, c)
	how, gate := f.cards[c.Card], f.gates[c.Card]
	f.mu.Unlock()
	if gate != nil {
		f.at <- c.Card
		<-gate
	}
	f.answer(w, c, how)
}

func (f *fakePayments) answer(w http.ResponseWriter, c providerCall, how reaction) {
	told := payment{ID: c.payment, Reference: c.Reference, Intent: c.Intent, Amount: c.Amount, Currency: c.Currency, Status: paymentCaptured}
	status := http.StatusCreated
	switch how {
	case silent:
		panic(http.ErrAbortHandler)
	case declines:
		told.Status = declined
	case waits:
		told.Status = pending
	case refuses:
		status, told = http.StatusBadRequest, payment{}
	case working:
		status, told = http.StatusConflict, payment{}
	case down:
		status, told = http.StatusServiceUnavailable, payment{}
	case nonsense:
		told.Intent = strings.ToUpper(told.Intent)
	case otherMoney:
		told.Amount--
	case captures:
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(told)
}
