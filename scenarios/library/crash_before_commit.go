package library

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// The statements by which the two transactions are known: only the one that
// ends an attempt names the charge, only a confirmation adds an intent.
const (
	storingCharge = "charge_id"
	addingIntent  = "insert into library_reservation_intents"
)

func crashBeforeCommit() harness.Scenario {
	return onWireToo(faultScenario(harness.Scenario{
		Name:  "library/crash-before-commit",
		Title: "the server is killed when the COMMIT of an attempt's end is on its way to Postgres",
		Doc: `The upstream has accepted the reserve call and its answer is here; the statements that store SUCCEEDED, its transition, its event and the losers have been
executed, and the COMMIT is on its way; then SIGKILL. Nothing of that transaction may be there: the seat is taken upstream, and our row says RESERVING. After the
restart the lease runs out, and the reaper must find out by reading that the seat is ours: SUCCEEDED, without a second reserve POST. Everybody confirms again and gets
the stored answer.`,
		Sources: []string{"L-I3", "L-I4", "L-I5", "L-M4"},
		Drive:   driveCrashBeforeCommit,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"),
				rolledBack("L-I4.crash", "before its COMMIT the end of an attempt has left nothing behind: one is RESERVING, nobody is terminal", map[string]int{
					"reserving": 1, "terminal": 0, "other": n - 1, "events_missing": 0, "events_extra": 0,
				}),
				tally("asked again, one is told 201, all others 409", map[string]map[string]int{"again": {"201": 1, "409": n - 1}}),
				states("the accepted one succeeded, nobody else", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": n - 1}))
		},
	}, nil))
}

func crashBeforeConfirm() harness.Scenario {
	return onWireToo(faultScenario(harness.Scenario{
		Name:  "library/crash-before-commit@confirm",
		Title: "the server is killed when the COMMIT of a confirmation is on its way to Postgres",
		Doc: `One student confirms: the statements that consume the action and add the intent have been executed, and the COMMIT is on its way; then SIGKILL. Nothing of the
confirmation may be there, and nothing was written upstream. After the restart the student confirms again, together with everybody else: the action is still good, yields
exactly one intent, and the burst has one winner as if nothing had happened.`,
		Sources: []string{"L-I1", "L-I4", "L-I5"},
		Drive:   driveCrashBeforeConfirm,
		Checks: func(p harness.Params) []harness.Check {
			return append(oneWinnerOnce(p), rolledBack("L-I1.crash", "before its COMMIT a confirmation has left nothing behind", map[string]int{
				"reserving": 0, "terminal": 0, "other": 0, "events_missing": 0, "events_extra": 0,
			}))
		},
	}, nil))
}

// onWireToo puts the Postgres wire into the scenario's path, whatever its parameters say.
func onWireToo(s harness.Scenario) harness.Scenario {
	top := s.Topology
	s.Topology = func(p harness.Params) harness.Topology {
		t := top(p)
		t.PostgresWire = true
		return t
	}
	return s
}

func driveCrashBeforeCommit(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	// The answer waits until every confirmation is stored, so that the group is
	// the same in each run.
	stored := newStruck()
	gathered := reserve("hold the answer until everybody has confirmed", harness.MomentAccepted)
	gathered.Do = func(_ context.Context, call harness.UpstreamCall) {
		stored.note(call, awaitIntents(ctx, env, len(people), "all confirmations are stored", "true"))
	}
	heal := env.Upstream("pyxis").Inject(gathered)
	kill := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.BeforeCommit, Match: storingCharge, Nth: 1})
	if _, _, err := release(ctx, env, "burst", people, actions); err != nil {
		return err
	}
	call, err := stored.wait(ctx, "the first reserve call is accepted")
	if err != nil {
		return err
	}
	heal()
	strike, err := dead(ctx, env, kill)
	if err != nil {
		return err
	}
	env.Witness("killed_before_commit", 1, count(call.Status == 201 && call.Accepted < strike.At), fmt.Sprintf(
		"%s killed before the COMMIT that follows call %d, which pyxis had answered %d", strike.Server, call.Seq, call.Status))
	if err := serverByName(env, strike.Server).Start(ctx); err != nil {
		return err
	}
	if err := env.Advance(ctx, afterLease); err != nil {
		return err
	}
	if err := awaitNone(ctx, env, "the reaper and the worker have decided every intent", settle.SQL); err != nil {
		return err
	}
	_, _, err = release(ctx, env, "again", people, actions)
	return err
}

