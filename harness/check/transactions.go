package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// How the sampled check decides. A transaction of another request may be idle
// between two statements for a moment, also when the machine is busy; only
// one that stays idle over nearly the whole of a long call is one that waits
// for the call.
const (
	shortestCall = 60 * time.Millisecond // shorter calls can't be told apart by sampling
	leastSamples = 3                     // within one call
	coveredShare = 0.8                   // of the call, idle in one and the same transaction
	judgedShare  = 0.5                   // of the long calls must have been sampled, else too much went unseen
	startSlack   = 5 * time.Millisecond  // a sample this soon after the transaction fell idle may not show it yet
)

// NoOpenTransaction makes the check that no session of a server had a
// transaction open while that server waited for an upstream call. It judges
// samples of pg_stat_activity, so it is Unknown unless a call was long enough
// to be sampled, and when what was sampled fits a transaction that was held
// but does not prove it.
func NoOpenTransaction(id, upstream string) harness.Check {
	const doc = "no transaction is open in a server session while that server waits for an upstream call"
	return harness.Check{ID: id, Doc: doc, Rule: "harness/check/transactions.go", Judge: func(rec harness.Record) harness.Verdict {
		long, judged := 0, 0
		var wrong []harness.Evidence
		doubt := ""
		servers := serversOf(rec)
		for _, c := range rec.Upstream {
			end := max(c.Accepted, c.Answered)
			if c.Upstream != upstream || end-c.Received < shortestCall || stopped(rec.History, c.Caller, c.Received, end) {
				continue
			}
			long++
			samples := during(rec.Activity, c.Received, end)
			if len(samples) < leastSamples {
				continue
			}
			judged++
			tx, held := heldThrough(samples, c, end, servers)
			switch {
			case !held:
			case tx.Replica != c.Caller:
				doubt = fmt.Sprintf("a session of %q was idle in a transaction all through call %d, and no server has that name", tx.Replica, c.Seq)
			case !covered(samples, c, tx.Since, end):
				doubt = fmt.Sprintf("%s backend %d was idle in a transaction from before call %d, but the last sample was too early to say how long", tx.Replica, tx.PID, c.Seq)
			default:
				wrong = append(wrong, harness.Evidence{Ops: opsOf(c), Text: fmt.Sprintf(
					"%s backend %d was idle in a transaction from +%.1f ms on, all through call %d %s %s (+%.1f … +%.1f ms); its last statement: %s",
					tx.Replica, tx.PID, ms(tx.Since), c.Seq, c.Method, c.Path, ms(c.Received), ms(end), cell(tx.Query))})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(firstEvidence(wrong), "a transaction was open during %s of %d", plural(len(wrong), "upstream call"), judged)
		case doubt != "":
			return harness.Undecided(harness.ReasonVacuous, "%s", doubt)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no upstream call was long enough to sample the database sessions during it")
		case float64(judged) < judgedShare*float64(long):
			return harness.Undecided(harness.ReasonVacuous, "only %d of %d upstream calls could be sampled", judged, long)
		}
		return harness.Passed("%s: %s sampled", doc, plural(judged, "upstream call"))
	}}
}

// serversOf gives the names of the servers under test that the record knows.
func serversOf(rec harness.Record) map[string]bool {
	names := map[string]bool{}
	for _, c := range rec.Upstream {
		names[c.Caller] = true
	}
	for _, op := range rec.History.Operations {
		names[op.Server] = true
	}
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventProcess {
			names[e.Subject] = true
		}
	}
	delete(names, "")
	return names
}

func opsOf(c harness.UpstreamCall) []string {
	if c.Op == "" {
		return nil
	}
	return []string{c.Op}
}

// stopped says whether the server was stopped, killed or started in the
// interval: then its transactions are idle for another reason.
func stopped(h harness.History, server string, from, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e harness.Event) bool {
		return e.Kind == harness.EventProcess && e.Subject == server && e.At <= to && max(e.At, e.Until) >= from
	})
}

// during gives the looks that began and ended in the interval: one that ended
// later may have been taken when the call was over.
func during(samples []harness.ActivitySample, from, to time.Duration) []harness.ActivitySample {
	var in []harness.ActivitySample
	for _, s := range samples {
		if s.At >= from && max(s.At, s.Until) <= to {
			in = append(in, s)
		}
	}
	return in
}

// covered says whether the samples show the transaction over nearly all of the call.
func covered(samples []harness.ActivitySample, c harness.UpstreamCall, from, end time.Duration) bool {
	last := samples[len(samples)-1]
	return float64(last.At-max(from, c.Received)) >= coveredShare*float64(end-c.Received)
}

// heldThrough finds a transaction that fell idle at the beginning of the call
// and was idle in every sample from then on. One of the caller is preferred;
// one of a session that no server owns by its name may be the caller's too.
func heldThrough(samples []harness.ActivitySample, c harness.UpstreamCall, end time.Duration, servers map[string]bool) (found harness.OpenTransaction, held bool) {
	late := c.Received + time.Duration((1-coveredShare)*float64(end-c.Received))
	for _, tx := range samples[len(samples)-1].Open {
		if tx.Replica != c.Caller && servers[tx.Replica] {
			continue
		}
		tx.Since = since(samples, tx)
		inAll := !slices.ContainsFunc(samples, func(s harness.ActivitySample) bool {
			return s.At >= max(tx.Since, c.Received)+startSlack && !slices.ContainsFunc(s.Open, samePeriod(tx))
		})
		if inAll && tx.Since <= late && (!held || tx.Replica == c.Caller) {
			found, held = tx, true
		}
	}
	return found, held
}

// since is the best that the samples know about when a transaction fell idle.
// Each gives an instant that is too late by as long as it took to look.
func since(samples []harness.ActivitySample, tx harness.OpenTransaction) time.Duration {
	best := tx.Since
	for _, s := range samples {
		for _, o := range s.Open {
			if samePeriod(tx)(o) {
				best = min(best, o.Since)
			}
		}
	}
	return best
}

// samePeriod recognises one idle period of one session.
func samePeriod(tx harness.OpenTransaction) func(harness.OpenTransaction) bool {
	return func(o harness.OpenTransaction) bool {
		return o.PID == tx.PID && o.Replica == tx.Replica && o.Period == tx.Period
	}
}
