package telescope

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness"
)

// flaggedSlots are one slot that is raced for and the four that are not.
var flaggedSlots = []slot{{ID: 1, Month: 2}, {ID: 2, Month: 2}, {ID: 3, Month: 2}, {ID: 4, Month: 2}, {ID: 5, Month: 2}}

func decided(slotID, by int, decision string) harness.Operation {
	r := resolveFlag(staffProcess+by, staff(by), uid(slotID), decision, decision)
	return replied(r, 200, fmt.Sprintf(`{"booking_id":%q,"slot_id":%d,"decision":%q}`, uid(slotID), slotID, decision))
}

func tooLate(slotID, by int, decision string) harness.Operation {
	return denied(resolveFlag(staffProcess+by, staff(by), uid(slotID), decision, decision), 409, "not-flagged")
}

// entry is one line of a list of flagged reservations.
func entry(slotID, minute int, state string) string {
	return fmt.Sprintf(`{"booking_id":%q,"slot_id":%d,"member":%q,"starts_at":"2031-03-05T10:00:00Z","flagged_at":"2031-01-01T00:%02d:00.5Z","flag_state":%q}`,
		uid(slotID), slotID, member(slotID), minute, state)
}

func flaggedList(kind string, entries ...string) harness.Operation {
	return replied(listFlagged(kind, staff(0), staffProcess), 200, `{"flagged":[`+strings.Join(entries, ",")+`]}`)
}

// Where what may differ stands in [resolutionOps].
const (
	atFirst = iota // the two who decide about slot 1
	atSecond
	atKept // the decision about slot 2
	atListClosed
	atListDecided
	atListReopened
)

// resolutionOps are those of a good run: slot 1 is raced for and released,
// slots 2 and 3 are kept, slot 2 is reopened.
func resolutionOps() []harness.Operation {
	ops := []harness.Operation{
		decided(1, 1, decideRelease), tooLate(1, 2, decideKeep), decided(2, 3, decideKeep),
		flaggedList(listedClosed, entry(3, 1, "open"), entry(1, 2, "open"), entry(2, 2, "open")),
		flaggedList(listedDecided, entry(3, 1, "kept"), entry(2, 2, "kept")), flaggedList(listedReopened, entry(3, 1, "kept")),
		decided(3, 4, decideKeep), replied(reopenSlot(staffProcess, staff(0), 2, "reopen"), 200, `{"slot_id":2,"state":"open"}`),
	}
	for id := range 3 {
		b := replied(as(kindHold, book(id+1, member(id+1), int64(id+1), "hold")), 201, fmt.Sprintf(
			`{"booking_id":%q,"slot_id":%d,"member":%q,"starts_at":"2031-03-05T10:00:00Z","state":"active"}`, uid(id+1), id+1, member(id+1)))
		ops = append(ops, b)
	}
	return ops
}

// withOps changes some of the operations.
func withOps(changes map[int]harness.Operation) []harness.Operation {
	ops := resolutionOps()
	for i, op := range changes {
		ops[i] = op
	}
	return ops
}

// resolutionRows are the rows of a slot after a decision of that member of the staff.
func resolutionRows(rec harness.Record, id int64, state, event string, by int, flag any, more ...string) {
	n := int(id)
	if event == "CANCELLED" {
		n = 0
	}
	lying(rec, id, state, n, member(int(id)), flag)
	for i, e := range append([]string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", event}, more...) {
		putRow(rec, "audit_history", harness.Row{"slot_id": float64(id), "seq": float64(i + 1), "event": e, "actor": staff(by)})
	}
}

