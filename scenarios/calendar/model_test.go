package calendar

import (
	"fmt"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

// history makes a record of the operations, in which appointments 1 to 9 are
// known to be of resource 1.
func history(ops ...harness.Operation) harness.Record {
	rec := recordOf(ops...)
	for n := 1; n < 10; n++ {
		put(rec, n, n, "BOOKED")
		rec.Rows["table:appointments"].Rows[n-1]["overbook_op"] = ""
	}
	return rec
}

func refusedBooking(n, slotted int) harness.Operation {
	return denied(book(n, fmt.Sprintf("member-%d", n), 1, utcAt(slotted), fmt.Sprint("key-", slotted)), 409, "overlap", `,"resource_id":1`)
}

func movedTo(n, slotted int) harness.Operation {
	return replied(moveTo(n, fmt.Sprintf("member-%d", n), uid(n), utcAt(slotted), fmt.Sprint("move-", slotted)), 200, told(n, slotted, "BOOKED"))
}

func left(n int) harness.Operation {
	return replied(cancel(n, fmt.Sprintf("member-%d", n), uid(n), "leave"), 200, fmt.Sprintf(`{"appointment_id":%q,"state":"CANCELLED"}`, uid(n)))
}

// swapped is a reschedule of the first two appointments to each other's slots.
func swapped(one, other int) harness.Operation {
	r := reschedule(1, "member-1", []move{{uid(1), utcAt(one)}, {uid(2), utcAt(other)}}, "swap")
	return replied(r, 200, `{"appointments":[`+told(1, one, "BOOKED")+`,`+told(2, other, "BOOKED")+`]}`)
}

func busyOf(slots ...int) harness.Operation {
	list := ""
	for i, n := range slots {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"start":%q,"end":%q}`, slot(n).start(dawn).Format("2006-01-02T15:04:05Z"), slot(n).end(dawn).Format("2006-01-02T15:04:05Z"))
	}
	return replied(availability(8, "member-8", 1, dawn, dawn.AddDate(0, 0, 1)), 200, `{"busy":[`+list+`],"as_of":null}`)
}

// TestModelOfSeries: a series is booked and moved whole.
func TestModelOfSeries(t *testing.T) {
	weekly := utcAt(1)
	weekly.Weekly = 2
	later := slot(1)
	later.From, later.To = later.From+7*24*60, later.To+7*24*60
	series := func(r harness.Request, status, slotted int) harness.Operation {
		second := slot(slotted)
		second.From, second.To = second.From+7*24*60, second.To+7*24*60
		return replied(r, status, fmt.Sprintf(`{"series_id":"s","appointments":[%s,{"appointment_id":%q,"resource_id":1,"start":%q,"end":%q}]}`,
			told(1, slotted, "BOOKED"), uid(2), second.start(dawn).Format(time.RFC3339), second.end(dawn).Format(time.RFC3339)))
	}
	booking := from(series(book(1, "member-1", 1, weekly, "weekly"), 201, 1), 1, 2)
	moving := from(series(moveSeries(1, "member-1", "s", utcAt(3), "move"), 200, 3), 3, 4)
	single := func(s span, sent int) harness.Operation {
		return from(denied(book(3, "member-3", 1, s.in("Etc/UTC", dawn), fmt.Sprint(sent)), 409, "overlap", ""), sent, sent+1)
	}
	judge := func(ops ...harness.Operation) harness.Verdict {
		rec := history(ops...)
		for n := range 2 {
			rec.Rows["table:appointments"].Rows[n]["series_id"] = "s"
			rec.Rows["table:appointments"].Rows[n]["series_no"] = float64(n)
		}
		return linearizable().Judge(rec)
	}
	expectVerdict(t, judge(booking, single(later, 3)), harness.Pass, "")
	expectVerdict(t, judge(booking, moving, single(later, 5)), harness.Failed, "")
	expectVerdict(t, judge(booking, moving, single(span{later.From + 120, later.To + 120}, 5)), harness.Pass, "")
	stuck := from(denied(moveSeries(1, "member-1", "s", utcAt(3), "move"), 409, "overlap", ""), 3, 4)
	expectVerdict(t, judge(booking, stuck), harness.Failed, "")
}

func TestModel(t *testing.T) {
	for name, tt := range map[string]struct {
		ops  []harness.Operation
		want harness.Status
	}{
		"one after the other":           {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(2, 2), 2, 3), from(refusedBooking(3, 1), 4, 5)}, harness.Pass},
		"two at one time":               {[]harness.Operation{from(granting(1, 1), 1, 9), from(granting(2, 1), 1, 9)}, harness.Failed},
		"refused for nothing":           {[]harness.Operation{from(granting(1, 1), 1, 2), from(refusedBooking(3, 2), 4, 5)}, harness.Failed},
		"refused for one that comes":    {[]harness.Operation{from(granting(1, 1), 1, 6), from(refusedBooking(3, 1), 4, 5)}, harness.Pass},
		"again when it is free":         {[]harness.Operation{from(granting(1, 1), 1, 2), from(left(1), 3, 4), from(granting(2, 1), 5, 6)}, harness.Pass},
		"refused when it is free":       {[]harness.Operation{from(granting(1, 1), 1, 2), from(left(1), 3, 4), from(refusedBooking(2, 1), 5, 6)}, harness.Failed},
		"moved, and in nobody's way":    {[]harness.Operation{from(granting(1, 1), 1, 2), from(movedTo(1, 3), 3, 4), from(granting(2, 1), 5, 6), from(refusedBooking(3, 3), 7, 8)}, harness.Pass},
		"moved onto another":            {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(2, 2), 3, 4), from(movedTo(1, 2), 5, 6)}, harness.Failed},
		"swapped":                       {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(2, 2), 3, 4), from(swapped(2, 1), 5, 9), from(refusedBooking(3, 1), 6, 7), from(refusedBooking(4, 2), 6, 8)}, harness.Pass},
		"somebody got between":          {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(2, 2), 3, 4), from(granting(3, 1), 6, 7), from(swapped(2, 1), 5, 9)}, harness.Failed},
		"busy when it is":               {[]harness.Operation{from(granting(1, 1), 1, 2), from(busyOf(1), 3, 4)}, harness.Pass},
		"free when it is not":           {[]harness.Operation{from(granting(1, 1), 1, 2), from(busyOf(), 3, 4)}, harness.Failed},
		"busy as one, for they touch":   {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(2, 2), 3, 4), from(busyOf(1, 2), 5, 6)}, harness.Pass},
		"read where it is":              {[]harness.Operation{from(granting(1, 1), 1, 2), from(replied(read(1, "member-1", uid(1)), 200, told(1, 1, "CREATED")), 3, 4)}, harness.Pass},
		"read where it was":             {[]harness.Operation{from(granting(1, 1), 1, 2), from(movedTo(1, 3), 3, 4), from(replied(read(1, "member-1", uid(1)), 200, told(1, 1, "CREATED")), 5, 6)}, harness.Failed},
		"over, and not":                 {[]harness.Operation{from(granting(1, 1), 1, 2), from(denied(cancel(1, "member-1", uid(1), "c"), 409, "appointment-over", ""), 3, 4)}, harness.Failed},
		"an answer that is no answer":   {[]harness.Operation{from(granting(1, 1), 1, 2), from(denied(cancel(1, "member-1", uid(1), "c"), 503, "busy", ""), 3, 4), from(refusedBooking(2, 1), 5, 6)}, harness.Pass},
		"it may have been over with it": {[]harness.Operation{from(granting(1, 1), 1, 2), from(denied(cancel(1, "member-1", uid(1), "c"), 503, "busy", ""), 3, 4), from(granting(2, 1), 5, 6)}, harness.Pass},
		"copies of a booking are one":   {[]harness.Operation{from(granting(1, 1), 1, 2), from(granting(1, 1), 3, 4)}, harness.Pass},
		"nothing that says anything":    {[]harness.Operation{from(denied(book(1, "member-1", 1, utcAt(1), "k"), 401, "unauthorized", ""), 1, 2)}, harness.Unknown},
	} {
		t.Run(name, func(t *testing.T) { expectVerdict(t, linearizable().Judge(history(tt.ops...)), tt.want, "") })
	}
}
