package calendar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overbook/overbook/harness"
)

// claimPatience is how long [finish] waits before it takes a claim for one that
// nobody holds any more, and moves the clock over it.
const claimPatience = 5 * time.Second

// finish ends a drive. It waits until nothing is left that a server could
// synchronise, then until every calendar that is looked at at all has been
// looked at twice since (the first of these looks may have begun before), and
// all over again when a look has found something to do. When that takes long,
// the clock is moved over the longest claim and the longest back-off, once: a
// server that was killed gives back nothing. That something stays open is no
// error here: it shows as a run that did not settle.
//
// Then staff ask for the conflicts and for each resource, and what time it is
// to the servers is recorded.
func finish(ctx context.Context, env harness.Env) error {
	late := restOrStall(ctx, env)
	if late != nil && ctx.Err() == nil {
		if err := env.Advance(ctx, syncClaim+time.Minute); err != nil {
			return err
		}
		late = atRest(ctx, env, patience)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case late != nil:
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "open at the end", Text: late.Error()})
	}
	return lookAtAll(ctx, env)
}

// restOrStall waits until everything is at rest, or until nothing has come of
// waiting for [claimPatience]: a machine that is busy is no server that is dead.
func restOrStall(ctx context.Context, env harness.Env) error {
	last := ""
	for {
		late := atRest(ctx, env, claimPatience)
		if late == nil || ctx.Err() != nil {
			return late
		}
		rows, err := env.Database().Query(ctx, `select (select count(*) from outbox where done_at is not null) || ' ' || (select coalesce(sum(attempts), 0) from syncs where parked_at is null) as done`)
		if err != nil {
			return errors.Join(late, err)
		}
		if now := text(rows[0], "done"); now != last {
			last = now
			continue
		}
		return late
	}
}

// atRest waits until nothing could be synchronised, and every calendar was
// looked at twice without that anything came of it.
func atRest(ctx context.Context, env harness.Env, within time.Duration) error {
	var since map[string]string // looks, when nothing was open last
	seen := map[string]map[string]bool{}
	return env.Await(ctx, "everything is synchronised, and every calendar was looked at since", within, func(ctx context.Context) (bool, string, error) {
		open, err := env.Database().Query(ctx, workable)
		if err != nil {
			return false, "", fmt.Errorf("look for what is open: %w", err)
		}
		if len(open) > 0 {
			since = nil
			return false, fmt.Sprintf("%d are open, such as %v %v, %v", len(open), open[0]["what"], open[0]["id"], open[0]["state"]), nil
		}
		looks, err := looksNow(ctx, env)
		if err != nil {
			return false, "", err
		}
		if since == nil {
			since, seen = looks, map[string]map[string]bool{}
			return len(looks) == 0, "nothing is open, the calendars are to be looked at", nil
		}
		for id, at := range looks {
			if seen[id] == nil {
				seen[id] = map[string]bool{}
			}
			if at != since[id] {
				seen[id][at] = true
			}
			if len(seen[id]) < 2 {
				return false, fmt.Sprintf("nothing is open, resource %s was looked at last at %s", id, at), nil
			}
		}
		return true, "", nil
	})
}

// looksNow is when each calendar was looked at last, of those that are looked
// at: activated once, authorised and not asked to be quiet.
func looksNow(ctx context.Context, env harness.Env) (map[string]string, error) {
	rows, err := env.Database().Query(ctx, `select r.resource_id::text as id, coalesce(l.looked_at::text, 'never') as at
from resources r join accounts a using (resource_id) left join looks l using (resource_id)
where r.activated_at is not null and a.state = 'OK' and (a.quiet_until is null or a.quiet_until <= greatest(clock_timestamp(), (select max(looked_at) from looks)))`)
	if err != nil {
		return nil, fmt.Errorf("look for when the calendars were looked at: %w", err)
	}
	looks := map[string]string{}
	for _, r := range rows {
		looks[text(r, "id")] = text(r, "at")
	}
	return looks, nil
}

// awaitSynced waits until nothing is left that a server could synchronise: in
// the middle of a drive.
func awaitSynced(ctx context.Context, env harness.Env) error {
	return env.Await(ctx, "everything is synchronised", patience, func(ctx context.Context) (bool, string, error) {
		open, err := env.Database().Query(ctx, workable)
		if err != nil || len(open) == 0 {
			return err == nil, "", err
		}
		return false, fmt.Sprintf("%d are open, such as %v, %v", len(open), open[0]["id"], open[0]["state"]), nil
	})
}

// awaitState waits until an appointment is in one of the states, by its row.
func awaitState(ctx context.Context, env harness.Env, appointmentID string, states ...string) error {
	return env.Await(ctx, fmt.Sprintf("appointment %s is one of %v", appointmentID, states), patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select state, state = any($2) as so from appointments where appointment_id = $1::text::uuid`, appointmentID, states)
		if err != nil || len(rows) == 0 {
			return false, "there is no such row", err
		}
		return rows[0]["so"] == true, "it is " + text(rows[0], "state"), nil
	})
}

// The event that tells the servers' time at the end of a drive.
const (
	subjectServerTime = "server time"
	attrNow           = "now"
)

// serverTimeOf is the servers' time at the end of the drive, zero when it was
// not recorded.
func serverTimeOf(rec harness.Record) (now time.Time) {
	for _, e := range rec.History.Events {
		if t, err := time.Parse(time.RFC3339Nano, e.Attrs[attrNow]); err == nil && e.Subject == subjectServerTime {
			now = t
		}
	}
	return now
}

// lookAtAll has staff ask for the conflicts and for each resource, and records
// what time it is to the servers.
func lookAtAll(ctx context.Context, env harness.Env) error {
	env.Do(ctx, conflicts(staffProcess, staff(0)))
	rows, err := env.Database().Query(ctx, `select resource_id from resources order by resource_id`)
	if err != nil {
		return fmt.Errorf("look for the resources: %w", err)
	}
	for _, r := range rows {
		env.Do(ctx, readResource(staffProcess, staff(0), whole(r, "resource_id")))
	}
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectServerTime, Text: "it is " + now.Format(time.RFC3339Nano) + " to the servers",
		Attrs: map[string]string{attrNow: now.Format(time.RFC3339Nano)},
	})
	return ctx.Err()
}
