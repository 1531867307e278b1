package calendar

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// A period is time at the provider, half-open.
type period struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// overlaps reports whether the spans have an instant in common; back to back
// they have none.
func (p period) overlaps(q period) bool { return p.Start.Before(q.End) && q.Start.Before(p.End) }

// same reports whether both are the same time.
func (p period) same(q period) bool { return p.Start.Equal(q.Start) && p.End.Equal(q.End) }

// Sources of an event.
const (
	sourceOurs     = "ours"     // this client created it
	sourceExternal = "external" // somebody else did
)

// An event is one in the provider's calendar.
type event struct {
	period

	ID      string `json:"event_id"`
	Version int32  `json:"version"` // 0 for an external one
	Title   string `json:"title"`
	Source  string `json:"source"`
}

// A verdict is what the provider decided about an event that it was sent.
type verdict int

const (
	taken  verdict = iota // as it was sent
	exists                // create: it is there, perhaps with another version
	spent                 // create: it was deleted before, and never comes back
	absent                // update: it is not there
	stale                 // update: a later version is there
	busy                  // somebody else's event is in the way
)

// refusals are the provider's words for them.
var refusals = map[string]verdict{"exists": exists, "spent": spent, "stale": stale, "busy": busy}

// events are all events of the calendar that overlap the range, by start, with
// whose they are.
func (p *provider) events(ctx context.Context, res resource, during period, by cause) ([]event, error) {
	rq := request{what: "list", method: http.MethodGet, path: query("/events", res, "from", stamp(during.Start), "to", stamp(during.End)), by: by}
	told, err := p.call(ctx, res, rq)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Events []event `json:"events"`
	}
	if told.status != http.StatusOK || json.Unmarshal(told.body, &doc) != nil {
		return nil, told.strange(rq)
	}
	return doc.Events, nil
}

// event is the event of an id, false when there is none.
func (p *provider) event(ctx context.Context, res resource, id string, by cause) (event, bool, error) {
	rq := request{what: "get", method: http.MethodGet, path: query("/events/"+url.PathEscape(id), res), by: by}
	told, err := p.call(ctx, res, rq)
	if err != nil {
		return event{}, false, err
	}
	if told.status == http.StatusNotFound {
		return event{}, false, nil
	}
	var e event
	if told.status != http.StatusOK || json.Unmarshal(told.body, &e) != nil || e.ID != id {
		return event{}, false, told.strange(rq)
	}
	return e, true, nil
}

// busy is when the calendar says that it is busy; our own events are in it, and
// it may be behind.
func (p *provider) busy(ctx context.Context, res resource, during period, by cause) ([]period, error) {
	rq := request{what: "freebusy", method: http.MethodGet, path: query("/freebusy", res, "from", stamp(during.Start), "to", stamp(during.End)), by: by}
	told, err := p.call(ctx, res, rq)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Busy []period `json:"busy"`
	}
	if told.status != http.StatusOK || json.Unmarshal(told.body, &doc) != nil {
		return nil, told.strange(rq)
	}
	return doc.Busy, nil
}

// sent is an event as it is sent.
type sent struct {
	Calendar string `json:"calendar"`
	ID       string `json:"event_id,omitempty"`
	Start    string `json:"start"`
	End      string `json:"end"`
	Version  int32  `json:"version"`
	Title    string `json:"title,omitempty"`
	IfFree   bool   `json:"if_free,omitempty"`
}

// create has the event made under its own id.
func (p *provider) create(ctx context.Context, res resource, e event, ifFree bool, by cause) (verdict, error) {
	return p.put(ctx, res, request{
		what: "create", method: http.MethodPost, path: "/events", by: by,
		doc: sent{res.calendar, e.ID, stamp(e.Start), stamp(e.End), e.Version, e.Title, ifFree},
	})
}

// update moves the event to where it is now.
func (p *provider) update(ctx context.Context, res resource, e event, ifFree bool, by cause) (verdict, error) {
	return p.put(ctx, res, request{
		what: "update", method: http.MethodPut, path: "/events/" + url.PathEscape(e.ID), by: by,
		doc: sent{Calendar: res.calendar, Start: stamp(e.Start), End: stamp(e.End), Version: e.Version, IfFree: ifFree},
	})
}

func (p *provider) put(ctx context.Context, res resource, rq request) (verdict, error) {
	told, err := p.call(ctx, res, rq)
	if err != nil {
		return 0, err
	}
	var doc struct {
		Error string `json:"error"`
	}
	switch told.status {
	case http.StatusOK, http.StatusCreated:
		return taken, nil
	case http.StatusNotFound:
		if rq.method == http.MethodPut {
			return absent, nil
		}
	case http.StatusConflict:
		if json.Unmarshal(told.body, &doc) == nil {
			if v, known := refusals[doc.Error]; known {
				return v, nil
			}
		}
	}
	return 0, told.strange(rq)
}

// remove deletes the event of an id. nil: it is gone, and does not come back.
func (p *provider) remove(ctx context.Context, res resource, id string, by cause) error {
	rq := request{what: "delete", method: http.MethodDelete, path: query("/events/"+url.PathEscape(id), res), by: by}
	told, err := p.call(ctx, res, rq)
	if err == nil && told.status != http.StatusNoContent && told.status != http.StatusNotFound {
		err = told.strange(rq)
	}
	return err
}
