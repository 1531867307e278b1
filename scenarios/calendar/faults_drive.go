package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Kinds of what staff decide about conflicts.
const (
	kindKeep   = "keep"
	kindGiveUp = "give-up"
)

// longCall is the time-out of a call of the provider where calls are held: no
// machine is so busy that one runs out before it is let go.
const longCall = 15 * time.Second

// A cast is the members of a scenario about the provider, at work.
type cast struct {
	castChoices
	env    harness.Env
	origin time.Time
	booked []appointmentAnswer // by part; of those that are booked
}

// assemble reads the plan and has staff set up its resources.
func assemble(ctx context.Context, env harness.Env) (*cast, error) {
	s := &cast{env: env}
	var err error
	if s.origin, err = begin(ctx, env, &s.castChoices); err != nil {
		return nil, err
	}
	s.booked = make([]appointmentAnswer, len(s.Parts))
	return s, setUp(ctx, env, s.Resources...)
}

func (s *cast) resource(n int) resource { return s.Resources[s.Parts[n].Resource] }

// external is somebody else's event in the way of a part, at a span.
func (s *cast) external(n int, at span) provider.External {
	return provider.External{Calendar: s.resource(n).Calendar, EventID: s.Parts[n].External, Start: at.start(s.origin), End: at.end(s.origin)}
}

// around are the events of others that touch a part's appointment on both sides.
func (s *cast) around(n int) []provider.External {
	before, after := s.external(n, span{s.Parts[n].Span.From - 30, s.Parts[n].Span.From}), s.external(n, span{s.Parts[n].Span.To, s.Parts[n].Span.To + 30})
	before.EventID += "-before"
	after.EventID += "-after"
	return []provider.External{before, after}
}

// behave changes how the provider treats the first resource's calendar, or the
// calendar of another one.
func (s *cast) behave(ctx context.Context, change func(*provider.Behaviour), more provider.Config) error {
	r := s.Resources[0]
	b := behaviour(r)
	change(&b)
	more.Calendars = map[string]provider.Behaviour{r.Calendar: b}
	return configure(ctx, s.env, more)
}

// each has the members of the parts make a request, several at a time.
func (s *cast) each(ctx context.Context, kind string, list []int, request func(n int) harness.Request) []harness.Operation {
	requests := make([]harness.Request, len(list))
	for i, n := range list {
		requests[i] = answers.As(kind, request(n))
	}
	return s.env.DoAll(ctx, requests, hands)
}

// book books the parts' appointments.
func (s *cast) book(ctx context.Context, kind string, list []int) error {
	return s.keep(list, s.each(ctx, kind, list, s.booking))
}

func (s *cast) booking(n int) harness.Request {
	return book(n, member(n), s.resource(n).ID, s.Parts[n].Span.in(s.Parts[n].Zone, s.origin), "book")
}

func (s *cast) moving(n int) harness.Request {
	return moveTo(n, member(n), s.booked[n].ID, s.Parts[n].To.in(s.Parts[n].Zone, s.origin), "move")
}

func (s *cast) cancelling(n int) harness.Request {
	return cancel(n, member(n), s.booked[n].ID, "cancel")
}

// decide has staff decide about the unresolved conflicts of the parts.
func (s *cast) decide(ctx context.Context, kind, decision string, names ...string) error {
	list, err := conflictsOf(s.env.Do(ctx, conflicts(staffProcess, staff(0))))
	if err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, n := range s.playing(names...) {
		mine[s.booked[n].ID] = true
	}
	var requests []harness.Request
	for i, c := range list {
		if mine[c.AppointmentID] {
			requests = append(requests, answers.As(kind, resolve(staffProcess+1+i, staff(0), c.ID, decision, "decide-"+c.ID)))
		}
	}
	s.env.DoAll(ctx, requests, hands)
	return nil
}

// ledger is the provider's account so far.
func ledger(ctx context.Context, env harness.Env) (l provider.Ledger, err error) {
	text, err := env.Upstream(provider.Name).Ledger(ctx)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	return l, err
}

// awaitLedger waits until the provider's account counts so many.
func awaitLedger(ctx context.Context, env harness.Env, what string, want int, count func(provider.Ledger) int) error {
	return env.Await(ctx, fmt.Sprintf("%s (%d)", what, want), patience, func(ctx context.Context) (bool, string, error) {
		l, err := ledger(ctx, env)
		if err != nil {
			return false, "", err
		}
		n := count(l)
		return n == want, fmt.Sprintf("%d", n), nil
	})
}

// counted counts rows of the provider's account.
func counted(so func(provider.Call) bool) func(provider.Ledger) int {
	return func(l provider.Ledger) (n int) {
		for _, c := range l.Calls {
			if so(c) {
				n++
			}
		}
		return n
	}
}

// awaitCount waits until a query, of one row with n, counts so many.
func awaitCount(ctx context.Context, env harness.Env, what string, want int, sql string, args ...any) error {
	return env.Await(ctx, fmt.Sprintf("%s (%d)", what, want), patience, func(ctx context.Context) (bool, string, error) {
		n, err := countNow(ctx, env, sql, args...)
		return err == nil && n == want, fmt.Sprintf("%d", n), err
	})
}

func countNow(ctx context.Context, env harness.Env, sql string, args ...any) (int, error) {
	rows, err := env.Database().Query(ctx, sql, args...)
	if err != nil || len(rows) != 1 {
		return 0, fmt.Errorf("count: %d rows, %w", len(rows), err)
	}
	return int(whole(rows[0], "n")), nil
}

