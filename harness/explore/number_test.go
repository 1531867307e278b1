package explore

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

// scripted is a world in which each request, and each preparation of one,
// leaves units on the wire; nothing else of it is used by numbering.
type scripted struct {
	harness.Env
	harness.PostgresWire
	now   time.Duration
	units []harness.Unit
}

func (s *scripted) Postgres() harness.PostgresWire { return s }
func (s *scripted) Units() []harness.Unit          { return s.units }

func (s *scripted) send(sql ...string) {
	for _, text := range sql {
		s.now += time.Millisecond
		u := unit(1, len(s.units)+1, "I", "I", true, text)
		u.Arrived = s.now
		s.units = append(s.units, u)
	}
}

// Do is a server that is quicker than the stamp of Sent.
func (s *scripted) Do(_ context.Context, r harness.Request) harness.Operation {
	s.now += time.Millisecond
	op := harness.Operation{Kind: r.Kind, Intended: s.now, Outcome: harness.OK, Status: 201}
	s.send("insert into keys")
	s.now += time.Millisecond
	op.Sent = s.now
	s.send("insert into audit")
	op.Answered = s.now
	s.send("select poll()")
	return op
}

// TestNothingOfTheRequestIsTakenForTheServersOwn: neither what preparing it
// executes, too, nor what a quick server executes before the request is stamped
// as sent.
func TestNothingOfTheRequestIsTakenForTheServersOwn(t *testing.T) {
	world := &scripted{}
	e := explorer{env: world, Crash: Crash{
		Name:    "booking",
		Prepare: func(context.Context, harness.Env, int) error { world.send("insert into audit"); return nil },
		Request: func(int) harness.Request { return harness.Request{Kind: "book"} },
		Done:    func(context.Context, harness.Env, int) (bool, error) { return true, nil },
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
		"before insert into keys", "after insert into keys", "after COMMIT of insert into keys",
		"before insert into audit", "after insert into audit", "after COMMIT of insert into audit",
		"before the first byte of the answer is read",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
