package calendar

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/overbook/overbook/harness"
)

// crashes gives the scenarios in which the server dies between the rows and the
// provider.
func crashes() []harness.Scenario {
	return []harness.Scenario{
		crashBetween(),
		variant(crashBetween(), "keep-and-flag", "the server is killed between its check and its create, and somebody takes the time meanwhile; both stay, on record", map[string]string{paramPolicy.Name: policyKeep}),
		variant(crashBetween(), "atomic-hold", "the server is killed between its check and its create at a provider that can refuse a create, and somebody takes the time meanwhile", map[string]string{paramContract.Name: contractAtomic}),
		crashAfterCreate(),
		crashPointsOfCreate(), crashPointsOfReschedule(), crashPointsOfCancel(),
	}
}

// claiming is the statement with which a synchroniser takes what is due. While
// it is held nothing is begun.
const claiming = `skip locked\) update syncs`

// lookInterval is how seldom the servers of these scenarios look at a calendar
// by themselves: never, unless the clock is moved so far. So their looks are
// nobody's moment, and no event of others is found before its time.
const lookInterval = 24 * time.Hour

// clocked is the environment of a server that looks at calendars when the clock
// is moved, and at nothing else by itself.
func clocked(more map[string]string) map[string]string {
	server := map[string]string{
		"CALENDAR_RECONCILE_INTERVAL": lookInterval.String(),
		"POOL_SIZE":                   "4", // one client at a time; a server that is started so often need not open more
	}
	maps.Copy(server, more)
	return server
}

// crashScenario fills in what scenarios of this kind share: one server behind
// the Postgres wire, which is started again by the drive.
func crashScenario(s harness.Scenario) harness.Scenario {
	s.Tags = append(s.Tags, "fault")
	return scenario(s, clocked(nil))
}

// restarted starts every server that is down and waits until it is ready.
func restarted(ctx context.Context, env harness.Env) error {
	for _, s := range env.Servers() {
		if s.URL() == "" {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// struckBy waits until the fault has struck and what it left undone in Postgres
// is rolled back, and takes the fault back.
func struckBy(ctx context.Context, env harness.Env, f harness.Injected) error {
	_, err := f.Await(ctx, patience)
	f.Heal()
	if err != nil {
		return err
	}
	return env.Postgres().AwaitGone(ctx)
}

// holdClaims keeps the synchroniser from beginning anything until the fault is
// healed. What it has begun before is over.
func holdClaims(ctx context.Context, env harness.Env) (harness.Injected, error) {
	held := env.Inject(harness.Fault{Action: harness.ActionHold, At: harness.BeforeStatement, Match: claiming})
	if _, err := held.Await(ctx, patience); err != nil {
		held.Heal()
		return nil, fmt.Errorf("hold the synchroniser: %w", err)
	}
	return held, nil
}

// lookedAgain moves the clock to where every calendar is looked at, and waits
// until it was, and until what came of it is synchronised.
func lookedAgain(ctx context.Context, env harness.Env) error {
	before, err := looksNow(ctx, env)
	if err != nil {
		return err
	}
	if err := env.Advance(ctx, lookInterval+time.Second); err != nil {
		return err
	}
	err = env.Await(ctx, "every calendar is looked at", patience, func(ctx context.Context) (bool, string, error) {
		looks, err := looksNow(ctx, env)
		for id, at := range looks {
			if at == before[id] {
				return false, "resource " + id + " was looked at last at " + at, err
			}
		}
		return err == nil, "", err
	})
	if err != nil {
		return err
	}
	return awaitSynced(ctx, env)
}

// finishByClock ends a drive as [finish] does, where calendars are looked at
// only when the clock is moved.
func finishByClock(ctx context.Context, env harness.Env) error {
	late := awaitSynced(ctx, env)
	for range 2 {
		if late == nil {
			late = lookedAgain(ctx, env)
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case late != nil:
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "open at the end", Text: late.Error()})
	}
	return lookAtAll(ctx, env)
}

// theDead are the claims of servers that were killed, which nobody gives back.
type theDead []string

// see remembers the claims that there are while no server lives; with one, all
// claims are of the living.
func (d *theDead) see(ctx context.Context, env harness.Env) error {
	*d = nil
	for _, s := range env.Servers() {
		if s.URL() != "" {
			return nil
		}
	}
	rows, err := env.Database().Query(ctx, `select claim::text as claim from syncs where claim is not null`)
	for _, r := range rows {
		*d = append(*d, text(r, "claim"))
	}
	return err
}

// awaitOver waits until nothing is left to synchronise but what the dead have
// claimed, and moves the clock over that: never over a claim of the living, who
// would still be at it when everything seems to be over.
func (d *theDead) awaitOver(ctx context.Context, env harness.Env) error {
	if len(*d) == 0 {
		return awaitSynced(ctx, env)
	}
	err := env.Await(ctx, "everything is synchronised but what the dead have claimed", patience, func(ctx context.Context) (bool, string, error) {
		open, err := env.Database().Query(ctx, `select * from (`+workable+`) w where id not in (select appointment_id::text from syncs where claim::text = any($1))`, []string(*d))
		return err == nil && len(open) == 0, fmt.Sprintf("%d are open", len(open)), err
	})
	if err != nil {
		return err
	}
	if err := env.Advance(ctx, syncClaim+time.Second); err != nil {
		return err
	}
	return awaitSynced(ctx, env)
}
