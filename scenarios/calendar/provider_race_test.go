package calendar

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// eachContract runs the test for each contract and policy.
func eachContract(t *testing.T, test func(t *testing.T, contract, policy string)) {
	t.Helper()
	for _, contract := range []string{contractAtomic, contractCheck} {
		for _, policy := range []string{policyReject, policyKeep} {
			t.Run(contract+" "+policy, func(t *testing.T) { test(t, contract, policy) })
		}
	}
}

// Each interleaving is in exactly one row of the table, and each row is of
// interleavings that there are, at each of its places.
func TestRaceTableIsExact(t *testing.T) {
	met := map[string]bool{}
	eachContract(t, func(t *testing.T, contract, policy string) {
		all := interleavings(contract, policy)
		for _, il := range all {
			if rows := raceRowsOf(contract, policy, il); len(rows) != 1 {
				t.Errorf("%s: %d rows", il, len(rows))
			}
			for i, r := range raceTable {
				if r.has(contract, policy, il) {
					met[fmt.Sprint(i, il.External, il.Cancel)] = true
				}
			}
			if n := len(slices.DeleteFunc(slices.Clone(all), func(o interleaving) bool { return o != il })); n != 1 {
				t.Errorf("%s is there %d times", il, n)
			}
		}
	})
	for i, r := range raceTable {
		if r.end.Class == raceSilence || (r.end.Class == raceResidual) != (r.end.Found != "") || (r.end.Found == "") != (r.end.Resolved == "") {
			t.Errorf("row %d: %s", i, r.line())
		}
		for _, external := range r.external {
			for _, cancel := range r.cancel {
				if !met[fmt.Sprint(i, external, cancel)] {
					t.Errorf("row %d (%s): there is no interleaving with the event %s and the cancellation %s", i, r.line(), external, cancel)
				}
			}
		}
	}
}

// docs/provider-race.md is the table, in words. When this fails with good
// reason, the lines to put there are in its output.
func TestProviderRacePageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/provider-race.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, r := range raceTable {
		if !strings.Contains(page, r.line()+"\n") {
			t.Errorf("docs/provider-race.md lacks the line\n%s", r.line())
		}
	}
	if n := strings.Count(page, "\n| either |") + strings.Count(page, "\n| `"+contractAtomic+"` |") + strings.Count(page, "\n| `"+contractCheck+"` |"); n != len(raceTable) {
		t.Errorf("docs/provider-race.md has %d rows, the table %d", n, len(raceTable))
	}
	eachContract(t, func(t *testing.T, contract, policy string) {
		if line := fmt.Sprintf("| `%s` | %d |\n", raceName(contract, policy), len(interleavings(contract, policy))); !strings.Contains(page, line) {
			t.Errorf("docs/provider-race.md lacks the line\n%s", line)
		}
	})
}

// raceOf is a record of the n-th appointment alone, an external event over it.
func raceOf(t *testing.T, state string, il interleaving, l provider.Ledger) harness.Record {
	t.Helper()
	rec := recordOf(granting(1, 1), replied(cancel(1, "member-1", uid(1), "give-up"), 200, told(1, 1, "CANCELLED")))
	put(rec, 1, 1, state)
	w := raceWalk{raceRound: raceRound{Interleaving: il}, n: 1, appointment: appointmentAnswer{ID: uid(1), EventID: "event-1"}, reached: true}
	if il.Cancel != raceNever {
		w.cancelled = rec.History.Operations[1]
	}
	w.env = noteTaker{rec: &rec}
	w.note()
	return withLedger(t, rec, l)
}

type noteTaker struct {
	harness.Env
	rec *harness.Record
}

func (n noteTaker) Record(e harness.Event) {
	n.rec.History.Events = append(n.rec.History.Events, e)
}

func endOf(t *testing.T, rec harness.Record) string {
	t.Helper()
	list, missing := racesOf(rec)
	if missing != "" || len(list) != 1 {
		t.Fatalf("%d races, missing %q", len(list), missing)
	}
	return list[0].end.String()
}