func TestResolvedOnce(t *testing.T) {
	type changes = map[int]harness.Operation
	type rows struct {
		event string // of slot 1
		by    int
		flag2 any // of slot 2
		more2 []string
	}
	whole := rows{event: "CANCELLED", by: 1, more2: []string{"REOPENED"}}
	never := replied(resolveFlag(staffProcess, staff(2), uid(1), decideKeep, "k"), 0, "")
	misnamed := decided(1, 1, decideRelease)
	misnamed.Output = strings.ReplaceAll(misnamed.Output, decideRelease, decideKeep)
	for name, tc := range map[string]struct {
		ops  changes
		rows rows
		want harness.Status
		word string
	}{
		"good":                     {nil, whole, harness.Pass, "1 released, 2 kept"},
		"kept":                     {changes{atFirst: tooLate(1, 1, decideRelease), atSecond: decided(1, 2, decideKeep)}, rows{"KEPT", 2, nil, []string{"REOPENED"}}, harness.Pass, "0 released, 3 kept"},
		"both won":                 {changes{atSecond: decided(1, 2, decideKeep)}, whole, harness.Failed, "1 of 3 slots"},
		"nobody won":               {changes{atFirst: tooLate(1, 1, decideRelease)}, whole, harness.Failed, "1 of 3 slots"},
		"refused otherwise":        {changes{atSecond: denied(resolveFlag(1, staff(2), uid(1), decideKeep, "k"), 503, "busy")}, whole, harness.Failed, "1 of 3 slots"},
		"the loser's rows":         {nil, rows{"KEPT", 1, nil, []string{"REOPENED"}}, harness.Failed, "1 of 3 slots"},
		"the loser's name":         {nil, rows{"CANCELLED", 2, nil, []string{"REOPENED"}}, harness.Failed, "1 of 3 slots"},
		"another decision told":    {changes{atFirst: misnamed}, whole, harness.Failed, "1 of 3 slots"},
		"reopened, and still kept": {nil, rows{"CANCELLED", 1, "kept", []string{"REOPENED"}}, harness.Failed, "1 of 3 slots"},
		"kept and released":        {nil, rows{"CANCELLED", 1, nil, []string{"CANCELLED", "REOPENED"}}, harness.Failed, "1 of 3 slots"},
		"the loser is unheard":     {changes{atSecond: never}, whole, harness.Unknown, "about 1 flags"},
		"nobody is heard":          {changes{atFirst: never, atSecond: never}, whole, harness.Unknown, "about 1 flags"},
		"only the loser is heard":  {changes{atFirst: never}, whole, harness.Unknown, "about 1 flags"},
		"the loser's rows, unheard": {
			changes{atSecond: never}, rows{"KEPT", 1, nil, []string{"REOPENED"}}, harness.Failed, "1 of 3 slots",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recordOf(flaggedSlots, withOps(tc.ops)...)
			var flag1 any
			if tc.rows.event == "KEPT" {
				flag1 = "kept"
			}
			resolutionRows(rec, 1, "closed", tc.rows.event, tc.rows.by, flag1)
			resolutionRows(rec, 2, "open", "KEPT", 3, tc.rows.flag2, tc.rows.more2...)
			resolutionRows(rec, 3, "closed", "KEPT", 4, "kept")
			expectVerdict(t, resolvedOnce().Judge(rec), tc.want, tc.word)
		})
	}
	expectVerdict(t, resolvedOnce().Judge(recordOf(flaggedSlots)), harness.Unknown, "about 3 flags")
	expectVerdict(t, resolvedOnce().Judge(without(recordOf(flaggedSlots, resolutionOps()...), "observing_slots")), harness.Unknown, "could not be read")
}

func TestListsAreTrue(t *testing.T) {
	type changes = map[int]harness.Operation
	for name, tc := range map[string]struct {
		ops  changes
		want harness.Status
		word string
	}{
		"good":                {nil, harness.Pass, "6 entries of 3 lists"},
		"one is missing":      {changes{atListClosed: flaggedList(listedClosed, entry(3, 1, "open"), entry(1, 2, "open"))}, harness.Failed, "1 of 3 lists"},
		"one too many":        {changes{atListDecided: flaggedList(listedDecided, entry(3, 1, "kept"), entry(1, 2, "open"), entry(2, 2, "kept"))}, harness.Failed, "1 of 3 lists"},
		"not by time":         {changes{atListClosed: flaggedList(listedClosed, entry(3, 9, "open"), entry(1, 2, "open"), entry(2, 2, "open"))}, harness.Failed, "not by time"},
		"kept, shown as open": {changes{atListDecided: flaggedList(listedDecided, entry(3, 1, "open"), entry(2, 2, "kept"))}, harness.Failed, "1 of 3 lists"},
		"reopened, and shown": {changes{atListReopened: flaggedList(listedReopened, entry(3, 1, "kept"), entry(2, 2, "kept"))}, harness.Failed, "1 of 3 lists"},
		"another's":           {changes{atListReopened: flaggedList(listedReopened, strings.Replace(entry(3, 1, "kept"), member(3), member(9), 1))}, harness.Failed, "1 of 3 lists"},
		"another start":       {changes{atListReopened: flaggedList(listedReopened, strings.Replace(entry(3, 1, "kept"), "T10:00", "T10:30", 1))}, harness.Failed, "1 of 3 lists"},
		"no time":             {changes{atListReopened: flaggedList(listedReopened, strings.Replace(entry(3, 1, "kept"), "flagged_at", "at", 1))}, harness.Failed, "without its time"},
		"twice":               {changes{atListReopened: flaggedList(listedReopened, entry(3, 1, "kept"), entry(3, 1, "kept"))}, harness.Failed, "1 of 3 lists"},
		"no list":             {changes{atListClosed: replied(listFlagged(listedClosed, staff(0), 1), 200, "<html>")}, harness.Failed, "no list"},
		"not answered":        {changes{atListClosed: replied(listFlagged(listedClosed, staff(0), 1), 0, "")}, harness.Unknown, "2 of 3 lists"},
		"nobody decided":      {changes{atKept: replied(resolveFlag(1, staff(3), uid(2), decideKeep, "k"), 0, "")}, harness.Unknown, "slot 2"},
	} {
		t.Run(name, func(t *testing.T) {
			expectVerdict(t, listsAreTrue().Judge(recordOf(flaggedSlots, withOps(tc.ops)...)), tc.want, tc.word)
		})
	}
	expectVerdict(t, listsAreTrue().Judge(recordOf(flaggedSlots)), harness.Unknown, "slot 1")
}

