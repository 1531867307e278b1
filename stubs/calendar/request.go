package calendar

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// A request is what a call asks for; each kind of call has some of it.
type request struct {
	calendar string // empty when the call names none
	eventID  string
	start    time.Time // UTC; of GET /freebusy and GET /events the range
	end      time.Time
	version  int64
	title    string
	ifFree   bool
	access   string // token
	refresh  string // token
	key      string // the one Idempotency-Key, empty when there is none or several
	sound    bool   // the call has all that its kind needs
}

// body is what calls send.
type body struct {
	Calendar     string    `json:"calendar"`
	EventID      string    `json:"event_id"`
	Start        time.Time `json:"start"`
	End          time.Time `json:"end"`
	Version      int64     `json:"version"`
	Title        string    `json:"title"`
	IfFree       bool      `json:"if_free"`
	RefreshToken string    `json:"refresh_token"`
}

// read reads a call.
func read(kind string, r *http.Request, text []byte) request {
	q, read := fromQuery(r), true
	if kind == Create || kind == Update || kind == Token {
		q, read = fromBody(text)
	}
	if kind != Create {
		q.eventID = r.PathValue("event_id")
	}
	if !plainCalendar.MatchString(q.calendar) {
		q.calendar = ""
	}
	q.access, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if keys := r.Header.Values("Idempotency-Key"); len(keys) == 1 {
		q.key = keys[0]
	}
	q.sound = read && q.calendar != "" && q.complete(kind)
	return q
}

func fromBody(text []byte) (request, bool) {
	var b body
	err := json.Unmarshal(text, &b)
	return request{
		calendar: b.Calendar, eventID: b.EventID, start: b.Start.UTC(), end: b.End.UTC(), version: b.Version, title: b.Title, ifFree: b.IfFree, refresh: b.RefreshToken,
	}, err == nil
}

func fromQuery(r *http.Request) request {
	query := r.URL.Query()
	start, noStart := time.Parse(time.RFC3339, query.Get("from"))
	end, noEnd := time.Parse(time.RFC3339, query.Get("to"))
	if noStart != nil || noEnd != nil {
		start, end = time.Time{}, time.Time{} // no range
	}
	return request{calendar: query.Get("calendar"), start: start.UTC(), end: end.UTC()}
}

// complete says whether a call has what its kind needs, beside a calendar.
func (q request) complete(kind string) bool {
	ranged, named := isRange(q.start, q.end), plainEvent.MatchString(q.eventID)
	switch kind {
	case Freebusy, List:
		return ranged
	case Create, Update:
		return ranged && named && q.version > 0
	case Get, Delete:
		return named
	case Token:
		return q.refresh != "" && q.key != ""
	}
	return false
}

// isRange says whether a range can be, and can be written as RFC 3339 in UTC.
func isRange(start, end time.Time) bool {
	return end.After(start) && start.UTC().Year() >= 0 && end.UTC().Year() <= 9999
}
