package tickets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// What the provider tells of.
const (
	eventCaptured = "payment.captured"
	eventDeclined = "payment.declined"
	eventRefunded = "payment.refunded"
)

// A callback is what the provider tells, at least once.
type callback struct {
	Event     string `json:"event_id"` // the same in every copy
	Type      string `json:"type"`
	Payment   string `json:"payment_id"`
	Reference string `json:"reference"`
	Intent    string `json:"intent"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

// plainID is what the provider's ids are made of.
var plainID = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)

func (e callback) check() error {
	for _, id := range []string{e.Event, e.Type, e.Payment, e.Reference, e.Intent} {
		if !plainID.MatchString(id) {
			return httpapi.BadRequest.With("event_id, type, payment_id, reference and intent must be 1 to 200 visible ASCII characters each").Err()
		}
	}
	if e.Amount < 1 || !plainCurrency.MatchString(e.Currency) {
		return httpapi.BadRequest.With("amount must be 1 or more, in minor units, and currency three capital letters").Err()
	}
	if e.Type != eventCaptured && e.Type != eventDeclined && e.Type != eventRefunded {
		return unknownEvent.Err()
	}
	return nil
}

// serveCallback serves POST /tickets/provider-callbacks. Its callers have no
// token: the signature says who they are.
func (s *Service) serveCallback(w http.ResponseWriter, r *http.Request) {
	answer, err := s.callback(r)
	if err != nil {
		p, ok := httpapi.ProblemOf(err)
		if !ok {
			p = s.problemOf(r, err)
		}
		answer = p.Answer()
	}
	s.meters.answered("callback", answer.Kind)
	answer.Send(w)
}

func (s *Service) callback(r *http.Request) (httpapi.Answer, error) {
	e, err := s.signed(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	id, ok := orderID(e.Intent)
	if !ok {
		return httpapi.Answer{}, unknownPayment.Err()
	}
	var result string
	err = s.store.changeOrder(r.Context(), id, causeOf(httpapi.CauseOf(r), actorProvider), func(ctx context.Context, o *order) (bool, error) {
		seen, err := database.Rows(ctx, o.tx, pgx.RowTo[bool], sqlSeen, e.Event)
		if err != nil {
			return false, err
		}
		if len(seen) > 0 {
			result = resultDuplicate
			return false, nil
		}
		if result, err = s.apply(ctx, o, e); err != nil {
			return false, err
		}
		return true, o.remember(ctx, e, result)
	})
	if errors.Is(err, errNoOrder) {
		err = unknownPayment.Err()
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	return httpapi.JSON(http.StatusOK, map[string]string{"result": result}), nil
}

// signed reads a callback. Nothing of it is looked at before the signature
// over its bytes was.
func (s *Service) signed(r *http.Request) (callback, error) {
	raw, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return callback{}, httpapi.TooLarge.Err()
	}
	if err != nil {
		return callback{}, httpapi.BadRequest.With("the body ends early").Err()
	}
	if err := verify(r.Header, raw, s.cfg.CallbackSecret, s.cfg.Clock.Now(), s.cfg.CallbackWindow); err != nil {
		return callback{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	var e callback
	if err := asked(r, &e); err != nil {
		return callback{}, err
	}
	return e, e.check()
}

func (s *Service) apply(ctx context.Context, o *order, e callback) (string, error) {
	now := s.cfg.Clock.Now()
	p := payment{ID: e.Payment, Reference: e.Reference, Intent: e.Intent, Amount: e.Amount, Currency: e.Currency}
	switch e.Type {
	case eventRefunded:
		return o.refundDone(ctx, now, e.Payment)
	case eventCaptured:
		p.Status = paymentCaptured
	case eventDeclined:
		p.Status = declined
	}
	return o.outcome(ctx, now, p, byCallback)
}

// remember stores that the event was taken, together with what it changed. Its
// copies wait for the order's lock and then find it. One that tells of another
// order has not waited: it begins anew, and finds it then.
func (o *order) remember(ctx context.Context, e callback, result string) error {
	_, err := o.tx.Exec(ctx, sqlEvent, e.Event, e.Type, e.Payment, e.Intent, result, o.cfg.Clock.Now())
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
		return database.ErrAgain
	}
	return err
}
