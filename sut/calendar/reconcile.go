package calendar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

const (
	lookHands  = 4           // calendars that are looked at at once
	lookMargin = time.Minute // by which a look is wider than what is judged by it
)

// reconciler looks at each calendar again and again: what others wrote there
// that nothing of ours can exclude becomes a conflict, is resolved when it goes,
// and what is ours but of no appointment is deleted. The calendar is read first
// and the rows then, so that whatever was there before the look is in them.
type reconciler struct {
	st       *store
	provider *provider
	cfg      Config
	meters   *meters
}

func newReconciler(st *store, p *provider, cfg Config, m *meters) *reconciler {
	return &reconciler{st: st, provider: p, cfg: cfg, meters: m}
}

// run looks at what is due until the context ends.
func (r *reconciler) run(ctx context.Context) {
	queue[lookAt]{
		cfg: r.cfg, every: min(4*r.cfg.SyncInterval, r.cfg.ReconcileInterval), hands: lookHands, claim: r.claim, do: r.do, what: "calendars to look at",
	}.run(ctx)
}

// A lookAt is one look at one calendar.
type lookAt struct {
	res    resource
	began  time.Time // before the calendar is read
	window period    // what is judged
	until  time.Time // nobody else looks before; it is also the claim
}

// claim takes calendars that are due, for SyncClaim.
func (r *reconciler) claim(ctx context.Context, most int) ([]lookAt, error) {
	now := r.cfg.Clock.Now()
	until := now.Add(r.cfg.SyncClaim)
	return alter(ctx, r.st, func(row pgx.CollectableRow) (l lookAt, err error) {
		l.began, l.until, l.window.End = now, until, now.Add(r.cfg.Horizon)
		err = row.Scan(&l.res.id, &l.res.calendar, &l.res.state, &l.res.contract, &l.res.policy, &l.res.limit, &l.window.Start)
		return l, err
	}, sqlClaimLooks, now, until, most)
}

// do looks, and has the calendar looked at again. A look that could not be
// ended is as good as none: the next one finds the same.
func (r *reconciler) do(ctx context.Context, l lookAt) {
	saw, err := r.look(ctx, l)
	quiet := (*quietError)(nil)
	switch {
	case err == nil:
		err = r.st.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) { return storeLook(ctx, tx, l, r.next(l), saw) })
	case errors.As(err, &quiet) || errors.Is(err, errAuthorisation):
		_, err = alter(ctx, r.st, scanResourceID, sqlLookAgain, l.res.id, l.until, r.next(l))
	default:
		r.cfg.Log.Warn("could not reconcile a calendar, trying again", "resource", l.res.id, "error", err)
		_, err = alter(ctx, r.st, scanResourceID, sqlLookAgain, l.res.id, l.until, r.next(l))
	}
	if err != nil {
		r.cfg.Log.Warn("could not store a look at a calendar, trying again when its claim has run out", "resource", l.res.id, "error", err)
	}
}

func (r *reconciler) next(l lookAt) time.Time { return l.began.Add(r.cfg.ReconcileInterval) }

