package telescope

import (
	"testing"

	"github.com/overbook/overbook/harness"
)

func TestStoredForADay(t *testing.T) {
	rec := emptyRecord()
	rec.History.Operations = []harness.Operation{bookedOp("op-1", kindBook, "member-1", 7, "b-1")}
	wantStatus(t, storedForADay(), rec, harness.Unknown, "nobody asked")
	rec.History.Operations = append(rec.History.Operations, bookedOp("op-2", kindLate, "member-1", 7, "b-1"))
	wantStatus(t, storedForADay(), rec, harness.Pass, "1")
	rec.History.Operations[1].Output += " "
	wantStatus(t, storedForADay(), rec, harness.Failed, "op-2")
}

func TestLookedUpForAWeek(t *testing.T) {
	rec := emptyRecord()
	found := bookedOp("op-2", kindLookupLate, "member-1", 7, "b-1")
	body := found.Output
	found.Method, found.Status, found.Output = "GET", 200, `{"key":"book","type":"book","status":201,"body":`+body+`}`
	rec.History.Operations = []harness.Operation{bookedOp("op-1", kindBook, "member-1", 7, "b-1"), found}
	wantStatus(t, lookedUpForAWeek(), rec, harness.Pass, "1")
	rec.History.Operations[0] = bookedOp("op-1", kindBook, "member-1", 7, "b-2")
	wantStatus(t, lookedUpForAWeek(), rec, harness.Failed, "op-2")
}
