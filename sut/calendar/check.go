package calendar

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// What a provider promises, and what becomes of an appointment whose time
// somebody else's event has.
const (
	contractAtomic = "atomic-hold"       // it takes no event into busy time if it is told so
	contractCheck  = "check-then-create" // it can't promise that

	policyReject = "reject"        // the appointment gives way
	policyKeep   = "keep-and-flag" // both stay, staff decide
)

// A checked appointment is one whose time was looked at right before its event
// is sent.
type checked struct {
	refused bool    // the time is somebody else's, and the policy is to give way
	found   []event // others' events that are there all the same
	ifFree  bool    // the provider is to take it only when nobody else has the time
}

// check is the final check. What free/busy says is a reason to find out whose
// the time is: our own events never are in the way, as they may be about to go.
func (y *synchroniser) check(ctx context.Context, t task) (checked, error) {
	spans, err := y.provider.busy(ctx, t.res, t.during(), t.by)
	if err != nil {
		return checked{}, err
	}
	if !slices.ContainsFunc(spans, t.during().overlaps) {
		return checked{ifFree: t.res.contract == contractAtomic}, nil
	}
	return y.whose(ctx, t)
}

// whose decides about busy time by whose events are there.
func (y *synchroniser) whose(ctx context.Context, t task) (checked, error) {
	all, err := y.look(ctx, t)
	if err != nil {
		return checked{}, err
	}
	kept, err := y.kept(ctx, t)
	if err != nil {
		return checked{}, err
	}
	var fresh []event // those that staff have not decided to live with
	for _, e := range all {
		if !slices.ContainsFunc(kept, func(k event) bool { return k.ID == e.ID && k.same(e.period) }) {
			fresh = append(fresh, e)
		}
	}
	if len(fresh) > 0 && t.res.policy == policyReject {
		return checked{refused: true}, nil
	}
	return checked{found: fresh, ifFree: t.res.contract == contractAtomic && len(all) == 0}, nil
}

// kept are others' events that staff have decided to live with beside this
// appointment, as they were then.
func (y *synchroniser) kept(ctx context.Context, t task) ([]event, error) {
	found, err := database.Read(ctx, y.st.Store, func(row pgx.CollectableRow) (e event, err error) {
		err = row.Scan(&e.ID, &e.Start, &e.End)
		return e, err
	}, sqlKept, t.a.id)
	if err != nil {
		return nil, fmt.Errorf("read what staff decided about appointment %s: %w", t.a.id, err)
	}
	return found, nil
}