// Queries that count.
const (
	countUnresolved = `select count(*) as n from conflicts where resolved_at is null`
	countCreated    = `select count(*) as n from appointments where state = 'CREATED'`
)

// pause has calls of the provider wait at a moment of the wire in front of it,
// until it is healed. path "" is any.
func pause(env harness.Env, name, method, path string, at harness.Moment) (heal func()) {
	return env.Upstream(provider.Name).Inject(harness.UpstreamFault{Name: name, Method: method, Path: path, At: at, Hold: make(chan struct{})})
}

// reset loses calls at a moment, until it is healed: their connections are reset.
func reset(env harness.Env, name, method, path string, at harness.Moment) (heal func()) {
	return env.Upstream(provider.Name).Inject(harness.UpstreamFault{Name: name, Method: method, Path: path, At: at, Drop: true})
}

// met counts the events whose calls a fault of that name has met, each so many
// times: by the id in the path, or in the body of a create; calls of a range by
// their range.
func met(env harness.Env, name string, times int) (n int) {
	seen := map[string]int{}
	for _, c := range env.Upstream(provider.Name).Calls() {
		if strings.Contains(c.Fault, name) {
			if seen[aboutOf(c)]++; seen[aboutOf(c)] == times {
				n++
			}
		}
	}
	return n
}

// aboutOf is what a call is about: an event's id, or a range.
func aboutOf(c harness.UpstreamCall) string {
	if id, ok := eventInPath(c); ok {
		return id
	}
	if c.Method == http.MethodGet {
		return c.Query
	}
	var body struct {
		EventID string `json:"event_id"`
	}
	_ = json.Unmarshal([]byte(c.Request), &body) // "" is of none
	return body.EventID
}

// awaitMet waits until a fault has met the calls of so many events, each so many
// times, and records it as the witness that the fault took place.
func awaitMet(ctx context.Context, env harness.Env, name string, times, want int, text string) error {
	err := env.Await(ctx, fmt.Sprintf("%s: %d", name, want), patience, func(context.Context) (bool, string, error) {
		n := met(env, name, times)
		return n >= want, fmt.Sprintf("%d", n), nil
	})
	if err == nil {
		env.Witness(strings.ReplaceAll(name, " ", "_"), float64(want), float64(met(env, name, times)), text)
	}
	return err
}

// awaitWaiting waits until so many creates of a calendar wait at the provider.
func awaitWaiting(ctx context.Context, env harness.Env, calendar string, want int) error {
	return awaitLedger(ctx, env, "creates wait at the provider", want, func(l provider.Ledger) int {
		for _, c := range l.Calendars {
			if c.Calendar == calendar {
				return c.Waiting
			}
		}
		return 0
	})
}

// released makes the requests at one barrier.
func (s *cast) released(ctx context.Context, name, kind string, list []int, request func(n int) harness.Request) ([]harness.Operation, error) {
	b := harness.Burst{Name: name}
	for _, n := range list {
		b.Requests = append(b.Requests, answers.As(kind, request(n)))
	}
	report, ops, err := s.env.Burst(ctx, b)
	if err == nil {
		answers.WitnessOverlap(s.env, report)
	}
	return ops, err
}

// keep stores what the parts' bookings were answered.
func (s *cast) keep(list []int, ops []harness.Operation) (err error) {
	for i, op := range ops {
		if s.booked[list[i]], err = appointmentOf(op); err != nil {
			return err
		}
	}
	return nil
}

// ids are the appointments of the parts.
func (s *cast) ids(names ...string) []string {
	var list []string
	for _, n := range s.playing(names...) {
		list = append(list, s.booked[n].ID)
	}
	return list
}

// Queries that count among the appointments with the ids $1.
const (
	countSynced  = `select count(*) as n from syncs where appointment_id::text = any($1) and due_at is null and claim is null`
	countOver    = `select count(*) as n from syncs where appointment_id::text = any($1) and claim is null and (due_at is null or parked_at is not null)`
	countFailing = `select count(*) as n from syncs where appointment_id::text = any($1) and attempts > 0`
	countParked  = `select count(*) as n from syncs where appointment_id::text = any($1) and parked_at is not null`
	countWaiting = `select count(*) as n from syncs join appointments using (appointment_id) where appointment_id::text = any($1) and due_at is not null and state = 'BOOKED'`
)

// look has staff ask how the n-th resource is, as an operation of the kind.
func (s *cast) look(ctx context.Context, kind string, n int) {
	s.env.Do(ctx, answers.As(kind, readResource(staffProcess, staff(0), s.Resources[n].ID)))
}

// resourcesTold compares what staff were told of resources: how creation is, how
// many conflicts are unresolved, how many appointments pending; by kind.
func resourcesTold(doc string, want map[string]string) harness.Check {
	return funcCheck("answers.resource", doc, "faults_drive.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := map[string]bool{}
		for _, op := range rec.History.Operations {
			text, is := want[op.Kind]
			if !is || op.Status != http.StatusOK {
				continue
			}
			judged[op.Kind] = true
			r, err := resourceOf(op)
			if got := fmt.Sprintf("%s, %d unresolved, %d pending", r.Creation, r.Unresolved, r.Pending); err != nil || got != text {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%s: got %s, want %s", op.Kind, got, text)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(judged) < len(want):
			return harness.Undecided(harness.ReasonUndelivered, "staff were told %d of %d times", len(judged), len(want))
		}
		return harness.Passed("%s: %d answers", doc, len(judged))
	})
}
