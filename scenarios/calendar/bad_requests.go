package calendar

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

const (
	nowhere   = "00000000-0000-4000-8000-000000000000"
	bodyLimit = 64 << 10
)

// stranger is a member who has nothing.
var stranger = member(7)

// bookOf is a booking by somebody who has nothing, of the time.
func bookOf(change func(w badWorld, t *when)) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request {
		t := w.free.in("Europe/Berlin", w.origin)
		change(w, &t)
		return book(0, stranger, w.open.ID, t, "bad")
	}
}

// at writes an instant as a clock in Berlin.
func at(t time.Time) string { text, _ := wall("Europe/Berlin", t); return text }

// badTimes are no times, or none that can be booked.
var badTimes = []bad{
	{"end-before-start", "422 bad-range", bookOf(func(_ badWorld, t *when) { t.Start, t.End = t.End, t.Start })},
	{"no-length", "422 bad-range", bookOf(func(_ badWorld, t *when) { t.End = t.Start })},
	{"more-than-a-day", "422 bad-range", bookOf(func(w badWorld, t *when) {
		t.Zone = "Etc/UTC"
		*t = between("Etc/UTC", w.free.start(w.origin), w.free.start(w.origin).Add(24*time.Hour+time.Minute))
	})},
	{"begun", "422 bad-range", bookOf(func(w badWorld, t *when) { t.Start, t.End = at(w.now.Add(-2*time.Minute)), at(w.now.Add(time.Hour)) })},
	{"over-long-ago", "422 bad-range", bookOf(func(_ badWorld, t *when) { t.Start, t.End = "1999-12-31T10:00", "1999-12-31T11:00" })},
	{"beyond-the-horizon", "422 bad-range", bookOf(func(w badWorld, t *when) {
		t.Start, t.End = at(w.now.Add(horizon+time.Hour)), at(w.now.Add(horizon+2*time.Hour))
	})},
	{"series-beyond-the-horizon", "422 bad-range", bookOf(func(w badWorld, t *when) {
		t.Start, t.End, t.Weekly = at(w.now.Add(horizon-10*24*time.Hour)), at(w.now.Add(horizon-10*24*time.Hour+time.Hour)), 3
	})},
	{"with-an-offset", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start += ":00+02:00" })},
	{"with-seconds", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start += ":30" })},
	{"thirtieth-of-february", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start = "2027-02-30T10:00" })},
	{"hour-25", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start = t.Start[:11] + "25:00" })},
	{"tomorrow", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start = "tomorrow" })},
	{"no-time", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Start = "" })},
	{"zone-of-nowhere", "422 unknown-time-zone", bookOf(func(_ badWorld, t *when) { t.Zone = "Europe/Atlantis" })},
	{"zone-of-the-server", "422 unknown-time-zone", bookOf(func(_ badWorld, t *when) { t.Zone = "Local" })},
	{"zone-that-is-a-file", "422 unknown-time-zone", bookOf(func(_ badWorld, t *when) { t.Zone = "../../etc/passwd" })},
	{"zone-that-is-an-offset", "422 unknown-time-zone", bookOf(func(_ badWorld, t *when) { t.Zone = "+02:00" })},
	{"fold-that-is-none", "422 unknown-word", bookOf(func(_ badWorld, t *when) { t.StartFold = "middle" })},
}