func driveCrashBeforeConfirm(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	kill := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.BeforeCommit, Match: addingIntent, Nth: 1})
	first := confirm(0, people[0], actions[0])
	first.Kind = "confirm-alone"
	op := env.Do(ctx, first)
	strike, err := dead(ctx, env, kill)
	if err != nil {
		return err
	}
	env.Witness("killed_before_commit", 1, count(op.Status == 0), fmt.Sprintf("%s killed before the COMMIT of a confirmation, whose client got no answer", strike.Server))
	if err := serverByName(env, strike.Server).Start(ctx); err != nil {
		return err
	}
	report, _, err := release(ctx, env, "burst", people, actions)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	return nil
}

// rowsSQL counts intents by how far they are, and transitions and events that
// are there without the other.
const rowsSQL = `select
  (select count(*) from library_reservation_intents where state = 'RESERVING') as reserving,
  (select count(*) from library_reservation_intents where state in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')) as terminal,
  (select count(*) from library_reservation_intents where state in ('REQUESTED', 'WAITING_FOR_SEAT')) as other,
  (select count(*) from library_transitions t where not exists (
     select from library_reservation_outbox o where o.intent_id = t.intent_id and o.seq = t.seq)) as events_missing,
  (select count(*) from library_reservation_outbox o where not exists (
     select from library_transitions t where t.intent_id = o.intent_id and t.seq = o.seq)) as events_extra`

// leftSubject marks the note of what a crash left behind.
const leftSubject = "rows after the crash"

// dead waits until the fault has struck and the dead server's sessions have
// left Postgres, and notes what is stored then.
func dead(ctx context.Context, env harness.Env, f harness.Injected) (harness.Strike, error) {
	strike, err := f.Await(ctx, patience)
	f.Heal()
	if err == nil {
		err = env.Postgres().AwaitGone(ctx)
	}
	if err != nil {
		return strike, err
	}
	rows, err := env.Database().Query(ctx, rowsSQL)
	if err != nil {
		return strike, fmt.Errorf("look at what the crash left behind: %w", err)
	}
	attrs := map[string]string{}
	for name, v := range rows[0] {
		n, _ := v.(float64)
		attrs[name] = strconv.Itoa(int(n))
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: leftSubject, Text: fmt.Sprint(attrs), Attrs: attrs})
	return strike, nil
}

// rolledBack compares what was stored right after the crash.
func rolledBack(id, doc string, want map[string]int) harness.Check {
	return check.Func(check.Rule{ID: id, Doc: doc, Rule: "scenarios/library/crash_before_commit.go", Judge: func(rec harness.Record) harness.Verdict {
		var at time.Duration
		var got map[string]string
		for _, e := range rec.History.Events {
			if e.Kind == harness.EventNote && e.Subject == leftSubject {
				at, got = e.At, e.Attrs
			}
		}
		if got == nil {
			return harness.Undecided(harness.ReasonVacuous, "nobody looked at what the crash left behind")
		}
		for name, n := range want {
			if got[name] != strconv.Itoa(n) {
				return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("at +%.1f ms: %v; want %v", float64(at)/float64(time.Millisecond), got, want)}},
					"%s: %s is %s, want %d", doc, name, got[name], n)
			}
		}
		return harness.Passed("%s", doc)
	}})
}
