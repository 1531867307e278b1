package telescope

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/overbook/overbook/harness"
)

var (
	memberName = regexp.MustCompile(`member-[A-Za-z0-9_-]+`)
	uuid       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// nothingRevealed is T-I7: no answer to a member, or to nobody in particular,
// holds another member's name or booking. What the request itself said may be
// said back.
func nothingRevealed() harness.Check {
	const doc = "no answer tells a client another member's name or booking"
	return funcCheck("T-I7", doc, "privacy.go", false, func(rec harness.Record) harness.Verdict {
		owners := ownersOf(rec)
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if strings.HasPrefix(op.Caller, "staff-") || op.Output == "" {
				continue // staff may see who has a slot
			}
			judged++
			said := op.Path + " " + string(op.Input) + " " + op.Key
			for _, name := range memberName.FindAllString(op.Output, -1) {
				if name != op.Caller && !strings.Contains(said, name) {
					wrong = append(wrong, about(op, "names "+name))
				}
			}
			for _, id := range uuid.FindAllString(op.Output, -1) {
				if owner := owners[id]; owner != "" && owner != op.Caller && !strings.Contains(said, id) {
					wrong = append(wrong, about(op, "names a booking of "+owner))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d did", doc, len(wrong))
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no member was answered")
		}
		return harness.Passed("%s: %d answers, %d bookings", doc, judged, len(owners))
	})
}

// ownersOf gives the member of each booking that the history or an answer to
// its member names.
func ownersOf(rec harness.Record) map[string]string {
	owners := map[string]string{}
	for _, op := range rec.History.Operations {
		if b, err := bookingOf(op); err == nil && b.BookingID != "" {
			owners[b.BookingID] = b.Member
		}
	}
	history, _ := rec.Find("table:audit_history")
	for _, r := range history.Rows {
		if id := fmt.Sprint(r["booking_id"]); r["booking_id"] != nil {
			owners[id] = text(r, "member")
		}
	}
	return owners
}
