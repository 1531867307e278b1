package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// patience bounds each wait for something that takes milliseconds.
const patience = 15 * time.Second

// warmRounds are run before the moments are numbered: statements get prepared,
// caches filled, and what the server does on its own account shows itself.
const warmRounds = 2

// A Crash says what request is to be crashed at each of its moments.
type Crash struct {
	Name string // "booking": names the points in the record

	// Prepare makes what the round's request needs, outside of its moments. Optional.
	Prepare func(ctx context.Context, env harness.Env, round int) error

	// Request is the request of a round: in each the same but for its target
	// and its Idempotency-Key.
	Request func(round int) harness.Request

	// Done tells whether the round's request has taken effect by the rows.
	Done func(ctx context.Context, env harness.Env, round int) (bool, error)

	// State says how far the request has come, in a word of the design, where
	// it takes effect in several steps. Optional.
	State func(ctx context.Context, env harness.Env, round int) (string, error)

	// Until waits for what the request has brought about beyond its answer, by
	// workers of the server. Their moments are then the request's, too: a fault
	// may strike when it was answered long ago. Optional.
	Until func(ctx context.Context, env harness.Env, round int) error

	// Struck looks at what a fault has left, while the servers that it killed are
	// still down. Of the point it knows the fault and the first answer. Optional.
	Struck func(ctx context.Context, env harness.Env, round int, p Point) error

	// Others matches statements of the server's own business that come when a
	// request has been made, so that they can't be learnt while it is quiet:
	// what a relay does with an event. They are no moments. Optional.
	Others *regexp.Regexp

	// After brings the round to its end when the point was tried, so that
	// nothing of it meets the next one. Optional.
	After func(ctx context.Context, env harness.Env, round int) error

	// Quiet waits until the server has nothing left to do on its own account.
	// What it does outside of requests is no moment of theirs. Optional.
	Quiet func(ctx context.Context, env harness.Env) error

	Upstreams []string         // whose calls by the request are moments, too
	Actions   []harness.Action // ActionDrop, ActionKill

	// OneKill has moments of one transaction before its COMMIT, between which no
	// wire saw anything else, killed at once, at the last of them: the kill
	// undoes the transaction, wherever in it it strikes. What no wire sees, as a
	// server's file, a kill at each of them may still tell apart.
	OneKill bool
	_       struct{}
}

// A Point is one moment of a request and what came of a fault there.
type Point struct {
	Number int            // from 1
	Of     int            // points in all
	Crash  string         // name
	Label  string         // "after insert into active_reservations ..."
	Fault  harness.Fault  // what was done
	Action harness.Action // likewise, for tables

	Struck bool   // the fault took place
	Done   bool   // before the retry the request had taken effect
	State  string // how far it had come then; "" of a request of one step
	First  string // what the client got: "201", "no answer"
	Retry  int    // status of the retry with the same key
	Again  string // operation of the retry
	_      struct{}
}

// CrashPoints runs the request once for each of its moments and each action,
// with the fault there, then once more with the same key. The topology needs
// the Postgres wire and one replica. Every point is an event of kind
// [harness.EventPoint]; [PointsOf] reads them back. The error is trouble of the
// environment: points that were not reached are then missing, and the check
// says so.
func CrashPoints(ctx context.Context, env harness.Env, c Crash) ([]Point, error) {
	e := explorer{Crash: c, env: env}
	moments, err := e.number(ctx)
	if err != nil {
		return nil, fmt.Errorf("number the moments of a %s: %w", c.Name, err)
	}
	points := c.points(moments)
	for i := range points {
		if err := e.try(ctx, &points[i]); err != nil {
			return points[:i], fmt.Errorf("crash point %d of %d of a %s (%s): %w", i+1, len(points), c.Name, points[i].Fault, err)
		}
	}
	return points, nil
}

// points are the moments with each action.
func (c Crash) points(moments []momentOf) []Point {
	var points []Point
	for _, action := range c.Actions {
		for i, m := range moments {
			if c.OneKill && action == harness.ActionKill && i+1 < len(moments) && m.undoneAlike(moments[i+1]) {
				continue
			}
			f := m.fault
			f.Action = action
			points = append(points, Point{Number: len(points) + 1, Crash: c.Name, Label: m.label, Fault: f, Action: action})
		}
	}
	for i := range points {
		points[i].Of = len(points)
	}
	return points
}

// An explorer is one enumeration at work.
type explorer struct {
	Crash
	env   harness.Env
	round int
}

