package explore

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

// working is a world in which a request is answered, and a worker then does the
// rest: it asks an upstream and stores what came of it. A relay comes between.
type working struct {
	scripted
	calls []harness.UpstreamCall
	ended int // rounds
}

func (w *working) Upstream(string) harness.Upstream { return provider{w: w} }
func (w *working) Now() time.Duration               { return w.now }

type provider struct {
	harness.Upstream
	w *working
}

func (p provider) Calls() []harness.UpstreamCall { return p.w.calls }

func (w *working) Do(_ context.Context, r harness.Request) harness.Operation {
	w.now += time.Millisecond
	op := harness.Operation{Kind: r.Kind, ID: "op", Intended: w.now, Sent: w.now, Outcome: harness.OK, Status: 200}
	w.send("insert into refunds")
	if w.ended == warmRounds { // now and then, and just when the moments are numbered
		w.send("select figures()")
	}
	w.now += time.Millisecond
	op.Answered = w.now
	return op
}

// until is the worker's part.
func (w *working) until(context.Context, harness.Env, int) error {
	w.send("update outbox", "select poll()")
	w.now += time.Millisecond
	w.calls = append(w.calls, harness.UpstreamCall{Method: "POST", Path: "/refunds", Op: "of another request", Received: w.now})
	w.send("update refunds")
	return nil
}

// TestMomentsGoOnWithWhatTheRequestBroughtAbout: in the order in which they
// came, a worker's upstream call among them, and without what others do.
func TestMomentsGoOnWithWhatTheRequestBroughtAbout(t *testing.T) {
	world := &working{}
	e := explorer{env: world, Crash: Crash{
		Name: "refund", Upstreams: []string{"payments"}, Others: regexp.MustCompile(`outbox`), Until: world.until,
		Request: func(int) harness.Request { return harness.Request{Kind: "callback"} },
		Done:    func(context.Context, harness.Env, int) (bool, error) { return true, nil },
		Quiet:   func(context.Context, harness.Env) error { world.send("select poll()"); return nil },
		After: func(context.Context, harness.Env, int) error { // the same statements, of something else
			world.send("update refunds")
			world.ended++
			return nil
		},
	}}
	moments, err := e.number(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range moments {
		got = append(got, m.label)
	}
	want := []string{
		"before insert into refunds", "after insert into refunds", "after COMMIT of insert into refunds",
		"before the first byte of the answer is read",
		"upstream-received POST /refunds of payments", "upstream-accepted POST /refunds of payments",
		"before update refunds", "after update refunds", "after COMMIT of update refunds",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if world.ended != warmRounds+1 {
		t.Errorf("%d rounds were brought to their end, want %d", world.ended, warmRounds+1)
	}
}

// A point is read back from the record as it was, with how far it had come.
func TestPointsComeBack(t *testing.T) {
	p := Point{
		Number: 3, Of: 9, Crash: "charge", Label: "after x", Fault: harness.Fault{Action: harness.ActionKill, At: harness.AfterCommit, Match: "x", Nth: 1},
		Action: harness.ActionKill, Struck: true, Done: false, State: "in flight", First: "no answer", Retry: 409, Again: "op-2",
	}
	rec := harness.Record{}
	rec.History.Events = []harness.Event{p.event(harness.Strike{}, harness.Operation{ID: "op-1"}, harness.Operation{ID: "op-2"})}
	got := PointsOf(rec, "charge")
	if len(got) != 1 {
		t.Fatalf("%d points", len(got))
	}
	if diff := cmp.Diff(p, got[0], cmp.Comparer(func(a, b Point) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// A call whose path has an id of the round in it is found again in the next
// round: it is the n-th of its method.
func TestUpstreamCallsWithAnIDInThePath(t *testing.T) {
	world := &working{}
	call := func(method, path string) {
		world.now += time.Millisecond
		world.calls = append(world.calls, harness.UpstreamCall{Method: method, Path: path, Received: world.now})
	}
	e := explorer{env: world, Crash: Crash{
		Name: "move", Upstreams: []string{"calendar"},
		Until: func(_ context.Context, _ harness.Env, round int) error {
			world.send("update refunds")
			call("GET", "/busy")
			call("GET", "/events/"+string(rune('a'+round)))
			call("GET", "/busy")
			return nil
		},
		Request: func(int) harness.Request { return harness.Request{Kind: "move"} },
		Done:    func(context.Context, harness.Env, int) (bool, error) { return true, nil },
		Quiet: func(context.Context, harness.Env) error {
			call("GET", "/busy") // between two runs: nobody's
			return nil
		},
	}}
	moments, err := e.number(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range moments {
		if m.fault.At == harness.MomentAccepted {
			m.fault.Action = harness.ActionKill
			got = append(got, m.fault.String())
		}
	}
	want := []string{"kill at upstream-accepted(GET /busy, 1)", "kill at upstream-accepted(GET, 2)", "kill at upstream-accepted(GET /busy, 2)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// killing is a world in which one server is killed by whatever strikes.
type killing struct {
	harness.Env
	harness.PostgresWire
	up  bool
	log []string
}

func (k *killing) Postgres() harness.PostgresWire        { return k }
func (k *killing) AwaitGone(context.Context) error       { k.log = append(k.log, "rolled back"); return nil }
func (k *killing) Inject(harness.Fault) harness.Injected { return deadly{w: k} }
func (k *killing) Servers() []harness.Server             { return []harness.Server{mortal{w: k}} }
func (k *killing) Record(harness.Event)                  {}
func (k *killing) Do(_ context.Context, r harness.Request) harness.Operation {
	k.log = append(k.log, r.Kind)
	return harness.Operation{}
}

type deadly struct {
	harness.Injected
	w *killing
}

func (d deadly) Heal() {}

func (d deadly) Await(context.Context, time.Duration) (harness.Strike, error) {
	d.w.up = false
	return harness.Strike{}, nil
}

type mortal struct {
	harness.Server
	w *killing
}

func (m mortal) URL() string {
	if m.w.up {
		return "http://here"
	}
	return ""
}

func (m mortal) Start(context.Context) error {
	m.w.up = true
	m.w.log = append(m.w.log, "started")
	return nil
}

// What a kill left is looked at before anybody lives who could change it.
func TestStruckComesBeforeTheRestart(t *testing.T) {
	world := &killing{up: true}
	note := func(what string) { world.log = append(world.log, what) }
	e := explorer{env: world, Crash: Crash{
		Name: "charge", Request: func(int) harness.Request { return harness.Request{Kind: "charge"} },
		Struck: func(context.Context, harness.Env, int, Point) error { note("looked at"); return nil },
		Done:   func(context.Context, harness.Env, int) (bool, error) { note("done?"); return false, nil },
		After:  func(context.Context, harness.Env, int) error { note("over"); return nil },
	}}
	if err := e.try(t.Context(), &Point{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"charge", "rolled back", "looked at", "started", "done?", "charge-again", "over"}, world.log); diff != "" {
		t.Error(diff)
	}
}