func TestEndsOfRaces(t *testing.T) {
	ours, theirs := stands("event-1", 1, provider.Ours), stands("theirs-1", 1, provider.TheOther)
	refused := made(1, 1, 0, "theirs-1")
	refused.Outcome = "busy"
	over := interleaving{External: raceCreate, Cancel: raceNever}
	both := []provider.Event{ours, theirs}
	for want, rec := range map[string]harness.Record{
		"silence, appointment CREATED":                                         raceOf(t, "CREATED", over, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: both}),
		"excluded by us, appointment REJECTED, no event of ours made":          raceOf(t, "REJECTED", over, provider.Ledger{Events: both[1:]}),
		"excluded by the provider, appointment REJECTED, no event of o":        raceOf(t, "REJECTED", over, provider.Ledger{Calls: []provider.Call{refused}, Events: both[1:]}),
		"no overlap, appointment CREATED":                                      raceOf(t, "CREATED", interleaving{raceNever, raceNever, false}, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: both[:1]}),
		"no overlap, appointment CANCELLED, the cancellation was told 200":     raceOf(t, "CANCELLED", interleaving{raceLook, raceCheck, false}, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: both[1:]}),
		"silence, and the provider's event: true, appointment CANCELLED, the ": raceOf(t, "CANCELLED", interleaving{raceLook, raceCheck, false}, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: both}),
	} {
		if got := endOf(t, rec); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for resolution, want := range map[string]string{
		"": "resolved by nobody yet, appointment CREATED", "kept": "resolved by " + raceByStaff + ", appointment " + asDecided, "rejected": "resolved by " + raceByPolicy, "cancelled": "resolved by cancelled", // and yet it is created
	} {
		rec := raceOf(t, "CREATED", over, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: both})
		putRow(rec, "conflicts", conflictRow(1, "theirs-1", "overlap", resolution))
		if got := endOf(t, rec); !strings.HasPrefix(got, "residual, found by look, "+want) {
			t.Errorf("%q is %q, want %q", resolution, got, want)
		}
		putRow(rec, "conflicts", conflictRow(1, "theirs-2", "overlap", resolution))
		if got := endOf(t, rec); !strings.HasPrefix(got, "2 conflicts") {
			t.Errorf("two conflicts: %q", got)
		}
	}
}

func TestRacedAsPromised(t *testing.T) {
	judge, silent := racedAsPromised(contractCheck, policyReject).Judge, nothingSilent().Judge
	ours, theirs := stands("event-1", 1, provider.Ours), stands("theirs-1", 1, provider.TheOther)
	over := interleaving{External: raceCreate, Cancel: raceNever}
	ledger := provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: []provider.Event{ours, theirs}}

	silence := raceOf(t, "CREATED", over, ledger)
	expectVerdict(t, judge(silence), harness.Failed, "the table says: residual, found by look")
	expectVerdict(t, silent(silence), harness.Failed, "1 of 1 do")

	good := raceOf(t, "REJECTED", over, provider.Ledger{Calls: ledger.Calls, Events: ledger.Events[1:]})
	putRow(good, "conflicts", conflictRow(1, "theirs-1", "overlap", "rejected"))
	expectVerdict(t, judge(good), harness.Unknown, "1 of 60 interleavings were made")
	expectVerdict(t, silent(good), harness.Pass, "1 x residual")
	expectVerdict(t, racedAsPromised(contractAtomic, policyReject).Judge(good), harness.Failed, "excluded by the provider")

	expectVerdict(t, judge(recordOf()), harness.Unknown, "0 of 60")
	expectVerdict(t, silent(recordOf()), harness.Unknown, "no interleaving")
	delete(good.Rows, "table:conflicts")
	expectVerdict(t, judge(good), harness.Unknown, "could not be read")
}
