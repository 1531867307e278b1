package explore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A momentOf is one moment of the request: where, and in words.
type momentOf struct {
	fault harness.Fault // without its action
	label string
}

// number runs the request undisturbed until its moments are known, and numbers
// them. What goes over the Postgres wire outside of requests is the server's
// own business (polls, projections, deliveries): a statement that was seen there
// is no moment of a request.
func (e *explorer) number(ctx context.Context) ([]momentOf, error) {
	own := map[string]bool{}
	for range warmRounds {
		before := len(e.env.Postgres().Units())
		op, err := e.undisturbed(ctx)
		if err == nil && e.Quiet != nil {
			err = e.Quiet(ctx, e.env)
		}
		if err != nil {
			return nil, err
		}
		for _, u := range e.env.Postgres().Units()[before:] {
			if u.Arrived < op.Sent || u.Arrived > op.Answered {
				learn(own, u)
			}
		}
	}
	before := len(e.env.Postgres().Units())
	op, err := e.undisturbed(ctx)
	if err != nil {
		return nil, err
	}
	var units []harness.Unit
	for _, u := range e.env.Postgres().Units()[before:] {
		if u.Arrived >= op.Sent && u.Arrived <= op.Answered {
			units = append(units, u)
		}
	}
	moments := momentsOf(units, own)
	if len(moments) == 0 {
		return nil, errors.New("the Postgres wire saw no statement of it; does the server reach Postgres through the wire?")
	}
	moments = append(moments, e.upstreamMoments(op)...)
	return append(moments, momentOf{
		fault: harness.Fault{At: harness.BeforeResponse, Match: op.Kind, Nth: 1},
		label: "before the first byte of the answer is read",
	}), nil
}

func learn(own map[string]bool, u harness.Unit) {
	for _, s := range u.Statements {
		if !control(s.SQL) {
			own[s.SQL] = true
		}
	}
}

var controlWords = regexp.MustCompile(`(?i)^\s*(begin|start transaction|commit|end|rollback|abort|savepoint|release|set|reset|discard|deallocate)\b`)

// control reports whether the statement only controls transaction or session.
func control(sql string) bool { return controlWords.MatchString(sql) }

// momentsOf numbers the moments of the request's units in order: before and
// after each statement, before and after each commit. BEGIN is none: nothing
// is different before and after it.
func momentsOf(units []harness.Unit, own map[string]bool) []momentOf {
	ofTx := map[int]string{} // first statement of the request in the transaction
	for _, u := range units {
		for _, s := range u.Statements {
			if ofTx[u.Tx] == "" && !control(s.SQL) && !own[s.SQL] {
				ofTx[u.Tx] = s.SQL
			}
		}
	}
	var list []momentOf
	times := map[string]int{}
	add := func(sql string, ats ...harness.Moment) {
		for _, at := range ats {
			match := exactly(sql)
			if at == harness.BeforeCommit || at == harness.AfterCommit {
				match = regexp.QuoteMeta(normal(sql)) // over all statements of the transaction
			}
			key := string(at) + match
			times[key]++
			list = append(list, momentOf{fault: harness.Fault{At: at, Match: match, Nth: times[key]}, label: label(at, sql)})
		}
	}
	for _, u := range units {
		mine := ofTx[u.Tx]
		if mine == "" || len(u.Statements) == 0 {
			continue
		}
		first := u.Statements[0].SQL
		switch {
		case !control(first) && !own[first]:
			add(first, harness.BeforeStatement, harness.AfterStatement)
			if u.Before == "I" && u.Committed { // implicit: it is its own commit
				add(first, harness.AfterCommit)
			}
		case u.Committed:
			add(mine, harness.BeforeCommit, harness.AfterCommit)
		}
	}
	return list
}

// exactly matches the statement and no other.
func exactly(sql string) string { return "^" + regexp.QuoteMeta(normal(sql)) + "$" }

// normal is the statement as faults match it: white space made single.
func normal(sql string) string { return strings.Join(strings.Fields(sql), " ") }

func label(at harness.Moment, sql string) string {
	switch at {
	case harness.BeforeCommit:
		return "before COMMIT of " + oneLine(sql, 60)
	case harness.AfterCommit:
		return "after COMMIT of " + oneLine(sql, 60)
	case harness.AfterStatement:
		return "after " + oneLine(sql, 60)
	default:
		return "before " + oneLine(sql, 60)
	}
}

// upstreamMoments are those of the upstream calls that the operation made.
func (e *explorer) upstreamMoments(op harness.Operation) []momentOf {
	var list []momentOf
	times := map[string]int{}
	for _, name := range e.Upstreams {
		for _, c := range e.env.Upstream(name).Calls() {
			if c.Op != op.ID || c.Received < op.Sent || c.Received > op.Answered {
				continue
			}
			what := c.Method + " " + c.Path
			times[what]++
			for _, at := range []harness.Moment{harness.MomentReceived, harness.MomentAccepted} {
				list = append(list, momentOf{
					fault: harness.Fault{At: at, Match: what, Nth: times[what]}, label: fmt.Sprintf("%s %s of %s", at, what, name),
				})
			}
		}
	}
	return list
}
