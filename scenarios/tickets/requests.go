package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// The kinds of operations, as reports and checks know them. Others are given
// to requests that a check must tell from these.
const (
	kindCreate   = "create-show"
	kindClaim    = "claim"
	kindBest     = "claim-best"
	kindRelease  = "release"
	kindCharge   = "charge"
	kindOrder    = "order"
	kindSeats    = "seats"
	kindDesync   = "desync"
	kindRefund   = "refund-now"
	kindCallback = "callback"
	kindClock    = "clock"
)

// Clients that are no members: members have the numbers below these.
const (
	staffProcess   = 100_000
	courierProcess = 200_000
	clockProcess   = 300_000
)

const callbackPath = "/tickets/provider-callbacks"

func member(n int) string { return "member-" + strconv.Itoa(n+1) }

func staff(n int) string { return "staff-" + strconv.Itoa(n+1) }

// ask is a request without a body.
func ask(kind string, process int, who, method, path string) harness.Request {
	return harness.Request{Kind: kind, Process: process, Caller: who, Method: method, Path: path, Header: answers.Bearer(who)}
}

// post is a request with a body.
func post(kind string, process int, who, path string, body any) harness.Request {
	r := ask(kind, process, who, http.MethodPost, path)
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // numbers and words always marshal
	}
	r.Body = text
	return r
}

func showPath(id int64) string { return fmt.Sprintf("/tickets/shows/%d", id) }

// claim is the request for a seat by its name.
func claim(process int, who string, show int64, seat string) harness.Request {
	return post(kindClaim, process, who, showPath(show)+"/holds", map[string]any{"seat": seat})
}

// claimBest is the request for the best seat that is free.
func claimBest(process int, who string, show int64) harness.Request {
	return post(kindBest, process, who, showPath(show)+"/holds", map[string]any{"best_available": true})
}

// release is the request that gives a hold up.
func release(process int, who, holdID string) harness.Request {
	return ask(kindRelease, process, who, http.MethodDelete, "/tickets/holds/"+holdID)
}

// charge is the request that charges a card for a hold.
func charge(process int, who, holdID, card string) harness.Request {
	return post(kindCharge, process, who, "/tickets/holds/"+holdID+"/charges", map[string]any{"card": card})
}

// order asks for an order, which has the id of its hold.
func order(process int, who, holdID string) harness.Request {
	return ask(kindOrder, process, who, http.MethodGet, "/tickets/orders/"+holdID)
}

func seats(process int, who string, show int64) harness.Request {
	return ask(kindSeats, process, who, http.MethodGet, showPath(show)+"/seats")
}

// desync has staff ask for captured money without a seat.
func desync() harness.Request {
	return ask(kindDesync, staffProcess, staff(0), http.MethodGet, "/tickets/ops/desync")
}

// refundNow has staff try a refund at once.
func refundNow(process int, who, paymentID string, amount int64) harness.Request {
	return post(kindRefund, process, who, "/tickets/ops/refunds", map[string]any{"payment_id": paymentID, "amount": amount})
}

// A show is chosen by the plan.
type show struct {
	ID       int64    `json:"show_id"`
	Seats    []string `json:"seats"` // best first
	Price    int64    `json:"price"` // minor units
	Currency string   `json:"currency"`
	Policy   string   `json:"policy"`
}

// createShow is the request with which staff put a show on sale at the instant.
func createShow(s show, onSaleAt time.Time) harness.Request {
	return post(kindCreate, staffProcess, staff(0), "/tickets/shows", map[string]any{
		"show_id": s.ID, "on_sale_at": onSaleAt.UTC().Format(time.RFC3339Nano), "price": s.Price, "currency": s.Currency, "policy": s.Policy, "seats": s.Seats,
	})
}

