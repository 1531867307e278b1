package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// A momentOf is one moment of the request: where, in words, and when it was in
// the run in which it was numbered.
type momentOf struct {
	fault harness.Fault // without its action
	label string
	at    time.Duration
	tx    int // transaction that is under way and not committed yet; 0 for none
}

// undoneAlike reports whether a kill at the moment leaves what one at the next
// leaves: both undo the same transaction.
func (m momentOf) undoneAlike(next momentOf) bool { return m.tx != 0 && m.tx == next.tx }

// number runs the request undisturbed until its moments are known, and numbers
// them. What goes over the Postgres wire outside of requests is the server's
// own business (polls, projections, deliveries): a statement that was seen there
// is no moment of a request.
func (e *explorer) number(ctx context.Context) ([]momentOf, error) {
	own := map[string]bool{}
	var run soundRun
	var before, called map[string]bool
	for range warmRounds + 1 {
		before, called = run.statements(), e.called(run)
		var err error
		if run, err = e.undisturbed(ctx); err != nil {
			return nil, err
		}
		for _, u := range run.units {
			e.learn(own, u, run)
		}
	}
	for sql := range run.statements() {
		own[sql] = own[sql] || !before[sql]
	}
	units := slices.DeleteFunc(slices.Clone(run.units), func(u harness.Unit) bool { return !run.during(u.Arrived) })
	moments := momentsOf(units, own)
	if len(moments) == 0 {
		return nil, errors.New("the Postgres wire saw no statement of it; does the server reach Postgres through the wire?")
	}
	moments = append(moments, e.upstreamMoments(run, called)...)
	moments = append(moments, momentOf{
		fault: harness.Fault{At: harness.BeforeResponse, Match: run.op.Kind, Nth: 1},
		label: "before the first byte of the answer is read", at: run.op.Answered,
	})
	slices.SortStableFunc(moments, func(a, b momentOf) int { return cmp.Compare(a.at, b.at) })
	return moments, nil
}

// statements are those that came during the run.
func (r soundRun) statements() map[string]bool {
	seen := map[string]bool{}
	for _, u := range r.units {
		for _, s := range u.Statements {
			if r.during(u.Arrived) && !control(s.SQL) {
				seen[s.SQL] = true
			}
		}
	}
	return seen
}

// learn notes what of the unit is the server's own business: what came outside
// of the run, and what others do.
func (e *explorer) learn(own map[string]bool, u harness.Unit, run soundRun) {
	for _, s := range u.Statements {
		if !control(s.SQL) && (!run.during(u.Arrived) || (e.Others != nil && e.Others.MatchString(s.SQL))) {
			own[s.SQL] = true
		}
	}
}

var controlWords = regexp.MustCompile(`(?i)^\s*(begin|start transaction|commit|end|rollback|abort|savepoint|release|set|reset|discard|deallocate)\b`)

// control reports whether the statement only controls transaction or session.
func control(sql string) bool { return controlWords.MatchString(sql) }

// momentsOf numbers the moments of the request's units in order: before and
// after each statement, before and after each commit. BEGIN is none: nothing
// is different before and after it. A unit of several statements is held, and
// lost, as a whole; it is known by the first of the request's in it.
func momentsOf(units []harness.Unit, own map[string]bool) []momentOf {
	ofTx := map[int]string{} // first statement of the request in the transaction
	for _, u := range units {
		if sql := firstOf(u, own); sql != "" && ofTx[u.Tx] == "" {
			ofTx[u.Tx] = sql
		}
	}
	var list []momentOf
	for i, u := range units {
		add := func(sql, match string, ats ...harness.Moment) {
			for _, at := range ats {
				m := momentOf{fault: harness.Fault{At: at, Match: match, Nth: nth(units, i, at, match)}, label: label(at, sql), at: u.Arrived, tx: u.Tx}
				if at == harness.AfterCommit {
					m.tx = 0
				}
				list = append(list, m)
			}
		}
		mine := ofTx[u.Tx]
		inTransaction := regexp.QuoteMeta(normal(mine)) // over all statements of the transaction
		switch sql := firstOf(u, own); {
		case mine == "":
		case sql != "" && u.Committed: // it is its own commit, or has it in it
			add(sql, exactly(sql), harness.BeforeStatement, harness.AfterStatement)
			add(mine, inTransaction, harness.AfterCommit)
		case sql != "":
			add(sql, exactly(sql), harness.BeforeStatement, harness.AfterStatement)
		case u.Committed:
			add(mine, inTransaction, harness.BeforeCommit, harness.AfterCommit)
		}
	}
	return list
}

