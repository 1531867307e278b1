package calendar

import (
	"context"
	"fmt"
)

// Results of an outbox event.
const (
	resultCreated   = "created"
	resultUpdated   = "updated"
	resultDeleted   = "deleted"
	resultRefused   = "refused"    // somebody else's event is there, and the policy is to give way
	resultNotNeeded = "not-needed" // the provider never had to hear of it
)

// roundsMost bounds how often one attempt changes its mind over what the
// provider says: created meanwhile, gone meanwhile, busy.
const roundsMost = 4

// An outcome is what came of bringing an appointment.
type outcome struct {
	result string  // "" of no work
	spent  bool    // the provider never takes this event any more
	found  []event // others' events that the final check found, and that are no reason to give way
	seen   []event // others' events that were there afterwards
}

// bring does at the provider what the row says, whatever was done before.
func (y *synchroniser) bring(ctx context.Context, t task) (outcome, error) {
	if !t.a.active() {
		if !t.touched {
			return outcome{result: resultNotNeeded}, nil
		}
		return outcome{result: resultDeleted}, y.provider.remove(ctx, t.res, t.a.eventID, t.by)
	}
	out, err := y.place(ctx, t)
	if err != nil || out.spent || out.result == resultRefused {
		return out, err
	}
	out.seen, err = y.look(ctx, t)
	return out, err
}

// place has the event of an active appointment stand where the row says. An
// earlier attempt's answer may have been lost: unless there was none, the event
// is looked up first, and under one id there is never a second one.
func (y *synchroniser) place(ctx context.Context, t task) (outcome, error) {
	there := false
	if !t.first {
		e, found, err := y.provider.event(ctx, t.res, t.a.eventID, t.by)
		if err != nil {
			return outcome{}, err
		}
		if found && e.Version >= t.version {
			return outcome{result: t.standing()}, nil
		}
		there = found
	}
	final, err := y.check(ctx, t)
	if err != nil || final.refused {
		return outcome{result: resultRefused}, err
	}
	for range roundsMost {
		said, err := y.put(ctx, t, there, final.ifFree)
		if err != nil {
			return outcome{}, err
		}
		switch said {
		case taken:
			result := resultUpdated
			if !there {
				result = resultCreated
			}
			return outcome{result: result, found: final.found}, nil
		case stale:
			return outcome{result: t.standing(), found: final.found}, nil
		case exists:
			there = true
		case absent:
			there = false
		case spent:
			return outcome{spent: true}, nil
		case busy:
			if final, err = y.whose(ctx, t); err != nil || final.refused {
				return outcome{result: resultRefused}, err
			}
		}
	}
	return outcome{}, fmt.Errorf("%w: in %d rounds it said that event %s is there and is not, or that the time is busy and is free", errPassing, roundsMost, t.a.eventID)
}

// standing is the result of finding the event as it should be.
func (t task) standing() string {
	if t.a.state == stateBooked {
		return resultCreated
	}
	return resultUpdated
}

func (y *synchroniser) put(ctx context.Context, t task, there, ifFree bool) (verdict, error) {
	if there {
		return y.provider.update(ctx, t.res, t.event(), ifFree, t.by)
	}
	return y.provider.create(ctx, t.res, t.event(), ifFree, t.by)
}