// onSale creates the shows, on sale for an hour already. It is not part of the race.
func onSale(ctx context.Context, env harness.Env, shows ...show) error {
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	for _, s := range shows {
		if op := env.Do(ctx, createShow(s, now.Add(-time.Hour))); op.Status != http.StatusCreated {
			return fmt.Errorf("create show %d: got %d %s %s, want 201", s.ID, op.Status, op.Err, op.Output)
		}
	}
	return nil
}

// A holdAnswer is what the answer to a claim says.
type holdAnswer struct {
	HoldID    string    `json:"hold_id"`
	ShowID    int64     `json:"show_id"`
	Seat      string    `json:"seat"`
	State     string    `json:"state"`
	ExpiresAt time.Time `json:"expires_at"`
	Amount    int64     `json:"amount"`
	Currency  string    `json:"currency"`
}

// holdOf reads a 201 to a claim.
func holdOf(op harness.Operation) (holdAnswer, error) {
	var h holdAnswer
	if op.Status != http.StatusCreated {
		return h, fmt.Errorf("%s of %s: got %d %s %s, want 201", op.Kind, op.Caller, op.Status, op.Err, op.Output)
	}
	return h, op.Decode(&h)
}

// claimed makes a hold that is not part of the race.
func claimed(ctx context.Context, env harness.Env, r harness.Request) (holdAnswer, error) {
	return holdOf(env.Do(ctx, r))
}

// A chargeAnswer is what the answer to a charge says, 201, 202 or 409.
type chargeAnswer struct {
	HoldID    string `json:"hold_id"`
	ChargeID  string `json:"charge_id"`
	State     string `json:"state"`
	HoldState string `json:"hold_state"`
	Seat      string `json:"seat"`
}

// chargeOf reads a 201 or a 202 to a charge.
func chargeOf(op harness.Operation) (chargeAnswer, error) {
	var c chargeAnswer
	if op.Status != http.StatusCreated && op.Status != http.StatusAccepted {
		return c, fmt.Errorf("%s of %s: got %d %s %s, want 201 or 202", op.Kind, op.Caller, op.Status, op.Err, op.Output)
	}
	return c, op.Decode(&c)
}

// An orderAnswer is what the answer to a question for it says.
type orderAnswer struct {
	HoldID        string    `json:"hold_id"`
	ShowID        int64     `json:"show_id"`
	Seat          string    `json:"seat"`
	Login         string    `json:"login"`
	State         string    `json:"state"`
	CreatedAt     time.Time `json:"created_at"`
	ExpiresAt     time.Time `json:"expires_at"`
	Amount        int64     `json:"amount"`
	Currency      string    `json:"currency"`
	WinningCharge *string   `json:"winning_charge"`
	Charges       []struct {
		ChargeID  string  `json:"charge_id"`
		PaymentID *string `json:"payment_id"`
		State     string  `json:"state"`
		Amount    int64   `json:"amount"`
		Captured  *int64  `json:"captured"`
	} `json:"charges"`
	Refunds []struct {
		RefundID  string `json:"refund_id"`
		ChargeID  string `json:"charge_id"`
		PaymentID string `json:"payment_id"`
		Amount    int64  `json:"amount"`
		State     string `json:"state"`
	} `json:"refunds"`
	Notices []string `json:"notices"`
}

// orderOf reads a 200 to a question for an order.
func orderOf(op harness.Operation) (orderAnswer, error) {
	var o orderAnswer
	if op.Status != http.StatusOK {
		return o, fmt.Errorf("%s of %s: got %d %s %s, want 200", op.Kind, op.Caller, op.Status, op.Err, op.Output)
	}
	return o, op.Decode(&o)
}

// A seatsAnswer is what the answer to a question for a show's seats says.
type seatsAnswer struct {
	ShowID int64 `json:"show_id"`
	Seats  []struct {
		Seat  string `json:"seat"`
		State string `json:"state"`
	} `json:"seats"`
	Free        int `json:"free"`
	Held        int `json:"held"`
	Quarantined int `json:"quarantined"`
	Sold        int `json:"sold"`
}
