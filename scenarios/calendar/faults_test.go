package calendar

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// castOf is a record of the parts: the n-th one's member has the n-th
// appointment, at the n-th slot, in the state.
func castOf(t *testing.T, state string, parts ...string) harness.Record {
	t.Helper()
	c := foreignChoices{castChoices: castChoices{Resources: []resource{{ID: 1, Calendar: "cal-1"}}}, Orphans: []string{"event-orphan"}}
	rec := recordOf(granting(1, 1))
	for i, name := range parts {
		c.Parts = append(c.Parts, part{Name: name})
		put(rec, i+1, i+1, state)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	rec.Plan = harness.Plan{Choices: text}
	return rec
}

// withCalls stores the provider's calls, numbered.
func withCalls(t *testing.T, rec harness.Record, calls ...provider.Call) harness.Record {
	t.Helper()
	for i := range calls {
		calls[i].N, calls[i].Calendar = i+1, "cal-1"
	}
	return withLedger(t, rec, provider.Ledger{Calls: calls, Calendars: []provider.Calendar{{Calendar: "cal-1", Refreshes: 2}}})
}

func decidedOn(call, outcome, id, source string) provider.Call {
	return provider.Call{Call: call, Outcome: outcome, EventID: id, Source: source, Start: slot(1).start(dawn), End: slot(1).end(dawn)}
}

func TestEnds(t *testing.T) {
	judge := ends("as it should", map[string]string{"a": "CREATED", "b": "CREATED overlap/look/kept"}).Judge
	kept := func(resolution string) harness.Record {
		rec := castOf(t, "CREATED", "a", "b")
		putRow(rec, "conflicts", conflictRow(2, "other-1", "overlap", resolution))
		return withCalls(t, rec)
	}
	expectVerdict(t, judge(kept("kept")), harness.Pass, "1 x a, 1 x b")
	either := ends("as it should", map[string]string{"a": "REJECTED" + orElse + "CREATED"}).Judge
	expectVerdict(t, either(kept("")), harness.Pass, "1 x a")
	expectVerdict(t, judge(kept("")), harness.Failed, `ended as "CREATED overlap/look/open", want "CREATED overlap/look/kept"`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "a", "b"))), harness.Failed, `(b) ended as "CREATED"`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "REJECTED", "a"))), harness.Failed, `(a) ended as "REJECTED"`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "a"))), harness.Unknown, "0 of 0 appointments play b")
	expectVerdict(t, judge(harness.Record{}), harness.Unknown, "could not be read")
}

func TestSaw(t *testing.T) {
	judge := saw("once", map[string][]string{"a": {"create created"}, "b": {""}}).Judge
	one, again := decidedOn(provider.Create, "created", "event-1", provider.Ours), decidedOn(provider.Create, "exists", "event-1", provider.Ours)
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "a", "b"), one, again)), harness.Pass, "2 judged")
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "a"), one, one)), harness.Failed, `told "create created, create created"`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "a"))), harness.Failed, `told ""`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "REJECTED", "a", "b"), one, decidedOn(provider.Create, "busy", "event-2", provider.Ours))), harness.Failed, `"create busy"`)
	expectVerdict(t, judge(withCalls(t, castOf(t, "CREATED", "c"))), harness.Unknown, "nothing to judge")
}

func TestNeverMadeAgain(t *testing.T) {
	create, remove := decidedOn(provider.Create, "created", "event-1", provider.Ours), decidedOn(provider.Delete, "deleted", "event-1", provider.Ours)
	refusedOne := decidedOn(provider.Create, "spent", "event-1", provider.Ours)
	for _, tc := range []struct {
		state  string
		calls  []provider.Call
		status harness.Status
		text   string
	}{
		{"CANCELLED", []provider.Call{create, remove, refusedOne}, harness.Pass, "1 judged"},
		{"CANCELLED", nil, harness.Pass, "1 judged"}, // never told
		{"CANCELLED", []provider.Call{create, remove, create}, harness.Failed, "its id was spent"},
		{"CANCELLED", []provider.Call{create}, harness.Failed, "its event was created last"},
		{"CREATED", []provider.Call{create}, harness.Pass, "1 judged"},
	} {
		expectVerdict(t, neverMadeAgain().Judge(withCalls(t, castOf(t, tc.state, "a"), tc.calls...)), tc.status, tc.text)
	}
	expectVerdict(t, spentInTheEnd().Judge(withCalls(t, castOf(t, "CANCELLED", "a"), create, remove)), harness.Pass, "1 judged")
	expectVerdict(t, spentInTheEnd().Judge(withCalls(t, castOf(t, "CANCELLED", "a"), create)), harness.Failed, "was never deleted")
}