// firstOf is the first statement of the unit that is the request's and not the
// server's own business; "" when there is none.
func firstOf(u harness.Unit, own map[string]bool) string {
	for _, s := range u.Statements {
		if !control(s.SQL) && !own[s.SQL] {
			return s.SQL
		}
	}
	return ""
}

// nth is which of the units that a fault at the moment meets the i-th is: the
// wire counts units, not statements, and at a commit those whose transaction
// has a statement that matches anywhere in it.
func nth(units []harness.Unit, i int, at harness.Moment, match string) int {
	pattern := regexp.MustCompile("(?i)" + match)
	n := 0
	for k, u := range units[:i+1] {
		from := k
		if at == harness.BeforeCommit || at == harness.AfterCommit {
			if !u.Committed {
				continue
			}
			from = 0
		}
		if slices.ContainsFunc(units[from:k+1], func(o harness.Unit) bool {
			return o.Tx == u.Tx && slices.ContainsFunc(o.Statements, func(s harness.Statement) bool { return pattern.MatchString(normal(s.SQL)) })
		}) {
			n++
		}
	}
	return n
}

// exactly matches the statement and no other.
func exactly(sql string) string { return "^" + regexp.QuoteMeta(normal(sql)) + "$" }

// normal is the statement as faults match it: white space made single.
func normal(sql string) string { return strings.Join(strings.Fields(sql), " ") }

func label(at harness.Moment, sql string) string {
	switch at {
	case harness.BeforeCommit:
		return "before COMMIT of " + oneLine(sql)
	case harness.AfterCommit:
		return "after COMMIT of " + oneLine(sql)
	case harness.AfterStatement:
		return "after " + oneLine(sql)
	default:
		return "before " + oneLine(sql)
	}
}

// upstreamMoments are those of the upstream calls that the run made. One whose
// path was not called in the run before is known by its method alone: there is an
// id in the path, and the next round has another one.
func (e *explorer) upstreamMoments(run soundRun, before map[string]bool) []momentOf {
	var list []momentOf
	for _, name := range e.Upstreams {
		times := map[string]int{} // by path, and by method
		for _, c := range e.calls(name, run) {
			what := callText(c)
			times[c.Method]++
			times[what]++
			if !before[what] {
				what = c.Method
			}
			for _, at := range []harness.Moment{harness.MomentReceived, harness.MomentAccepted} {
				list = append(list, momentOf{
					fault: harness.Fault{At: at, Match: what, Nth: times[what]}, label: fmt.Sprintf("%s %s of %s", at, what, name), at: c.Received,
				})
			}
		}
	}
	return list
}

// calls are an upstream's that came in the run: of the operation alone, or,
// where the run goes beyond its answer, all of them.
func (e *explorer) calls(upstream string, run soundRun) []harness.UpstreamCall {
	return slices.DeleteFunc(slices.Clone(e.env.Upstream(upstream).Calls()), func(c harness.UpstreamCall) bool {
		return (c.Op != run.op.ID && e.Until == nil) || !run.during(c.Received)
	})
}

// called are the methods and paths of the upstream calls of the run.
func (e *explorer) called(run soundRun) map[string]bool {
	seen := map[string]bool{}
	for _, name := range e.Upstreams {
		for _, c := range e.calls(name, run) {
			seen[callText(c)] = true
		}
	}
	return seen
}

func callText(c harness.UpstreamCall) string { return c.Method + " " + c.Path }