// The answers that the scenarios want are those of as many requests as they send.
func TestFlaggedAnswersAreOfEveryMember(t *testing.T) {
	judge := words("answers", "doc", byBurstAndCaller, fixed(flaggedAnswers(2))).Judge
	var good []harness.Operation
	for i := range 2 {
		for k := range flaggedTries {
			full := denied(book(k, member(i), int64(10*i+k+1), keyOf("a", k)), 409, "quota-exceeded")
			full.Burst = whileFlagged
			then := full
			if k == 0 {
				then = granted(book(k, member(i), int64(10*i+1), "b"), i+1)
			}
			then.Burst = afterReleased
			good = append(good, full, then)
		}
	}
	expectVerdict(t, judge(recordOf(oneSlot, good...)), harness.Pass, "in 4 groups")
	early := slices.Clone(good)
	early[0] = granted(book(0, member(0), 1, "a"), 7)
	early[0].Burst = whileFlagged
	expectVerdict(t, judge(recordOf(oneSlot, early...)), harness.Failed, "flagged member-1: got 1 x 201")
	never := slices.Clone(good) // the released one still counts
	never[1] = denied(book(0, member(0), 1, "b"), 409, "quota-exceeded")
	never[1].Burst = afterReleased
	expectVerdict(t, judge(recordOf(oneSlot, never...)), harness.Failed, "released member-1: got 2 x 409 quota-exceeded")
	expectVerdict(t, judge(recordOf(oneSlot, good[1:]...)), harness.Unknown, "flagged member-1")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "no group of operations")
}

func TestImportsTell(t *testing.T) {
	judge := importsTell().Judge
	s := slot{ID: 1000, Month: 2}
	behind := companions(s)
	sent := func(kind, body string) harness.Operation {
		return replied(as(kind, importOf(staffProcess, staff(0), append([]slot{s}, behind...), time.Unix(1_800_000_000, 0), "closed", "k")), 200, body)
	}
	holds := []harness.Operation{
		granted(as(kindHold, book(0, member(0), s.ID, "a")), 1), granted(as(kindHold, book(0, member(0), behind[0].ID, "b")), 2),
		sent(kindHold, `{"created":3}`), sent("create", `{"created":3}`),
	}
	tell := func(closed, unchanged int, flagged ...int) harness.Operation {
		var ids []string
		for _, n := range flagged {
			ids = append(ids, `"`+uid(n)+`"`)
		}
		return sent(kindAgain, fmt.Sprintf(`{"created":0,"closed":%d,"reopened":0,"unchanged":%d,"flagged":[%s]}`, closed, unchanged, strings.Join(ids, ",")))
	}
	expectVerdict(t, judge(recordOf(oneSlot, append(holds, tell(3, 0, 1, 2), tell(3, 0, 1, 2))...)), harness.Pass, "2 answers")
	for _, bad := range []harness.Operation{
		tell(0, 3), tell(2, 1, 1, 2), tell(3, 0, 1), tell(3, 0, 2, 1), tell(3, 0, 1, 2, 3), tell(3, 1, 1, 2), sent(kindImport, "<html>"),
	} {
		expectVerdict(t, judge(recordOf(oneSlot, append(holds, tell(3, 0, 1, 2), bad)...)), harness.Failed, "1 of 2 are not")
	}
	expectVerdict(t, judge(recordOf(oneSlot, holds...)), harness.Unknown, "no import was answered")
}

func TestCompanionsAreNobodyElses(t *testing.T) {
	ids := map[int64]bool{}
	for i := range pointSlots {
		s := slot{ID: int64(9000 + i), Month: 2, HalfHours: i}
		for _, c := range append(companions(s), s) {
			if ids[c.ID] {
				t.Fatalf("slot %d is there twice", c.ID)
			}
			ids[c.ID] = true
		}
	}
}

func TestStaffCrashPointsAreWhole(t *testing.T) {
	for _, s := range staffCrashPoints() {
		if !s.HasTag("fault") || !faultName.MatchString(s.Name) || !s.Topology(s.Defaults()).PostgresWire {
			t.Errorf("%s is not whole", s.Name)
		}
	}
}

