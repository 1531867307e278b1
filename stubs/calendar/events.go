package calendar

import (
	"net/http"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// A span is a busy time.
type span struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// shown is an event as callers see it.
type shown struct {
	EventID string    `json:"event_id"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Version int64     `json:"version"`
	Title   string    `json:"title"`
	Source  string    `json:"source"`
}

func (e Event) shown() shown {
	return shown{e.EventID, e.Start, e.End, e.Version, e.Title, e.Source}
}

// refuseWith is a refusal that shows the event that stands.
func refuseWith(word string, e Event) double.Reply {
	return double.Reply{Status: http.StatusConflict, Word: word, Body: map[string]any{"error": word, "event": e.shown()}}
}

// freebusy decides on GET /freebusy. Times that overlap or touch are one.
func (p *provider) freebusy(b *book, q request) double.Reply {
	asOf, events := p.wall(), b.sorted()
	if b.frozen != nil {
		asOf, events = b.frozen.at, b.frozen.events
	}
	busy, word := []span{}, "free"
	for _, e := range within(events, q.start, q.end) {
		word = "busy"
		if last := len(busy) - 1; last >= 0 && !e.Start.After(busy[last].End) {
			busy[last].End = later(busy[last].End, e.End)
			continue
		}
		busy = append(busy, span{e.Start, e.End})
	}
	p.note(about(b, Freebusy, word, q))
	p.moment(b, AfterFreebusy, q)
	return double.Reply{Status: http.StatusOK, Word: word, Body: map[string]any{"busy": busy, "as_of": asOf}}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// list decides on GET /events.
func (p *provider) list(b *book, q request) double.Reply {
	events := []shown{}
	for _, e := range b.overlapping(q.start, q.end) {
		events = append(events, e.shown())
	}
	p.moment(b, AfterLook, q)
	return double.Reply{Status: http.StatusOK, Word: "events", Body: map[string]any{"events": events}}
}

// get decides on GET /events/{event_id}.
func (p *provider) get(b *book, q request) double.Reply {
	e, stands := b.events[q.eventID]
	if !stands {
		return double.Refuse(http.StatusNotFound, "not_found")
	}
	return double.Reply{Status: http.StatusOK, Word: "event", Body: e.shown()}
}

// create decides on POST /events.
func (p *provider) create(b *book, q request) double.Reply {
	p.moment(b, BeforeCreate, q)
	row := about(b, Create, "created", q)
	e, stands := b.events[q.eventID]
	var reply double.Reply
	switch {
	case stands:
		reply = refuseWith("exists", e)
	case b.spent[q.eventID]:
		reply = double.Refuse(http.StatusConflict, "spent")
	case p.refusesBusy(b, q, row):
		reply = double.Refuse(http.StatusConflict, "busy")
	default:
		e = Event{b.name, q.eventID, q.start, q.end, q.version, q.title, Ours}
		b.events[q.eventID] = e
		b.made[q.eventID]++
		reply = double.Reply{Status: http.StatusCreated, Word: "created", Body: e.shown()}
	}
	row.Outcome, row.Created = reply.Word, b.made[q.eventID]
	p.note(row)
	if reply.Status == http.StatusCreated {
		p.moment(b, AfterCreate, q)
	}
	return reply
}

// refusesBusy says whether the provider keeps a call out for the others' sake.
func (p *provider) refusesBusy(b *book, q request, row Call) bool {
	return q.ifFree && row.Overlapped && *p.set.of(b.name).Atomic
}

// update decides on PUT /events/{event_id}.
func (p *provider) update(b *book, q request) double.Reply {
	row := about(b, Update, "updated", q)
	e, stands := b.events[q.eventID]
	var reply double.Reply
	switch {
	case !stands:
		reply = double.Refuse(http.StatusNotFound, "not_found")
	case e.Source != Ours:
		reply = double.Refuse(http.StatusForbidden, "not_yours")
	case q.version <= e.Version:
		reply = refuseWith("stale", e)
	case p.refusesBusy(b, q, row):
		reply = double.Refuse(http.StatusConflict, "busy")
	default:
		e.Start, e.End, e.Version = q.start, q.end, q.version
		b.events[q.eventID] = e
		reply = double.Reply{Status: http.StatusOK, Word: "updated", Body: e.shown()}
	}
	row.Outcome = reply.Word
	p.note(row)
	return reply
}

// remove decides on DELETE /events/{event_id}.
func (p *provider) remove(b *book, q request) double.Reply {
	e, stands := b.events[q.eventID]
	reply := double.Reply{Status: http.StatusNoContent, Word: "deleted"}
	switch {
	case stands && e.Source != Ours:
		reply = double.Refuse(http.StatusForbidden, "not_yours")
	case !stands:
		reply = double.Refuse(http.StatusNotFound, "not_found")
		b.spent[q.eventID] = true
	default:
		delete(b.events, q.eventID)
		b.spent[q.eventID] = true
	}
	p.note(Call{Calendar: b.name, Call: Delete, EventID: q.eventID, Start: e.Start, End: e.End, Version: e.Version, Source: e.Source, Outcome: reply.Word})
	return reply
}

// about is the row of a call of a range, as the calendar stands.
func about(b *book, call, outcome string, q request) Call {
	others := b.externals(q.start, q.end)
	row := Call{
		Calendar: b.name, Call: call, Start: q.start, End: q.end, Outcome: outcome,
		Overlapped: len(others) > 0, Externals: others,
	}
	if call != Freebusy {
		row.EventID, row.Version, row.IfFree, row.Source = q.eventID, q.version, q.ifFree, Ours
		if e, stands := b.events[q.eventID]; stands {
			row.Source = e.Source
		}
	}
	return row
}
