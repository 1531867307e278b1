package library

import (
	"context"
	"errors"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/lease"
	"github.com/overbook/overbook/sut/upstream"
)

// callerOf is on whose behalf, and because of which request, an intent goes upstream.
func callerOf(i intent) upstream.Caller {
	return upstream.Caller{Student: i.Student, Cause: httpapi.Cause{Traceparent: i.Traceparent, Op: i.Op}}
}

// attempt makes the one reserve call of a claimed intent and judges it. No
// transaction is open and no connection held. false: it can't be known yet
// whether the seat was reserved; the intent stays RESERVING, and the reaper
// reads when the lease is over.
func (s *Service) attempt(ctx context.Context, i intent, l lease.Lease) (ending, bool) {
	a := s.pyxis.Reserve(ctx, callerOf(i), i.Seat, i.IntentID, func() error { return l.Require(s.cfg.leaseNeed()) })
	switch a.Finding {
	case upstream.Accepted:
		return succeeded(a.Charge.ID, "accepted upstream"), true
	case upstream.Taken:
		return s.taken(i, "seat-taken", "seat taken upstream"), true
	case upstream.Rejected:
		return failed(stateAuth, "credential-rejected", "credential rejected upstream"), true
	case upstream.Refused:
		return failed(stateUpstream, reason(a.Err), "refused upstream"), true
	case upstream.Unsent:
		return s.unsent(i, a)
	case upstream.Faulted, upstream.InFlight:
		s.log.Warn("reserve call ended without a usable answer", "intent", i.IntentID, "seat", i.Seat, "finding", string(a.Finding), "status", a.Status, "error", a.Err)
		return s.readAfter(ctx, i, a.Finding == upstream.Faulted)
	}
	return ending{}, false
}

// unsent: nothing left this process. A lease too short is the reaper's (who
// may be at it already); otherwise the attempt failed, or the wait goes on.
func (s *Service) unsent(i intent, a upstream.Attempt) (ending, bool) {
	if expired := (*lease.ExpiredError)(nil); errors.As(a.Err, &expired) {
		s.log.Warn("reserve call not made", "intent", i.IntentID, "seat", i.Seat, "error", a.Err)
		return ending{}, false
	}
	if i.Kind == kindWait {
		return s.waitOn(i, stateUpstream, false, "not sent: "+reason(a.Err)), true
	}
	return failed(stateUpstream, reason(a.Err), "not sent"), true
}

// readAfter decides an uncertain attempt by reading the student's charge. What
// is there was reserved. What is not there may still come, unless pyxis
// itself has said that it is done with the call.
func (s *Service) readAfter(ctx context.Context, i intent, done bool) (ending, bool) {
	e, known := s.read(ctx, i)
	if known && e.State == stateUpstream && !done {
		return ending{}, false
	}
	return e, known
}

// read asks pyxis for the student's charge and concludes from it. It never
// reserves. false: pyxis gave no usable answer.
func (s *Service) read(ctx context.Context, i intent) (ending, bool) {
	charge, err := s.pyxis.CurrentCharge(ctx, callerOf(i))
	switch {
	case errors.Is(err, upstream.ErrRejected):
		return failed(stateAuth, "credential-rejected", "credential rejected when the charge was read"), true
	case err != nil:
		s.log.Warn("charge could not be read", "intent", i.IntentID, "seat", i.Seat, "error", err)
		return ending{}, false
	case charge != nil && charge.Seat == i.Seat && charge.Student == i.Student &&
		(charge.Reference == "" || charge.Reference == i.IntentID):
		return succeeded(charge.ID, "charge found"), true
	}
	return failed(stateUpstream, "no-charge", "no charge found"), true
}

func succeeded(chargeID, why string) ending {
	return ending{State: stateSucceeded, Outcome: stateSucceeded, Decisive: true, ChargeID: chargeID, Reason: why}
}

// taken: somebody has the seat, and it is not this intent. A wait goes on.
func (s *Service) taken(i intent, failure, why string) ending {
	if i.Kind == kindWait {
		return s.waitOn(i, stateRace, true, why)
	}
	return ending{State: stateRace, Outcome: stateRace, Decisive: true, Failure: failure, Reason: why}
}

// failed ends an intent without telling anything about who holds the seat.
func failed(state, failure, why string) ending {
	return ending{State: state, Outcome: state, Failure: failure, Reason: why}
}

func (s *Service) waitOn(i intent, outcome string, decisive bool, why string) ending {
	return ending{
		State: stateWaiting, Outcome: outcome, Decisive: decisive, Failure: "", Reason: why,
		Next: s.cfg.Clock.Now().Add(s.cfg.backoff(i.Looks)),
	}
}

func reason(err error) string {
	if err == nil {
		return "unknown"
	}
	return err.Error()
}

// conclude stores an ending and answers everybody in this process whose
// intent ended by it. false: the intent was not ours any more.
func (s *Service) conclude(ctx context.Context, i intent, e ending) (ended []record, stored bool) {
	var troubled bool
	for try := 1; ; try++ {
		var err error
		ended, err = s.store.finish(ctx, i, e, s.cfg.Clock.Now().Add(-s.cfg.ActionTTL))
		if err == nil {
			break
		}
		if errors.Is(err, errOthersCharge) && e.State == stateSucceeded {
			e = s.taken(i, "charge-of-another-intent", e.Reason)
			continue
		}
		s.log.Warn("ending not stored", "intent", i.IntentID, "state", e.State, "try", try, "error", err)
		troubled = true
		if try >= tries || clock.Pause(ctx, s.store.background.Backoff(try+3)) != nil {
			return nil, false // the lease runs out and the reaper reads the charge
		}
	}
	if len(ended) == 0 {
		if !troubled { // else it may well have been our own first try that was stored
			s.late(i, e)
		}
		return nil, false
	}
	s.waiters.deliver(ended)
	s.metrics.ended(ended)
	return ended, true
}

// late: an answer came after somebody else had decided the intent. Nothing is
// stored. A late success is a charge that nobody will account for.
func (s *Service) late(i intent, e ending) {
	s.metrics.late(e.State)
	level := s.log.Warn
	if e.State == stateSucceeded {
		level = s.log.Error
	}
	level("answer came after the intent was decided", "intent", i.IntentID, "seat", i.Seat, "student", i.Student, "answer", e.State, "charge", e.ChargeID)
}