// What is stored of staff's requests is looked at by queries, so they are
// tried on rows: nothing, all of it, and what a torn transaction would leave.
func TestStaffTracesOnRows(t *testing.T) {
	conn := openRows(t)
	flagged := func(r *rowsSQL, id int, state, flag string) {
		r.slot(id, state, 4, id%40)
		r.event(id, 1, "CREATED", 0, "", "staff-1")
		r.book(id, 2, id, "member-1", fmt.Sprint("book-", id))
		if flag != "gone" {
			r.active(id, id, "member-1", flag)
		}
	}
	closure := func(r *rowsSQL, id int) {
		r.event(id, 3, "CLOSED", 0, "", "staff-1")
		r.event(id, 4, "FLAGGED", id, "member-1", "staff-1")
	}
	// imported are the three slots of an import: the first closed of them
	// closed, of which those that are flagged have their rows of it.
	imported := func(r *rowsSQL, closed, flags int, answered bool) {
		for i := range 3 {
			id, state, flag := 1+i*pointSlots, "open", ""
			if i < closed {
				state = "closed"
			}
			if i < flags {
				flag = "open"
			}
			if i < 2 {
				flagged(r, id, state, flag)
			} else {
				r.slot(id, state, 1, id%40)
			}
			if i < closed {
				r.event(id, 3, "CLOSED", 0, "", "staff-1")
			}
			if i < flags {
				r.event(id, 4, "FLAGGED", id, "member-1", "staff-1")
			}
		}
		if answered {
			r.add(`insert into booking_operations values ('staff-1', 'import', 'import-1', 'f', 200, 'application/json', '{}', null, null, 'op-1', '2031-01-01', '2031-01-01')`)
		}
	}
	for name, tc := range map[string]struct {
		of    tracing
		rows  func(*rowsSQL)
		state string
	}{
		"not released": {releaseTrace, func(r *rowsSQL) { flagged(r, 1, "closed", "open"); closure(r, 1) }, traceNothing},
		"released": {releaseTrace, func(r *rowsSQL) {
			flagged(r, 1, "closed", "gone")
			closure(r, 1)
			r.event(1, 5, "CANCELLED", 1, "member-1", "staff-1")
			r.result("staff-1", "resolve", "k", 200, 1, 1, "op-1", "{}")
		}, traceWhole},
		"gone without a word": {releaseTrace, func(r *rowsSQL) { flagged(r, 1, "closed", "gone"); closure(r, 1) }, traceTorn},
		"not reopened":        {reopeningTrace, func(r *rowsSQL) { flagged(r, 1, "closed", "open"); closure(r, 1) }, traceNothing},
		"reopened": {reopeningTrace, func(r *rowsSQL) {
			flagged(r, 1, "open", "")
			closure(r, 1)
			r.reopened(1, 5, "k")
		}, traceWhole},
		"reopened, still flagged": {reopeningTrace, func(r *rowsSQL) {
			flagged(r, 1, "open", "open")
			closure(r, 1)
			r.reopened(1, 5, "k")
		}, traceTorn},
		"not imported":        {importTrace, func(r *rowsSQL) { imported(r, 0, 0, false) }, traceNothing},
		"imported":            {importTrace, func(r *rowsSQL) { imported(r, 3, 2, true) }, traceWhole},
		"one of three closed": {importTrace, func(r *rowsSQL) { imported(r, 1, 1, true) }, traceTorn},
		"two of three closed": {importTrace, func(r *rowsSQL) { imported(r, 2, 2, true) }, traceTorn},
		"one of two flagged":  {importTrace, func(r *rowsSQL) { imported(r, 3, 1, true) }, traceTorn},
		"nothing is flagged":  {importTrace, func(r *rowsSQL) { imported(r, 3, 0, true) }, traceTorn},
		"no result":           {importTrace, func(r *rowsSQL) { imported(r, 3, 2, false) }, traceTorn},
		"a result alone":      {importTrace, func(r *rowsSQL) { imported(r, 0, 0, true) }, traceTorn},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), build(tc.rows)); err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Query(t.Context(), tc.of.sql, int64(1))
			if err != nil {
				t.Fatal(err)
			}
			found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
			if err != nil {
				t.Fatal(err)
			}
			got := trace{What: tc.of.what, Slot: 1, Parts: map[string]int{}}
			for part, v := range found {
				if n, err := strconv.Atoi(fmt.Sprint(v)); err == nil {
					got.Parts[part] = n
				}
			}
			if got.state() != tc.state {
				t.Errorf("%s: %s, want %s", got, got.state(), tc.state)
			}
		})
	}
}
