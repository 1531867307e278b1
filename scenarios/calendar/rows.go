package calendar

import (
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// text is a text column, "" when it is null.
func text(r harness.Row, column string) string {
	s, _ := r[column].(string)
	return s
}

// whole is a whole number, 0 when it is null.
func whole(r harness.Row, column string) int64 {
	n, _ := r[column].(float64)
	return int64(n)
}

// Appointments are active in these states.
var active = map[string]bool{"BOOKED": true, "CREATED": true}

// instant reads a time as Postgres prints it in a row.
func instant(s string) (time.Time, bool) {
	s = strings.Replace(s, " ", "T", 1)
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z07", "2006-01-02T15:04:05.999999999Z0700"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// during reads a half-open range of times: ["2026-03-29 08:00:00+00","2026-03-29 09:00:00+00").
func during(r harness.Row, column string) (i interval, ok bool) { //nolint:unparam // looks and external events have such columns, too
	body, ok := strings.CutPrefix(text(r, column), "[")
	if !ok {
		return i, false
	}
	if body, ok = strings.CutSuffix(body, ")"); !ok {
		return i, false
	}
	from, to, ok := strings.Cut(body, ",")
	if !ok {
		return i, false
	}
	var okFrom, okTo bool
	i.Start, okFrom = instant(strings.Trim(from, `"`))
	i.End, okTo = instant(strings.Trim(to, `"`))
	return i, okFrom && okTo
}

// books are both sides: our rows, and the provider's ledger.
type books struct {
	provider     provider.Ledger
	resources    map[int64]harness.Row
	calendars    map[string]harness.Row   // resources, by their calendar
	accounts     map[int64]harness.Row    // by resource
	appointments map[string]harness.Row   // by id
	byEvent      map[string]harness.Row   // appointments, by event id
	conflicts    map[string][]harness.Row // by appointment
	pending      map[string]int           // events that are not done, by appointment
	syncs        map[string]harness.Row   // by appointment
	audit        []harness.Row
	now          time.Time // to the servers, at the end of the drive; zero when it is not known
}

// booksOf reads both sides from a record; what could not be read is said.
func booksOf(rec harness.Record) (b books, missing string) {
	names := []string{"resources", "accounts", "appointments", "conflicts", "outbox", "syncs", "appointment_audit"}
	all := map[string][]harness.Row{}
	for _, n := range names {
		found, ok := rec.Find("table:" + n)
		if !ok {
			return b, "table:" + n + " could not be read"
		}
		all[n] = found.Rows
	}
	found, ok := rec.Find("ledger:" + provider.Name)
	if !ok {
		return b, "the provider's ledger could not be read"
	}
	var err error
	if b.provider, err = provider.LedgerOf(found.Rows); err != nil {
		return b, err.Error()
	}
	b.resources, b.calendars, b.accounts = map[int64]harness.Row{}, map[string]harness.Row{}, map[int64]harness.Row{}
	b.appointments, b.byEvent, b.conflicts = map[string]harness.Row{}, map[string]harness.Row{}, map[string][]harness.Row{}
	b.pending, b.syncs, b.audit = map[string]int{}, map[string]harness.Row{}, all["appointment_audit"]
	b.now = serverTimeOf(rec)
	for _, r := range all["resources"] {
		b.resources[whole(r, "resource_id")], b.calendars[text(r, "calendar")] = r, r
	}
	for _, r := range all["accounts"] {
		b.accounts[whole(r, "resource_id")] = r
	}
	for _, r := range all["appointments"] {
		b.appointments[text(r, "appointment_id")], b.byEvent[text(r, "event_id")] = r, r
	}
	for _, r := range all["conflicts"] {
		b.conflicts[text(r, "appointment_id")] = append(b.conflicts[text(r, "appointment_id")], r)
	}
	for _, r := range all["outbox"] {
		if r["done_at"] == nil {
			b.pending[text(r, "appointment_id")]++
		}
	}
	for _, r := range all["syncs"] {
		b.syncs[text(r, "appointment_id")] = r
	}
	return b, ""
}

// calendarOf is the calendar in which an appointment's event stands.
func (b books) calendarOf(appointment harness.Row) string {
	return text(b.resources[whole(appointment, "resource_id")], "calendar")
}

// opOf is the operation that booked an appointment, as evidence.
func opOf(appointment harness.Row) []string {
	if op := text(appointment, "overbook_op"); op != "" {
		return []string{op}
	}
	return nil
}
