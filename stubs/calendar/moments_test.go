package calendar_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/stubs/calendar"
)

// An external event appears exactly when it was asked for: these are the
// ledger's rows of the calls that follow, and how they were answered.
func TestMoments(t *testing.T) {
	at := func(moment string, nth int) calendar.At {
		return calendar.At{Calendar: "cal-1", Moment: moment, Nth: nth, External: external("other-1", 9, 10)}
	}
	near := func(moment string, nth int) calendar.At {
		a := at(moment, nth)
		a.Overlapping = true
		return a
	}
	check, book, look := step{call: in("/freebusy", 9, 10)}, step{call: "POST /events", body: create("event-1", 9, 10, true)}, step{call: in("/events", 9, 10)}
	elsewhere, bookElsewhere, lookElsewhere := step{call: in("/freebusy", 14, 15)}, step{call: "POST /events", body: create("event-2", 14, 15, true)}, step{call: in("/events", 14, 15)}
	for name, tc := range map[string]struct {
		at    calendar.At
		steps []step
		want  []string
	}{
		"between check and create": {at(calendar.AfterFreebusy, 0), []step{check, book}, []string{
			"freebusy  free", "external other-1 appeared after-freebusy", "create event-1 busy over other-1",
		}},
		"after the second check": {at(calendar.AfterFreebusy, 2), []step{check, check, check}, []string{
			"freebusy  free", "freebusy  free", "external other-1 appeared after-freebusy", "freebusy  busy over other-1",
		}},
		"right before a create": {at(calendar.BeforeCreate, 1), []step{check, book}, []string{
			"freebusy  free", "external other-1 appeared before-create", "create event-1 busy over other-1",
		}},
		"right after a create": {at(calendar.AfterCreate, 1), []step{check, book, look}, []string{
			"freebusy  free", "create event-1 created", "external other-1 appeared after-create",
		}},
		"not after a create that made nothing": {at(calendar.AfterCreate, 2), []step{book, book, bookElsewhere}, []string{
			"create event-1 created", "create event-1 exists", "create event-2 created", "external other-1 appeared after-create",
		}},
		"after the look that follows a create": {at(calendar.AfterLook, 1), []step{look, book, look, check}, []string{
			"create event-1 created", "external other-1 appeared after-look", "freebusy  busy over other-1",
		}},
		"after the second such look": {at(calendar.AfterLook, 2), []step{book, look, check, look, check}, []string{
			"create event-1 created", "freebusy  busy", "external other-1 appeared after-look", "freebusy  busy over other-1",
		}},
		"overlapping checks alone": {near(calendar.AfterFreebusy, 1), []step{elsewhere, check, check}, []string{
			"freebusy  free", "freebusy  free", "external other-1 appeared after-freebusy", "freebusy  busy over other-1",
		}},
		"overlapping creates alone": {near(calendar.BeforeCreate, 1), []step{bookElsewhere, book}, []string{
			"create event-2 created", "external other-1 appeared before-create", "create event-1 busy over other-1",
		}},
		"overlapping creates and looks alone": {near(calendar.AfterLook, 1), []step{bookElsewhere, look, book, lookElsewhere, check, look, check}, []string{
			"create event-2 created", "create event-1 created", "freebusy  busy", "external other-1 appeared after-look", "freebusy  busy over other-1",
		}},
		"what can't be done says so": {
			calendar.At{Calendar: "cal-1", Moment: calendar.AfterCreate, External: calendar.External{EventID: "event-1", Remove: true}},
			[]step{book},
			[]string{"create event-1 created", "external event-1 not_done after-create"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "cal-1", "cal-2")
			before := len(d.ledger(t).Calls)
			d.configure(t, calendar.Config{At: []calendar.At{tc.at}})
			if l := d.ledger(t); len(l.Calls) != before || l.Calendars[0].Moments != 1 {
				t.Errorf("at first: %+v", l)
			}
			d.send(t, "GET", "/freebusy?calendar=cal-1&from=2027-03-01T09:00:00Z&to=2027-03-01T10:00:00Z", "", "", "") // 401: not counted
			for _, s := range tc.steps {
				d.call(t, s.call, s.body)
			}
			l := d.ledger(t)
			if diff := cmp.Diff(tc.want, rows(calendar.Ledger{Calls: l.Calls[before:]})); diff != "" {
				t.Error(diff)
			}
			if n := l.Calendars[0].Moments; n != 0 {
				t.Errorf("%d moments are left", n)
			}
		})
	}
}

// The answer of the call itself is of the state before; several moments at one call come in their order.
func TestMomentsAnswerFromTheOldState(t *testing.T) {
	d := newDesk(t, "cal-1")
	move := external("other-1", 10, 11)
	d.configure(t, calendar.Config{At: []calendar.At{
		{Calendar: "cal-1", Moment: calendar.AfterFreebusy, External: external("other-1", 9, 10)},
		{Calendar: "cal-1", Moment: calendar.AfterFreebusy, External: move},
		{Calendar: "cal-1", Moment: calendar.AfterLook, External: calendar.External{EventID: "other-1", Remove: true}},
	}})
	d.walk(t, []step{
		{in("/freebusy", 9, 11), "", 200, `{"busy":[]}`},
		{in("/freebusy", 9, 11), "", 200, `{"busy":[{` + span(10, 11) + `}]}`},
		{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)},
		{in("/events", 9, 11), "", 200, `{"events":[` + event("event-1", 9, 10, 1) + "," + theirs("other-1", 10, 11) + `]}`},
		{in("/events", 9, 11), "", 200, `{"events":[` + event("event-1", 9, 10, 1) + `]}`},
	})
	want := []string{
		"token  issued", "freebusy  free", "external other-1 appeared after-freebusy", "external other-1 moved after-freebusy", "freebusy  busy over other-1",
		"create event-1 created", "external other-1 removed after-look",
	}
	if diff := cmp.Diff(want, rows(d.ledger(t))); diff != "" {
		t.Error(diff)
	}
}

// An orphan is ours in every way, but that no create made it.
func TestOrphan(t *testing.T) {
	d := newDesk(t, "cal-1")
	d.configure(t, calendar.Config{Orphans: []calendar.External{external("event-7", 9, 10)}})
	ours := `{"event_id":"event-7",` + span(9, 10) + `,"version":1,"title":"","source":"ours"}`
	d.walk(t, []step{
		{in("/events", 9, 10), "", 200, `{"events":[` + ours + `]}`},
		{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)}, // not busy
		{"DELETE /events/event-7?calendar=cal-1", "", 204, ""},
		{"POST /events", create("event-7", 9, 10, true), 409, refused("spent")},
	})
	want := []string{"token  issued", "orphan event-7 appeared", "create event-1 created", "delete event-7 deleted", "create event-7 spent"}
	l := d.ledger(t)
	if diff := cmp.Diff(want, rows(l)); diff != "" || l.Calendars[0].Created != 1 {
		t.Errorf("created %d: %s", l.Calendars[0].Created, diff)
	}
}