// look reads the calendar and settles what it says. It gives the events of
// others that it saw.
func (r *reconciler) look(ctx context.Context, l lookAt) (saw []event, err error) {
	wide := period{l.window.Start.Add(-lookMargin), l.window.End.Add(lookMargin)}
	all, err := r.provider.events(ctx, l.res, wide, cause{})
	if err != nil {
		return nil, err
	}
	cal := calendarOf(all)
	rows, err := r.rows(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, settle := range []func() error{
		func() error { return r.clashes(ctx, l, cal, rows) },
		func() error { return r.missing(ctx, l, cal, rows) },
		func() error { return r.vanished(ctx, l, cal) },
		func() error { return r.orphans(ctx, l, cal) },
	} {
		if err := settle(); err != nil {
			return nil, err
		}
	}
	return cal.others, nil
}

// A calendar is what was read of one.
type calendar struct {
	byID   map[string]event // all events
	others []event          // those that are not ours, by start
}

func calendarOf(all []event) calendar {
	c := calendar{byID: make(map[string]event, len(all))}
	for _, e := range all {
		c.byID[e.ID] = e
		if e.Source != sourceOurs && e.Start.Before(e.End) { // one that takes no time is in nobody's way
			c.others = append(c.others, e)
		}
	}
	return c
}

// ours reports whether an event of ours is there.
func (c calendar) ours(id string) bool { return c.byID[id].Source == sourceOurs }

// A judged row is an appointment that the provider has, or should have.
type judged struct {
	id      uuid.UUID
	during  period
	eventID string
	settled bool // synchronised before the look began, and nothing is to do
}

// rows are the appointments of the window that the provider has.
func (r *reconciler) rows(ctx context.Context, l lookAt) ([]judged, error) {
	found, err := database.Read(ctx, r.st.Store, func(row pgx.CollectableRow) (j judged, err error) {
		err = row.Scan(&j.id, &j.during.Start, &j.during.End, &j.eventID, &j.settled)
		return j, err
	}, sqlJudged, l.res.id, l.window.Start, l.window.End, l.began)
	return found, wrapped(err, "read the appointments of resource %d", l.res.id)
}

// clashes finds events of others over ours that no row knows of.
func (r *reconciler) clashes(ctx context.Context, l lookAt, cal calendar, rows []judged) error {
	var ids []uuid.UUID
	var events []string
	var starts, ends []time.Time
	for _, j := range rows {
		for _, e := range othersIn(j.during, cal.others) {
			ids, events, starts, ends = append(ids, j.id), append(events, e.ID), append(starts, e.Start), append(ends, e.End)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	fresh, err := database.Read(ctx, r.st.Store, pgx.RowTo[uuid.UUID], sqlFresh, l.res.id, ids, events, starts, ends)
	if err != nil {
		return fmt.Errorf("compare the conflicts of resource %d: %w", l.res.id, err)
	}
	for _, id := range fresh {
		err := r.change(ctx, l, id, func(ctx context.Context, c *change, res resource, a *appointment) error {
			if a.state != stateCreated {
				return nil
			}
			return c.clash(ctx, r.meters, res.policy, a, cal.others, foundByReconciliation)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// missing finds ours that somebody took out of the calendar.
func (r *reconciler) missing(ctx context.Context, l lookAt, cal calendar, rows []judged) error {
	for _, j := range rows {
		if cal.ours(j.eventID) || !j.settled {
			continue
		}
		err := r.change(ctx, l, j.id, func(ctx context.Context, c *change, res resource, a *appointment) error {
			still, err := database.Rows(ctx, c.tx, pgx.RowTo[bool], sqlSettled, a.id, l.began)
			if err != nil || len(still) == 0 || a.state != stateCreated {
				return wrapped(err, "appointment %s: is it settled", a.id)
			}
			fresh, err := c.dispute(ctx, a, kindMissing, a.eventID, j.during, foundByReconciliation)
			if err != nil || !fresh {
				return err
			}
			r.meters.conflictFound(foundByReconciliation)
			if res.policy != policyReject {
				return nil
			}
			return c.end(ctx, a, stateRejected, reasonMissing, true)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// change runs do with an appointment of the look's resource, both locked.
func (r *reconciler) change(ctx context.Context, l lookAt, id uuid.UUID, do func(ctx context.Context, c *change, res resource, a *appointment) error) error {
	return r.st.change(ctx, cause{actor: actorServer}, func(ctx context.Context, c *change) (bool, error) {
		res, err := c.lockResource(ctx, l.res.id)
		if err != nil {
			return false, err
		}
		a, err := c.lockAppointment(ctx, id)
		if err != nil {
			return false, err
		}
		err = do(ctx, c, res, &a)
		return err == nil, err
	})
}

// An openConflict is one that is unresolved and that was found before the look.
type openConflict struct {
	id, appointment uuid.UUID
	kind, external  string
}

// vanished resolves conflicts of which nothing is left. Those of appointments
// that are over end with their events.
func (r *reconciler) vanished(ctx context.Context, l lookAt, cal calendar) error {
	open, err := database.Read(ctx, r.st.Store, func(row pgx.CollectableRow) (o openConflict, err error) {
		err = row.Scan(&o.id, &o.appointment, &o.kind, &o.external)
		return o, err
	}, sqlOpenConflicts, l.res.id, l.began, l.window.Start, l.window.End)
	if err != nil {
		return fmt.Errorf("read the conflicts of resource %d: %w", l.res.id, err)
	}
	for _, o := range open {
		err := r.change(ctx, l, o.appointment, func(ctx context.Context, c *change, _ resource, a *appointment) error {
			if !a.active() || cal.has(o, period{a.start, a.end}) {
				return nil
			}
			_, err := c.tx.Exec(ctx, sqlVanished, o.id, c.now)
			return wrapped(err, "conflict %s: resolve it", o.id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a conflict is still there, of an appointment at a time.
func (c calendar) has(o openConflict, during period) bool {
	if o.kind == kindMissing {
		return !c.ours(o.external)
	}
	e, there := c.byID[o.external]
	return there && e.overlaps(during)
}

// orphans deletes events of ours that no appointment has. Other people's are
// theirs, whatever they look like.
func (r *reconciler) orphans(ctx context.Context, l lookAt, cal calendar) error {
	ids := make([]string, 0, len(cal.byID))
	for id, e := range cal.byID {
		if e.Source == sourceOurs {
			ids = append(ids, id)
		}
	}
	unknown, err := database.Read(ctx, r.st.Store, pgx.RowTo[string], sqlUnknown, ids)
	if err != nil {
		return fmt.Errorf("compare the events of resource %d: %w", l.res.id, err)
	}
	for _, id := range unknown {
		r.cfg.Log.Warn("an event of ours is of no appointment: it is deleted", "resource", l.res.id, "event", id)
		if err := r.provider.remove(ctx, l.res, id, cause{}); err != nil {
			return err
		}
	}
	return nil
}

// storeLook keeps what a look saw of others, unless its claim was lost: a later
// look knows better. It has the calendar looked at again.
func storeLook(ctx context.Context, tx pgx.Tx, l lookAt, next time.Time, saw []event) (bool, error) {
	mine, err := database.Rows(ctx, tx, scanResourceID, sqlLooked, l.res.id, l.until, next, l.began)
	if err != nil || len(mine) == 0 {
		return false, wrapped(err, "store a look at resource %d", l.res.id)
	}
	return true, storeSeen(ctx, tx, l.res.id, l.began, saw)
}

// storeSeen replaces what is known of others' events in a calendar by what a look
// saw that began at an instant. What was found after that stays known.
func storeSeen(ctx context.Context, tx pgx.Tx, id int64, began time.Time, saw []event) error {
	ids := make([]string, len(saw))
	starts, ends := make([]time.Time, len(saw)), make([]time.Time, len(saw))
	for i, e := range saw {
		ids[i], starts[i], ends[i] = e.ID, e.Start, e.End
	}
	if _, err := tx.Exec(ctx, sqlForget, id, ids, began); err != nil {
		return fmt.Errorf("forget events of resource %d: %w", id, err)
	}
	_, err := tx.Exec(ctx, sqlSaw, id, ids, starts, ends)
	return wrapped(err, "store the events of resource %d", id)
}