func TestRefreshedOnce(t *testing.T) {
	expire, revoke := decidedOn(provider.Expire, "ended", "", ""), decidedOn(provider.Revoke, "ended", "", "")
	expectVerdict(t, refreshedOnce().Judge(withCalls(t, castOf(t, "CREATED", "a"), expire)), harness.Pass, "1 judged") // the first one, and one more
	expectVerdict(t, refreshedOnce().Judge(withCalls(t, castOf(t, "CREATED", "a"), expire, expire)), harness.Failed, "2 refreshes and 0 refused, of 2 tokens that ended")
	expectVerdict(t, refreshedOnce().Judge(withCalls(t, castOf(t, "CREATED", "a"), expire, revoke)), harness.Failed, "and 1 that were revoked")
	expectVerdict(t, refreshedOnce().Judge(withCalls(t, castOf(t, "CREATED", "a"))), harness.Unknown, "nothing to judge")
}

func TestResourcesTold(t *testing.T) {
	judge := resourcesTold("so", map[string]string{"look": "PAUSED, 3 unresolved, 1 pending"}).Judge
	say := func(creation string) harness.Operation {
		op := replied(readResource(1, "staff-1", 1), 200, fmt.Sprintf(`{"resource_id":1,"state":"ACTIVE","creation":%q,"unresolved":3,"pending":1}`, creation))
		op.Kind = "look"
		return op
	}
	expectVerdict(t, judge(recordOf(say("PAUSED"))), harness.Pass, "1 answers")
	expectVerdict(t, judge(recordOf(say("PAUSED"), say("RUNNING"))), harness.Failed, "got RUNNING, 3 unresolved")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "0 of 1 times")
}

// Both are about the calls of a time between two operations.
func TestNothingMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		check         harness.Check
		begins, until string
		call          harness.UpstreamCall
		fits          harness.UpstreamCall // a call that may be made in that time
	}{
		{
			nothingWhilePaused(), kindLookPaused, kindKeep,
			harness.UpstreamCall{Method: "POST", Path: "/events", Request: `{"calendar":"cal-1"}`},
			harness.UpstreamCall{Method: "GET", Path: "/events", Query: "calendar=cal-1"},
		},
		{
			quietIsKept(), kindQuietFrom, kindQuietTo,
			harness.UpstreamCall{Method: "GET", Path: "/events", Query: "calendar=cal-1"},
			harness.UpstreamCall{Method: "GET", Path: "/events", Query: "calendar=cal-2"},
		},
	} {
		judge := func(at int, calls ...harness.UpstreamCall) harness.Verdict {
			rec := castOf(t, "CREATED", "a")
			for i, kind := range []string{tc.begins, tc.until} {
				op := from(replied(readResource(1, "staff-1", 1), 200, "{}"), 100+100*i, 110+100*i)
				op.Kind = kind
				rec.History.Operations = append(rec.History.Operations, op)
			}
			for i := range calls {
				calls[i].Received = msec(at)
			}
			rec.Upstream = calls
			return tc.check.Judge(rec)
		}
		expectVerdict(t, judge(150, tc.fits), harness.Pass, "")
		expectVerdict(t, judge(150, tc.fits, tc.call), harness.Failed, "")
		expectVerdict(t, judge(105, tc.call), harness.Pass, "")
		expectVerdict(t, judge(205, tc.call), harness.Pass, "")
		expectVerdict(t, tc.check.Judge(castOf(t, "CREATED", "a")), harness.Unknown, "there was no")
	}
}

func TestOthersGoOn(t *testing.T) {
	judge := func(calls ...harness.UpstreamCall) harness.Verdict {
		c := castChoices{Resources: []resource{{ID: 1, Calendar: "cal-1"}, {ID: 2, Calendar: "cal-2"}}}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		rec := recordOf(from(granting(1, 1), 120, 130))
		rec.History.Operations[0].Kind = kindElsewhere
		for i, kind := range []string{kindLookPaused, kindKeep} {
			op := from(replied(readResource(1, "staff-1", 1), 200, "{}"), 100+100*i, 110+100*i)
			op.Kind = kind
			rec.History.Operations = append(rec.History.Operations, op)
		}
		rec.Plan, rec.Upstream = harness.Plan{Choices: text}, calls
		return othersGoOn().Judge(rec)
	}
	create := harness.UpstreamCall{Method: "POST", Path: "/events", Status: 201, Request: `{"calendar":"cal-2","event_id":"event-1"}`, Received: msec(150)}
	late := create
	late.Received = msec(250)
	expectVerdict(t, judge(create), harness.Pass, ": 1")
	expectVerdict(t, judge(late), harness.Failed, "0 of 1 are")
	expectVerdict(t, judge(), harness.Failed, "0 of 1 are")
	expectVerdict(t, othersGoOn().Judge(recordOf()), harness.Unknown, "")
}