// try runs one point in a round of its own.
func (e *explorer) try(ctx context.Context, p *Point) error {
	round, err := e.prepared(ctx)
	if err != nil {
		return err
	}
	request := e.Request(round)
	injected := e.env.Inject(p.Fault)
	first := e.env.Do(ctx, request)
	struck, err := injected.Await(ctx, patience)
	injected.Heal()
	if err != nil {
		return fmt.Errorf("the moment did not come: %w (first answer: %s)", err, answerOf(first))
	}
	p.Struck, p.First = true, answerOf(first)
	if err := e.revived(ctx, round, *p); err != nil {
		return err
	}
	if p.Done, err = e.Done(ctx, e.env, round); err != nil {
		return fmt.Errorf("look whether it took effect: %w", err)
	}
	if e.State != nil {
		if p.State, err = e.State(ctx, e.env, round); err != nil {
			return fmt.Errorf("look how far it came: %w", err)
		}
	}
	request.Kind += "-again"
	again := e.env.Do(ctx, request)
	p.Retry, p.Again = again.Status, again.ID
	e.env.Record(p.event(struck, first, again))
	return e.over(ctx, round)
}

// revived waits until Postgres has rolled back what the fault left undone, and
// starts the servers again that it killed.
func (e *explorer) revived(ctx context.Context, round int, p Point) error {
	if err := e.env.Postgres().AwaitGone(ctx); err != nil {
		return err
	}
	if e.Struck != nil {
		if err := e.Struck(ctx, e.env, round, p); err != nil {
			return fmt.Errorf("look at what the fault left of round %d: %w", round, err)
		}
	}
	for _, s := range e.env.Servers() {
		if s.URL() == "" {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// over brings the round to its end.
func (e *explorer) over(ctx context.Context, round int) error {
	if e.After == nil {
		return nil
	}
	if err := e.After(ctx, e.env, round); err != nil {
		return fmt.Errorf("end round %d: %w", round, err)
	}
	return nil
}

// prepared begins the next round.
func (e *explorer) prepared(ctx context.Context) (int, error) {
	round := e.round
	e.round++
	if e.Prepare == nil {
		return round, nil
	}
	if err := e.Prepare(ctx, e.env, round); err != nil {
		return round, fmt.Errorf("prepare round %d: %w", round, err)
	}
	return round, nil
}

// A sound run is one of the request without a fault.
type soundRun struct {
	op    harness.Operation
	units []harness.Unit // on the Postgres wire since it was prepared: what preparing sent is nobody's moment, nor is it the server's own business
	ended time.Duration  // its answer, or what it brought about beyond that
}

// during reports whether the moment is in the run. Sent will not do for its
// beginning: it is stamped when the request is in the kernel, and a server may
// have begun by then.
func (r soundRun) during(at time.Duration) bool { return at >= r.op.Intended && at <= r.ended }

// undisturbed makes a round's request without a fault. It must succeed: what
// is enumerated is a request that works.
func (e *explorer) undisturbed(ctx context.Context) (r soundRun, err error) {
	round, err := e.prepared(ctx)
	if err != nil {
		return r, err
	}
	before := len(e.env.Postgres().Units())
	r.op = e.env.Do(ctx, e.Request(round))
	if r.op.Outcome != harness.OK {
		return r, fmt.Errorf("without any fault %s %s was answered %s, want a success", r.op.Method, r.op.Path, answerOf(r.op))
	}
	r.ended = r.op.Answered
	if e.Until != nil {
		if err := e.Until(ctx, e.env, round); err != nil {
			return r, err
		}
		r.ended = e.env.Now()
	}
	done, err := e.Done(ctx, e.env, round)
	if err == nil && !done {
		err = errors.New("it was answered with success, and the rows do not show it")
	}
	if err == nil && e.Quiet != nil {
		err = e.Quiet(ctx, e.env)
	}
	if err != nil {
		return r, err
	}
	r.units = e.env.Postgres().Units()[before:] // what ends the round is not looked at
	return r, e.over(ctx, round)
}

func answerOf(op harness.Operation) string {
	if op.Status == 0 {
		return "no answer"
	}
	return strconv.Itoa(op.Status)
}

// event stores the point in the history.
func (p Point) event(struck harness.Strike, first, again harness.Operation) harness.Event {
	return harness.Event{
		At: struck.At, Kind: harness.EventPoint, Subject: p.Crash,
		Text: fmt.Sprintf("point %d of %d: %s: %s; first %s, retry %d", p.Number, p.Of, p.Action, p.Label, p.First, p.Retry),
		Attrs: map[string]string{
			"number": strconv.Itoa(p.Number), "of": strconv.Itoa(p.Of), "label": p.Label, "fault": p.Fault.String(), "action": string(p.Action),
			"done": strconv.FormatBool(p.Done), "state": p.State, "first": p.First, "retry": strconv.Itoa(p.Retry), "op": first.ID, "again": again.ID,
		},
	}
}

// PointsOf reads the points of one enumeration back from a record, in order.
func PointsOf(rec harness.Record, crash string) []Point {
	var points []Point
	for _, e := range rec.History.Events {
		if e.Kind != harness.EventPoint || (crash != "" && e.Subject != crash) {
			continue
		}
		n, err1 := strconv.Atoi(e.Attrs["number"])
		of, err2 := strconv.Atoi(e.Attrs["of"])
		retry, err3 := strconv.Atoi(e.Attrs["retry"])
		fault, err4 := harness.ParseFault(e.Attrs["fault"])
		if errors.Join(err1, err2, err3, err4) != nil {
			continue // not whole: then the check misses it
		}
		points = append(points, Point{
			Number: n, Of: of, Crash: e.Subject, Label: e.Attrs["label"], Fault: fault, Action: harness.Action(e.Attrs["action"]),
			Struck: true, Done: e.Attrs["done"] == "true", State: e.Attrs["state"], First: e.Attrs["first"], Retry: retry, Again: e.Attrs["again"],
		})
	}
	return points
}

// Recoverable makes the check that every point of the enumeration was tried
// and that the retry with the same key got the status of success. A retry that
// was not answered is no violation: nobody knows what it would have been told.
func Recoverable(id, crash, rule string, want int) harness.Check {
	doc := fmt.Sprintf("a %s that is crashed at any of its moments is recovered by its key: the retry is answered %d", crash, want)
	return harness.Check{ID: id, Doc: doc, Rule: rule, Judge: func(rec harness.Record) harness.Verdict {
		points := PointsOf(rec, crash)
		if len(points) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "no crash point was tried")
		}
		var wrong []harness.Evidence
		seen := map[int]bool{}
		open, why := 0, harness.ReasonUndelivered
		for _, p := range points {
			switch {
			case p.Retry == want:
			case p.Retry == 0: // nobody knows
				open++
				continue
			case p.Retry >= 500 && len(rec.Trouble) > 0: // it may be the trouble's doing
				open++
				why = rec.Trouble[0].Reason
				continue
			default:
				wrong = append(wrong, harness.Evidence{Ops: opsOfPoint(rec, p), Text: fmt.Sprintf("point %d (%s %s): the retry was answered %d, want %d", p.Number, p.Action, p.Label, p.Retry, want)})
			}
			seen[p.Number] = true
		}
		switch of := points[0].Of; {
		case len(wrong) > 0:
			return harness.Violated(wrong, "%d of %d points of a %s are not recovered by a retry", len(wrong), len(points), crash)
		case open > 0:
			return harness.Undecided(why, "at %d of %d points of a %s the retry was not answered, or not by a sound server", open, len(points), crash)
		case len(seen) != of:
			return harness.Undecided(harness.ReasonVacuous, "%d of %d points of a %s were tried", len(seen), of, crash)
		default:
			return harness.Passed("%d of %d points of a %s: each retry was answered %d", len(seen), of, crash, want)
		}
	}}
}

func opsOfPoint(rec harness.Record, p Point) []string {
	i := slices.IndexFunc(rec.History.Events, func(e harness.Event) bool {
		return e.Kind == harness.EventPoint && e.Subject == p.Crash && e.Attrs["number"] == strconv.Itoa(p.Number)
	})
	return []string{rec.History.Events[i].Attrs["op"], rec.History.Events[i].Attrs["again"]}
}

// MarshalJSON gives a point as reports print it.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"number": p.Number, "of": p.Of, "request": p.Crash, "at": p.Label, "fault": p.Fault.String(),
		"done_before_retry": p.Done, "first": p.First, "retry": p.Retry,
	})
}

// labelMost is how much of a statement a label has.
const labelMost = 60

// oneLine makes white space single and cuts long text.
func oneLine(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > labelMost {
		return string(line[:labelMost-1]) + "…"
	}
	return string(line)
}