// badBookings can't be had.
var badBookings = []bad{
	{"taken", "409 overlap", bookOf(func(w badWorld, t *when) { *t = between("Asia/Kolkata", w.other.Start.Add(time.Minute), w.other.End) })},
	{"series-of-which-one-is-taken", "409 overlap", bookOf(func(w badWorld, t *when) {
		*t = between("Etc/UTC", w.other.Start.Add(-7*24*time.Hour), w.other.End.Add(-7*24*time.Hour))
		t.Weekly = 3
	})},
	{"of-a-resource-that-is-not-active", "409 resource-inactive", func(w badWorld) harness.Request {
		return book(0, stranger, w.closed.ID, w.free.in("Etc/UTC", w.origin), "bad")
	}},
	{"of-an-unknown-resource", "404 unknown-resource", func(w badWorld) harness.Request {
		return book(0, stranger, 7, w.free.in("Etc/UTC", w.origin), "bad")
	}},
	{"of-a-resource-that-is-no-number", "404 unknown-resource", func(w badWorld) harness.Request {
		r := book(0, stranger, 7, w.free.in("Etc/UTC", w.origin), "bad")
		r.Path = "/calendar/resources/one/appointments"
		return r
	}},
	{"weekly-once", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Weekly = 1 })},
	{"weekly-for-ever", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Weekly = 54 })},
	{"weekly-backwards", "400 bad-request", bookOf(func(_ badWorld, t *when) { t.Weekly = -2 })},
}

func moveOf(who string, id func(badWorld) string, change func(w badWorld, t *when)) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request {
		t := w.free.in("Etc/UTC", w.origin)
		change(w, &t)
		return moveTo(0, who, id(w), t, "bad")
	}
}

func asItIs(badWorld, *when)      {}
func mine(w badWorld) string      { return w.mine.ID }
func others(w badWorld) string    { return w.other.ID }
func cancelled(w badWorld) string { return w.over.ID }
func begun(w badWorld) string     { return w.begun.ID }

// badMoves are of what is somebody else's, over or unknown, or to where it can't be.
var badMoves = []bad{
	{"move-of-another's", "404 unknown-appointment", moveOf(member(1), others, asItIs)},
	{"move-of-what-is-over", "409 appointment-over", moveOf(member(1), cancelled, asItIs)},
	{"move-of-what-has-begun", "409 appointment-over", moveOf(member(1), begun, asItIs)},
	{"move-of-the-unknown", "404 unknown-appointment", moveOf(member(1), func(badWorld) string { return nowhere }, asItIs)},
	{"move-of-what-is-no-id", "404 unknown-appointment", moveOf(member(1), func(badWorld) string { return "mine" }, asItIs)},
	{"move-onto-another's", "409 overlap", moveOf(member(1), mine, func(w badWorld, t *when) { *t = between("Etc/UTC", w.other.Start, w.other.End) })},
	{"move-into-the-past", "422 bad-range", moveOf(member(1), mine, func(_ badWorld, t *when) { t.Start, t.End = "2001-01-01T10:00", "2001-01-01T11:00" })},
	{"move-made-weekly", "400 bad-request", moveOf(member(1), mine, func(_ badWorld, t *when) { t.Weekly = 2 })},
	{"move-by-staff", "403 forbidden", moveOf(staff(1), mine, asItIs)},
	{"cancel-another's", "404 unknown-appointment", func(w badWorld) harness.Request { return cancel(0, member(1), w.other.ID, "bad") }},
	{"cancel-again", "409 appointment-over", func(w badWorld) harness.Request { return cancel(0, member(1), w.over.ID, "bad") }},
	{"cancel-of-what-has-begun", "409 appointment-over", func(w badWorld) harness.Request { return cancel(0, member(1), w.begun.ID, "bad") }},
	{"cancel-by-staff", "403 forbidden", func(w badWorld) harness.Request { return cancel(0, staff(1), w.mine.ID, "bad") }},
	{"series-of-another", "404 unknown-series", func(w badWorld) harness.Request {
		return moveSeries(0, member(2), w.series.SeriesID, w.free.in("Etc/UTC", w.origin), "bad")
	}},
	{"series-of-nobody", "404 unknown-series", func(w badWorld) harness.Request {
		return moveSeries(0, member(1), nowhere, w.free.in("Etc/UTC", w.origin), "bad")
	}},
	{"series-onto-another's", "409 overlap", func(w badWorld) harness.Request { // its second one
		return moveSeries(0, member(1), w.series.SeriesID, between("Etc/UTC", w.other.Start.Add(-7*24*time.Hour), w.other.End.Add(-7*24*time.Hour)), "bad")
	}},
	{"read-of-another's", "404 unknown-appointment", func(w badWorld) harness.Request { return read(0, member(1), w.other.ID) }},
}