func TestForeignStays(t *testing.T) {
	appear, gone := decidedOn(provider.Appear, "appeared", "other-1", provider.TheOther), decidedOn(provider.Appear, "removed", "other-1", provider.TheOther)
	judge := func(stand []provider.Event, calls ...provider.Call) harness.Verdict {
		return foreignStays().Judge(withLedger(t, castOf(t, "CREATED", "a"), provider.Ledger{Calls: calls, Events: stand}))
	}
	there, elsewhere := []provider.Event{stands("other-1", 1, provider.TheOther)}, []provider.Event{stands("other-1", 2, provider.TheOther)}
	expectVerdict(t, judge(there, appear), harness.Pass, "1 judged")
	expectVerdict(t, judge(nil, appear, gone), harness.Pass, "1 judged")
	expectVerdict(t, judge(nil, appear), harness.Failed, "stands: false")
	expectVerdict(t, judge(elsewhere, appear), harness.Failed, "stands: true")
	expectVerdict(t, judge(there, appear, decidedOn(provider.Delete, "not_yours", "other-1", provider.TheOther)), harness.Failed, "which is somebody else's")
	expectVerdict(t, judge(nil), harness.Unknown, "nothing to judge")
}

func TestOrphansGo(t *testing.T) {
	orphan := decidedOn(provider.Orphan, "appeared", "event-orphan", provider.Ours)
	asked := harness.UpstreamCall{Method: "DELETE", Path: "/events/event-orphan"}
	judge := func(stand []provider.Event, calls []provider.Call, wire ...harness.UpstreamCall) harness.Verdict {
		rec := withLedger(t, castOf(t, "CREATED", "a"), provider.Ledger{Calls: calls, Events: stand})
		rec.Upstream = wire
		return orphansGo().Judge(rec)
	}
	expectVerdict(t, judge(nil, []provider.Call{orphan}, asked), harness.Pass, ": 1")
	expectVerdict(t, judge([]provider.Event{stands("event-orphan", 1, provider.Ours)}, []provider.Call{orphan}), harness.Failed, "stands: true")
	expectVerdict(t, judge(nil, []provider.Call{orphan}), harness.Failed, "deleted: false")
	expectVerdict(t, judge(nil, nil, asked), harness.Unknown, "0 of 1 appeared")
}

func TestParkedIsTold(t *testing.T) {
	say := func(sync string) harness.Operation {
		op := replied(read(1, "staff-1", uid(1)), 200, fmt.Sprintf(`{"appointment_id":%q,"sync":%q}`, uid(1), sync))
		op.Kind = kindReadParked
		return op
	}
	expectVerdict(t, parkedIsTold().Judge(recordOf(say("PARKED"))), harness.Pass, "1 answers")
	expectVerdict(t, parkedIsTold().Judge(recordOf(say("PENDING"))), harness.Failed, `sync is "PENDING"`)
	expectVerdict(t, parkedIsTold().Judge(recordOf()), harness.Unknown, "nobody asked")
}

// What the seed draws lies apart: nobody is in anybody's way but the one who is
// meant to be.
func TestCastsLieApart(t *testing.T) {
	for seed := range harness.Seed(50) {
		for _, s := range faults() {
			plan, err := s.MakePlan(seed, nil)
			if err != nil {
				t.Fatal(err)
			}
			var c castChoices
			if err := plan.Decode(&c); err != nil || len(c.Parts) == 0 {
				t.Fatalf("%s: %d parts, %v", s.Name, len(c.Parts), err)
			}
			for n, p := range c.Parts {
				if !p.Over.overlaps(p.Span) || p.To == p.Span || p.Span.From >= p.Span.To {
					t.Errorf("%s, seed %s: %+v", s.Name, seed, p)
				}
				if n > 0 && (c.Parts[n-1].Span.overlaps(p.Span) || c.Parts[n-1].Over.overlaps(p.Span) || c.Parts[n-1].To.overlaps(p.Span)) {
					t.Errorf("%s, seed %s: %+v and %+v", s.Name, seed, c.Parts[n-1], p)
				}
			}
		}
	}
}
