package calendar

import (
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// outputCap is how much of an answer the history keeps.
const outputCap = 16 << 10

func sqlCheck(id, file string) harness.Check {
	return check.SQL(id, invariants, "invariants/"+file, where)
}

// funcCheck makes a check of a function; file is where it is written.
func funcCheck(id, doc, file string, settled bool, judge func(harness.Record) harness.Verdict) harness.Check {
	return check.Func(check.Rule{ID: id, Doc: doc, Rule: where + "/" + file, NeedsSettled: settled, Judge: judge})
}

// words compares what the clients of each group were told.
func words(id, doc string, group func(harness.Operation) string, want func(harness.Record) answers.Tallies) harness.Check {
	return answers.Words(answers.WordsRule{ID: id, Doc: doc, Rule: where + "/checks.go", Group: group, Want: want})
}

// among says which words the clients of each kind may be told, in whatever number.
func among(id, doc, file string, allowed map[string][]string) harness.Check {
	return answers.Among(answers.AmongRule{ID: id, Doc: doc, Rule: where + "/" + file, Group: answers.ByKind, Allowed: allowed})
}

// An allowance is what a scenario can't demand of the standing rules.
type allowance struct {
	refreshes int // further refreshes of a calendar's token: a server may have died with one, and its key have run out
}

// always are the checks that hold in every scenario of this design, whatever
// was injected.
func always(p harness.Params) []harness.Check { return standing(p, allowance{}) }

// standing are the checks of every scenario, with its allowance.
//
// The order of the history is trusted in this: writers of a resource lock its
// row first, so that of two transactions on it the later one's audit rows have
// the higher numbers.
func standing(_ harness.Params, a allowance) []harness.Check {
	return []harness.Check{
		check.Instant(sqlCheck("C-I1", "no_overlap.sql")),
		check.Instant(sqlCheck("C-I1.history", "no_overlap_ever.sql")),
		check.Instant(sqlCheck("C-I2", "one_creation_event.sql")),
		createdOnce(),
		standsOnce(),
		othersUntouched(),
		neverSilent(),
		sqlCheck("C-I5", "conflicts_resolved.sql"),
		check.Instant(sqlCheck("C-I5.once", "conflicts_once.sql")),
		conflictsAreListed(),
		wallClock(),
		refreshes(a.refreshes),
		check.Instant(sqlCheck("C-I8", "work_is_remembered.sql")),
		check.Instant(sqlCheck("C-history", "history_replays.sql")),
		check.Instant(sqlCheck("C-history.steps", "steps_follow_arrows.sql")),
		check.Instant(sqlCheck("C-history.events", "event_per_step.sql")),
		toldIsStored(),
		rowsWereTold(),
		refusedDidNothing(),
		sameAnswers(false),
		contractAnswers(),
	}
}

// served are the checks of a scenario in which nothing is broken or held back
// for longer than the server's deadlines: nobody may be told to come again.
func served(p harness.Params) []harness.Check { return append(always(p), noServerErrors()) }

func noServerErrors() harness.Check { return answers.NoServerErrors(where + "/checks.go") }

// subjectHeld is the event until which every call of the provider was held.
const subjectHeld = "calls are held"

// holdCalls has each call of the provider held until the transactions that its
// server has open have ended, for [noTransactionDuringCalls]. It is installed
// before the first call; done is called before many act at once: who queues for a
// lock behind others is in a transaction for as long as it takes.
func holdCalls(env harness.Env) (done func()) {
	heal := check.AwaitQuiet(env, provider.Name)
	return func() {
		env.Record(harness.Event{Kind: harness.EventNote, Subject: subjectHeld, Text: "until now each call of the provider was held for transactions to end"})
		heal()
	}
}

// noTransactionDuringCalls judges the calls that came while they were held:
// reconciliation goes on as long as there are servers.
func noTransactionDuringCalls() harness.Check {
	all := check.NoTransactionDuringCall("transactions", provider.Name)
	judge := all.Judge
	all.Judge = func(rec harness.Record) harness.Verdict {
		var until time.Duration
		for _, e := range rec.History.Events {
			if e.Subject == subjectHeld {
				until = e.At
			}
		}
		rec.Upstream = slices.DeleteFunc(slices.Clone(rec.Upstream), func(c harness.UpstreamCall) bool { return c.Received >= until })
		return judge(rec)
	}
	return all
}