func together(moves func(w badWorld) []move) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request { return reschedule(0, member(1), moves(w), "bad") }
}

// badReschedules are of nothing, of too much, or half of them can't be.
var badReschedules = []bad{
	{"reschedule-of-nothing", "400 bad-request", together(func(badWorld) []move { return []move{} })},
	{"reschedule-of-51", "400 bad-request", together(func(w badWorld) []move {
		list := make([]move, 51)
		for i := range list {
			list[i] = move{nowhere[:len(nowhere)-2] + string(rune('0'+i/10)) + string(rune('0'+i%10)), w.free.in("Etc/UTC", w.origin)}
		}
		return list
	})},
	{"reschedule-of-one-twice", "400 bad-request", together(func(w badWorld) []move {
		return []move{{w.mine.ID, w.free.in("Etc/UTC", w.origin)}, {w.mine.ID, day(21, 0, 10).in("Etc/UTC", w.origin)}}
	})},
	{"reschedule-with-another's", "404 unknown-appointment", together(func(w badWorld) []move {
		return []move{{w.mine.ID, w.free.in("Etc/UTC", w.origin)}, {w.other.ID, day(21, 0, 10).in("Etc/UTC", w.origin)}}
	})},
	{"reschedule-with-one-that-is-over", "409 appointment-over", together(func(w badWorld) []move {
		return []move{{w.mine.ID, w.free.in("Etc/UTC", w.origin)}, {w.over.ID, day(21, 0, 10).in("Etc/UTC", w.origin)}}
	})},
	{"reschedule-onto-each-other", "409 overlap", together(func(w badWorld) []move {
		t := w.free.in("Etc/UTC", w.origin)
		return []move{{w.mine.ID, t}, {w.series.Appointments[0].ID, t}}
	})},
	{"reschedule-half-onto-another's", "409 overlap", together(func(w badWorld) []move {
		return []move{{w.series.Appointments[0].ID, w.free.in("Etc/UTC", w.origin)}, {w.mine.ID, between("Etc/UTC", w.other.Start, w.other.End)}}
	})},
	{"reschedule-with-a-zone-of-nowhere", "422 unknown-time-zone", together(func(w badWorld) []move {
		t := w.free.in("Etc/UTC", w.origin)
		t.Zone = "Mars/Olympus"
		return []move{{w.mine.ID, w.free.in("Etc/UTC", w.origin)}, {w.series.Appointments[0].ID, t}}
	})},
}

// changed is the activation of the closed resource with one word changed.
func changed(field string, value any) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request {
		r := activate(0, staff(1), w.closed, "")
		doc := map[string]any{}
		_ = json.Unmarshal(r.Body, &doc) // written a line above
		doc[field] = value
		if value == nil {
			delete(doc, field)
		}
		r.Body, _ = json.Marshal(doc) // words and numbers
		return r
	}
}

