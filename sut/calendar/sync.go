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
	syncHands   = 8           // appointments that are brought at once
	backoffMost = time.Minute // between two attempts
)

// synchroniser brings the provider to what the appointments' rows say. Whoever
// has an appointment's claim does it; no transaction and no connection is held
// while the provider is waited for, and who lost the claim meanwhile writes
// nothing.
type synchroniser struct {
	st       *store
	provider *provider
	cfg      Config
	meters   *meters
}

func newSynchroniser(st *store, p *provider, cfg Config, m *meters) *synchroniser {
	return &synchroniser{st: st, provider: p, cfg: cfg, meters: m}
}

// run synchronises what is due until the context ends.
func (y *synchroniser) run(ctx context.Context) {
	queue[claimed]{
		cfg: y.cfg, every: y.cfg.SyncInterval, hands: syncHands, claim: y.claim, do: y.do, what: "appointments to synchronise",
	}.run(ctx)
}

// A claimed appointment is ours to bring, for SyncClaim.
type claimed struct {
	appointment, claim uuid.UUID
	first              bool // nobody has touched it before: the provider can't know of it
	attempts           int32
}

// claim takes appointments that are due, for SyncClaim, and none that has to
// wait: see [sqlClaim].
func (y *synchroniser) claim(ctx context.Context, most int) ([]claimed, error) {
	now := y.cfg.Clock.Now()
	return alter(ctx, y.st, func(row pgx.CollectableRow) (w claimed, err error) {
		err = row.Scan(&w.appointment, &w.claim, &w.first, &w.attempts)
		return w, err
	}, sqlClaim, now, now.Add(y.cfg.SyncClaim), most)
}

// do brings one appointment and stores what came of it, or why it did not. When
// the context ends, no other call begins, and another replica goes on from there.
func (y *synchroniser) do(ctx context.Context, w claimed) {
	err := y.synchronise(ctx, w)
	if err == nil {
		return
	}
	log := y.cfg.Log.With("appointment", w.appointment, "error", err)
	quiet := (*quietError)(nil)
	if errors.As(err, &quiet) || errors.Is(err, errAuthorisation) || ctx.Err() != nil { // no failed attempt
		log.Info("the provider can't be called about the calendar now; the appointment waits")
		_, err = alter(ctx, y.st, scanYes, sqlUnclaim, w.appointment, w.claim)
	} else {
		err = y.failed(ctx, w, err)
	}
	if err != nil {
		log.Warn("could not give an appointment back, others wait for its claim to run out", "storing", err)
	}
}

// failed has the appointment tried again later, or parks it.
func (y *synchroniser) failed(ctx context.Context, w claimed, why error) error {
	now := y.cfg.Clock.Now()
	again := now.Add(backoff(y.cfg.SyncBackoff, w.attempts))
	parked, err := alter(ctx, y.st, scanYes, sqlFailed, w.appointment, w.claim, fmt.Sprintf("%.1000s", why), again, y.cfg.ParkAfter, now)
	if err != nil || len(parked) == 0 { // the claim was lost: somebody else is at it
		return err
	}
	log := y.cfg.Log.With("appointment", w.appointment, "attempts", w.attempts+1, "error", why)
	if !parked[0] {
		log.Warn("could not synchronise an appointment, trying again later", "at", again)
		return nil
	}
	y.meters.parked.Inc()
	log.Error("could not synchronise an appointment: parked until staff have it tried again")
	return nil
}

// backoff is how long to wait after so many failures before and one now.
func backoff(first time.Duration, before int32) time.Duration {
	d := first
	for range min(before, 40) {
		if d >= backoffMost {
			break
		}
		d *= 2
	}
	return min(d, max(backoffMost, first))
}

// A task is a claimed appointment as its row was when the work began, and the
// events that the work is about.
type task struct {
	claimed

	a       appointment
	res     resource
	touched bool    // the provider may know of it
	known   []int32 // pending events, by number
	version int32   // of the event at the provider: the last one that says when it is
	by      cause   // of the last pending event's request
}

// event is the appointment as the provider gets it. The title is for people who
// look at the calendar, and says nothing of whose it is.
func (t task) event() event {
	return event{period: t.during(), ID: t.a.eventID, Version: t.version, Title: "Appointment"}
}

func (t task) during() period { return period{t.a.start, t.a.end} }

// load reads the task, as of one instant.
func (y *synchroniser) load(ctx context.Context, w claimed) (task, error) {
	found, err := database.Read(ctx, y.st.Store, func(row pgx.CollectableRow) (task, error) {
		t := task{claimed: w, by: cause{actor: actorServer}}
		a, r := &t.a, &t.res
		err := row.Scan(&a.id, &a.resource, &a.member, &a.start, &a.end, &a.zone, &a.state, &a.eventID, &a.series, &a.seriesNo, &a.version,
			&r.id, &r.calendar, &r.state, &r.contract, &r.policy, &r.limit, &t.touched, &t.known, &t.version, &t.by.op, &t.by.traceparent)
		return t, err
	}, sqlTask, w.appointment)
	if err == nil && len(found) != 1 {
		err = errNoAppointment
	}
	if err != nil {
		return task{}, fmt.Errorf("read appointment %s: %w", w.appointment, err)
	}
	return found[0], nil
}

func (y *synchroniser) synchronise(ctx context.Context, w claimed) error {
	t, err := y.load(ctx, w)
	if err != nil {
		return err
	}
	var out outcome
	if len(t.known) > 0 {
		if out, err = y.bring(ctx, t); err != nil {
			return err
		}
	}
	return y.store(ctx, t, out)
}

func scanYes(row pgx.CollectableRow) (yes bool, err error) {
	err = row.Scan(&yes)
	return yes, err
}
