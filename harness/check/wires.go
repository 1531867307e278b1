package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// QuietFirst is the name of the fault that [AwaitQuiet] puts on an upstream.
const QuietFirst = "transactions that are open may end first"

// quietDeadline is how long a call is held for transactions that were open
// when it came. Whatever does not wait for the call ends within milliseconds.
const quietDeadline = 2 * time.Second

// idleShare of the time that a call was held must a transaction have been idle
// to be one that waits for the call, and not for Postgres.
const idleShare = 0.9

// AwaitQuiet makes the question of [NoTransactionDuringCall] decidable: each
// call is held, as it comes, until the transactions that its server then had
// open have ended, at most for two seconds. One that belongs to another request
// ends meanwhile; one that is held open across the call can't.
func AwaitQuiet(env harness.Env, upstream string) (heal func()) {
	return env.Upstream(upstream).Inject(harness.UpstreamFault{
		Name: QuietFirst, At: harness.MomentReceived,
		Do: func(ctx context.Context, c harness.UpstreamCall) {
			open := map[int]bool{}
			for _, t := range env.Postgres().OpenTransactions(c.Caller) {
				open[t.Number] = true
			}
			// Whether they ended is read off the record, not off this error.
			_ = env.Await(ctx, "transactions end during a call", quietDeadline, func(context.Context) (bool, string, error) {
				left := slices.ContainsFunc(env.Postgres().OpenTransactions(c.Caller), func(t harness.Transaction) bool { return open[t.Number] })
				return !left, "", nil
			})
		},
	})
}

// NoTransactionDuringCall makes the check that no session of a server had a
// transaction open while that server waited for an upstream call, judged from
// both wires: no transaction that was open when the call came is still open
// when it goes on to the upstream, although the call was held for them to end
// ([AwaitQuiet]). Every call must have been held so; else it is Unknown.
func NoTransactionDuringCall(id, upstream string) harness.Check {
	const doc = "no transaction is open in a server session while that server waits for an upstream call"
	return harness.Check{ID: id, Doc: doc, Rule: "harness/check/wires.go", Judge: func(rec harness.Record) harness.Verdict {
		if rec.Postgres == nil {
			return harness.Undecided(harness.ReasonAssumption, "the Postgres wire was not in the path")
		}
		transactions := harness.Transactions(rec.Postgres)
		var wrong []harness.Evidence
		judged, doubt := 0, ""
		for _, c := range rec.Upstream {
			if c.Upstream != upstream || c.Received == 0 {
				continue
			}
			if !strings.Contains(c.Fault, QuietFirst) || c.Forwarded == 0 {
				doubt = fmt.Sprintf("call %d was not held until transactions had ended", c.Seq)
				continue
			}
			judged++
			for _, t := range transactions {
				if t.Server != c.Caller || !openThrough(t, c.Received, c.Forwarded) {
					continue
				}
				if inPostgres(t, c.Received, c.Forwarded) > (1-idleShare)*float64(c.Forwarded-c.Received) {
					doubt = fmt.Sprintf("transaction %d of %s was open through call %d, but Postgres was at work on it", t.Number, t.Server, c.Seq)
					continue
				}
				wrong = append(wrong, harness.Evidence{Ops: append(opsOf(c), withOp(t.Op)...), Text: fmt.Sprintf(
					"%s backend %d had transaction %d open from +%.1f ms %s; call %d %s %s came at +%.1f ms and was held for %.0f ms for it to end; its last statement before: %s",
					t.Server, t.PID, t.Number, ms(t.Open), untilText(t), c.Seq, c.Method, c.Path, ms(c.Received), ms(c.Forwarded-c.Received), cell(lastBefore(t, c.Received)))})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(firstEvidence(wrong), "a transaction was open during %s of %d", plural(len(wrong), "upstream call"), judged)
		case doubt != "":
			return harness.Undecided(harness.ReasonVacuous, "%s", doubt)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "there was no upstream call to judge")
		case len(transactions) == 0:
			return harness.Undecided(harness.ReasonVacuous, "the Postgres wire saw no transaction at all")
		}
		return harness.Passed("%s: %s, %s on the Postgres wire", doc, plural(judged, "upstream call"), plural(len(transactions), "transaction"))
	}}
}

// openThrough says whether the transaction was certainly open at both instants.
// An implicit one is Postgres' own affair and never waits for the server.
func openThrough(t harness.Transaction, from, to time.Duration) bool {
	return !t.Implicit && t.Open != 0 && t.Open <= from && (t.Closing == 0 || t.Closing >= to)
}

// inPostgres is how much of the interval Postgres was at work on the transaction.
func inPostgres(t harness.Transaction, from, to time.Duration) float64 {
	var busy time.Duration
	for _, u := range t.Units {
		if u.Forwarded == 0 {
			continue
		}
		end := u.Answered
		if end == 0 {
			end = to
		}
		busy += max(0, min(end, to)-max(u.Forwarded, from))
	}
	return float64(busy)
}

func lastBefore(t harness.Transaction, at time.Duration) string {
	last := ""
	for _, u := range t.Units {
		if u.Step() && u.Arrived <= at {
			last = u.Statements[len(u.Statements)-1].SQL
		}
	}
	return last
}

func untilText(t harness.Transaction) string {
	if t.Closing == 0 {
		return "to the end of the record"
	}
	return fmt.Sprintf("to +%.1f ms", ms(t.Closing))
}

func withOp(op string) []string {
	if op == "" {
		return nil
	}
	return []string{op}
}
