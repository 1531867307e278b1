package tickets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/httpapi"
)

func (s *Service) postCharge(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := holdID(r, unknownHold)
	if err != nil {
		return httpapi.Answer{}, err
	}
	var in struct {
		Card string `json:"card"`
	}
	if err := asked(r, &in); err != nil {
		return httpapi.Answer{}, err
	}
	if !plainName.MatchString(in.Card) {
		return httpapi.Answer{}, httpapi.BadRequest.With(`"card" must be 1 to 64 visible ASCII characters`).Err()
	}
	// The client's leaving changes nothing of what was asked for.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(s.hard, cancel)() //nolint:contextcheck // it ends with the service instead
	by := causeOf(httpapi.CauseOf(r), who.Name)
	c, refused, err := s.beginCharge(ctx, id, who, in.Card, by)
	if err != nil || refused != nil {
		return answerOf(refused), err
	}
	p, verdict, err := s.provider.charge(ctx, c, by)
	if err != nil {
		s.log.Warn("a charge was not decided by the provider's answer", "charge", c.id, "hold", c.hold, "taken", verdict != notTaken, "error", err)
	}
	return s.endCharge(ctx, c, p, verdict, by)
}

// beginCharge stores the charge, with all that is sent, before the provider
// hears of it. A problem refuses it.
func (s *Service) beginCharge(ctx context.Context, id uuid.UUID, who httpapi.Principal, card string, by cause) (c charge, refused *httpapi.Problem, err error) {
	err = s.store.changeOrder(ctx, id, by, func(ctx context.Context, o *order) (bool, error) {
		now := s.cfg.Clock.Now()
		var ended bool
		var err error
		if ended, refused, err = o.over(ctx, who, now); err != nil || refused != nil {
			return ended, err
		}
		if other := o.inFlight(); other != nil {
			refused = chargeInFlight.WithMembers(map[string]any{"charge_id": other.id})
			return false, nil
		}
		c, err = o.beginCharge(ctx, now, card)
		return err == nil, err
	})
	if errors.Is(err, errNoOrder) {
		err = unknownHold.Err()
	}
	return c, refused, err
}

// beginCharge stores a charge as CHARGING.
func (o *order) beginCharge(ctx context.Context, now time.Time, card string) (charge, error) {
	ask := now.Add(o.cfg.ReconcileAfter)
	c := charge{
		id: uuid.New(), hold: o.hold.id, intent: o.hold.id.String(), amount: o.hold.amount, currency: o.hold.currency, card: card,
		state: chargeCharging, sentAt: now, nextAskAt: &ask, op: o.by.op, traceparent: o.by.traceparent,
	}
	err := o.one(ctx, "store the charge", sqlCharge, c.id, c.hold, c.intent, c.amount, c.currency, c.card, c.sentAt, ask, c.op, c.traceparent)
	if err != nil {
		return charge{}, err
	}
	o.note(subjectCharge, c.id.String(), "", chargeCharging, "asked for", o.by)
	return c, nil
}

// endCharge stores what the provider's answer says and tells the client what
// became of the charge, which others may have decided in the meantime. When
// that can't be stored, callbacks or reconciliation bring it once more.
func (s *Service) endCharge(ctx context.Context, sent charge, p payment, v verdict, by cause) (httpapi.Answer, error) {
	var answer httpapi.Answer
	err := s.store.changeOrder(ctx, sent.hold, by, func(ctx context.Context, o *order) (bool, error) {
		now := s.cfg.Clock.Now()
		var err error
		switch v {
		case decided, awaited:
			_, err = o.outcome(ctx, now, p, byAnswer)
		case notTaken:
			err = o.failed(ctx, now, o.chargeByID(sent.id))
		case unknown: // the order tells
		}
		answer = o.chargeAnswer(sent.id)
		return v != unknown, err
	})
	if _, ours := errors.AsType[*brokenOrder](err); ours {
		return httpapi.Answer{}, err
	}
	if err != nil {
		s.log.Warn("what became of a charge could not be stored, it will be asked about", "charge", sent.id, "hold", sent.hold, "error", err)
		return outcomeUnknown.Answer(), nil
	}
	return answer, nil
}

// chargeAnswer tells what became of a charge.
func (o *order) chargeAnswer(id uuid.UUID) httpapi.Answer {
	c := o.chargeByID(id)
	told := map[string]any{"hold_id": o.hold.id, "charge_id": id, "state": c.state}
	switch {
	case o.hold.winner != nil && *o.hold.winner == id:
		told["hold_state"], told["seat"] = o.hold.state, o.hold.seat
		return httpapi.JSON(http.StatusCreated, told)
	case c.captured != nil:
		return paymentRefunded.WithMembers(told).Answer()
	case c.state == chargeDeclined:
		return paymentDeclined.WithMembers(told).Answer()
	case c.state == chargeFailed:
		return paymentUnavailable.WithMembers(told).Answer()
	}
	answer := httpapi.JSON(http.StatusAccepted, told)
	answer.Header = http.Header{"Location": {"/tickets/orders/" + o.hold.id.String()}}
	return answer
}

// over refuses what only a RESERVED hold of the caller's is for. One that has
// run out is ended on the way, which is to be committed.
func (o *order) over(ctx context.Context, who httpapi.Principal, now time.Time) (ended bool, refused *httpapi.Problem, err error) {
	if o.hold.login != who.Name {
		return false, nil, unknownHold.Err()
	}
	if ended, err = o.expire(ctx, now); err != nil {
		return false, nil, fmt.Errorf("end what has run out: %w", err)
	}
	if o.hold.state != holdReserved {
		refused = holdOver.WithMembers(map[string]any{"state": o.hold.state})
	}
	return ended, refused, nil
}

// answerOf is of a refusal; nothing when there is none.
func answerOf(p *httpapi.Problem) httpapi.Answer {
	if p == nil {
		return httpapi.Answer{}
	}
	return p.Answer()
}