// badResources are of staff who ask for what can't be, and of members who are no staff.
var badResources = []bad{
	{"resource-that-exists", "409 resource-exists", func(w badWorld) harness.Request { return addResource(w.open) }},
	{"resource-with-a-calendar-that-is-taken", "409 resource-exists", func(w badWorld) harness.Request {
		r := w.open
		r.ID++
		r.ID += 1_000_000_000
		return addResource(r)
	}},
	{"activation-of-the-unknown", "404 unknown-resource", func(w badWorld) harness.Request {
		r := w.open
		r.ID = 7
		return activate(0, staff(1), r, "")
	}},
	{"activation-of-an-active-one", "409 already-active", func(w badWorld) harness.Request { return activate(0, staff(1), w.open, "") }},
	{"activation-under-no-contract", "422 unknown-word", changed("provider_contract", "best-effort")},
	{"activation-under-no-policy", "422 unknown-word", changed("conflict_policy", "ignore")},
	{"activation-without-a-policy", "422 unknown-word", changed("conflict_policy", nil)},
	{"activation-without-a-limit", "400 bad-request", changed("conflict_limit", nil)},
	{"activation-with-a-limit-below-none", "400 bad-request", changed("conflict_limit", -1)},
	{"activation-with-half-a-limit", "400 bad-request", changed("conflict_limit", 1.5)},
	{"activation-by-a-member", "403 forbidden", func(w badWorld) harness.Request { return activate(0, stranger, w.closed, "") }},
	{"deactivation-of-an-inactive-one", "409 not-active", func(w badWorld) harness.Request { return deactivate(0, staff(1), w.closed.ID) }},
	{"deactivation-by-a-member", "403 forbidden", func(w badWorld) harness.Request { return deactivate(0, stranger, w.open.ID) }},
	{"resource-shown-to-a-member", "403 forbidden", func(w badWorld) harness.Request { return readResource(0, stranger, w.open.ID) }},
	{"resource-that-is-unknown", "404 unknown-resource", func(badWorld) harness.Request { return readResource(0, staff(1), 7) }},
	{"busy-for-32-days", "422 bad-range", func(w badWorld) harness.Request {
		return availability(0, stranger, w.open.ID, w.origin, w.origin.Add(32*24*time.Hour))
	}},
	{"busy-backwards", "422 bad-range", func(w badWorld) harness.Request {
		return availability(0, stranger, w.open.ID, w.origin, w.origin.Add(-time.Hour))
	}},
	{"busy-of-no-time", "400 bad-request", func(w badWorld) harness.Request {
		return ask("", 0, stranger, http.MethodGet, resourcePath(w.open.ID)+"/availability?from=now&to=later")
	}},
	{"busy-of-the-unknown", "404 unknown-resource", func(w badWorld) harness.Request {
		return availability(0, stranger, 7, w.origin, w.origin.Add(time.Hour))
	}},
}

// badConflicts are decisions that are none, or nobody's.
var badConflicts = []bad{
	{"conflicts-shown-to-a-member", "403 forbidden", func(badWorld) harness.Request { return conflicts(0, stranger) }},
	{"resolution-by-a-member", "403 forbidden", func(w badWorld) harness.Request { return resolve(0, member(3), w.conflict.ID, decisionKeep, "bad") }},
	{"resolution-that-is-none", "400 bad-request", func(w badWorld) harness.Request { return resolve(0, staff(1), w.conflict.ID, "ignore", "bad") }},
	{"resolution-of-the-unknown", "404 unknown-conflict", func(badWorld) harness.Request { return resolve(0, staff(1), nowhere, decisionKeep, "bad") }},
	{"resolution-again", "409 already-resolved", func(w badWorld) harness.Request { return resolve(0, staff(1), w.kept, decisionCancel, "bad") }},
	{"sync-of-what-is-not-parked", "409 not-parked", func(w badWorld) harness.Request { return syncAgain(0, staff(1), w.mine.ID) }},
	{"sync-of-the-unknown", "404 unknown-appointment", func(badWorld) harness.Request { return syncAgain(0, staff(1), nowhere) }},
	{"sync-by-a-member", "403 forbidden", func(w badWorld) harness.Request { return syncAgain(0, member(1), w.mine.ID) }},
}

// good are requests of each kind that would be carried out.
func good(w badWorld) map[string]harness.Request {
	free := w.free.in("Etc/UTC", w.origin)
	return map[string]harness.Request{
		"book":       book(0, stranger, w.open.ID, free, "bad"),
		"move":       moveTo(0, member(1), w.mine.ID, free, "bad"),
		"reschedule": reschedule(0, member(1), []move{{w.mine.ID, free}}, "bad"),
		"cancel":     cancel(0, member(1), w.mine.ID, "bad"),
		"resolve":    resolve(0, staff(1), w.conflict.ID, decisionKeep, "bad"),
		"activate":   activate(0, staff(1), w.closed, ""),
		"read":       read(0, member(1), w.mine.ID),
	}
}

var goodNames = []string{"book", "move", "reschedule", "cancel", "resolve", "activate", "read"}

// badStrangers have no token, or none that is one. They are told so whatever
// they ask for, also of what is not there.
func badStrangers() []bad {
	var list []bad
	for _, name := range goodNames {
		list = append(list,
			bad{name + "-without-a-token", "401 unauthorized", func(w badWorld) harness.Request { return answers.WithToken(good(w)[name], "") }},
			bad{name + "-with-a-token-of-nobody", "401 unauthorized", func(w badWorld) harness.Request { return answers.WithToken(good(w)[name], "guest-1") }},
			bad{name + "-with-an-old-token", "401 token-expired", func(w badWorld) harness.Request {
				r := good(w)[name]
				return answers.WithToken(r, r.Caller+".1000000000")
			}})
	}
	return append(list, bad{"book-by-staff", "403 forbidden", func(w badWorld) harness.Request {
		return book(0, staff(1), w.open.ID, w.free.in("Etc/UTC", w.origin), "bad")
	}})
}

// badKeys are none.
var badKeys = []bad{
	{"book-without-a-key", "400 key-missing", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["book"], idempotencyKey, "") }},
	{"move-without-a-key", "400 key-missing", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["move"], idempotencyKey, "") }},
	{"reschedule-without-a-key", "400 key-missing", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["reschedule"], idempotencyKey, "") }},
	{"cancel-without-a-key", "400 key-missing", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["cancel"], idempotencyKey, "") }},
	{"resolve-without-a-key", "400 key-missing", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["resolve"], idempotencyKey, "") }},
	{"key-too-long", "400 key-invalid", func(w badWorld) harness.Request {
		return answers.WithHeader(good(w)["book"], idempotencyKey, strings.Repeat("k", 129))
	}},
	{"key-with-a-space", "400 key-invalid", func(w badWorld) harness.Request { return answers.WithHeader(good(w)["book"], idempotencyKey, "a b") }},
	{"key-of-another-booking", "422 key-reused", func(w badWorld) harness.Request {
		return book(0, member(1), w.open.ID, w.free.in("Etc/UTC", w.origin), "world-1")
	}},
}

func bodyOf(name, body string) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request { return answers.WithBody(good(w)[name], body) }
}

// badBodies can't be read.
var badBodies = []bad{
	{"body-that-is-no-json", "400 bad-request", bodyOf("book", `{"start":`)},
	{"body-that-is-a-list", "400 bad-request", bodyOf("book", `[]`)},
	{"body-without-anything", "400 bad-request", bodyOf("book", `{}`)},
	{"body-with-a-number-for-a-time", "400 bad-request", bodyOf("book", `{"start":1800000000,"end":1800003600,"time_zone":"Etc/UTC"}`)},
	{"body-with-more-than-there-is", "400 bad-request", func(w badWorld) harness.Request {
		r := good(w)["book"]
		return answers.WithBody(r, strings.TrimSuffix(string(r.Body), "}")+`,"member":"member-2"}`)
	}},
	{"body-with-half-a-week", "400 bad-request", func(w badWorld) harness.Request {
		r := good(w)["book"]
		return answers.WithBody(r, strings.TrimSuffix(string(r.Body), "}")+`,"weekly":2.5}`)
	}},
	{"body-twice", "400 bad-request", func(w badWorld) harness.Request {
		r := good(w)["book"]
		return answers.WithBody(r, string(r.Body)+string(r.Body))
	}},
	{"reschedule-that-is-no-list", "400 bad-request", bodyOf("reschedule", `{"moves":{}}`)},
	{"decision-that-is-a-number", "400 bad-request", bodyOf("resolve", `{"decision":1}`)},
	{"body-too-large", "413 too-large", func(w badWorld) harness.Request {
		return answers.WithBody(good(w)["book"], `{"start":"`+strings.Repeat("2", bodyLimit)+`"}`)
	}},
	{"body-that-is-a-form", "415 unsupported-media-type", func(w badWorld) harness.Request {
		return answers.WithHeader(answers.WithBody(good(w)["book"], `start=now`), "Content-Type", "application/x-www-form-urlencoded")
	}},
}
