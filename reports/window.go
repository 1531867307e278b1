package reports

import (
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// A window is the part of a history that the timeline shows: one burst or one
// crash point, and what came of it, until the next one is prepared.
type window struct {
	zero     time.Duration // the release, from which all is told
	from, to time.Duration // offsets from the run's epoch
	burst    string
	bursts   int // in the whole run
	setup    map[string]bool
	limit    time.Duration // release of the next burst, 0 when there is none
	point    string        // it is a crash point: which
}

// windowOf chooses the burst with the operations of the counterexample, or
// else the first. Without bursts it is a crash point, when there is one, or else
// the whole run.
func windowOf(r harness.Result, rec harness.Record) window {
	ids := badOps(r)
	among := setOf(ids)
	bursts := slices.Clone(rec.History.Bursts)
	slices.SortStableFunc(bursts, func(a, b harness.BurstReport) int { return int(a.Released - b.Released) })
	w := window{zero: firstRelease(rec), bursts: len(bursts), setup: map[string]bool{}}
	if len(bursts) > 0 {
		chosen := burstOf(rec, bursts, ids)
		w.zero, w.burst = bursts[chosen].Released, bursts[chosen].Name
		if chosen+1 < len(bursts) {
			w.limit = bursts[chosen+1].Released
		}
		for _, op := range rec.History.Operations {
			if op.Burst == "" && op.Sent < bursts[0].Released {
				w.setup[op.Kind] = true
			}
		}
	} else if point, blamed := shownPoint(r, rec); len(point) > 0 {
		w = pointWindow(rec, point, blamed)
	}
	w.from, w.to = w.zero, w.zero
	for _, op := range rec.History.Operations {
		if w.shows(op) {
			w.from = min(w.from, started(op))
			w.to = max(w.to, op.Sent, op.Answered)
		}
	}
	for _, c := range rec.Upstream {
		if w.showsCall(c) {
			w.to = max(w.to, c.Received, c.Accepted, c.Answered)
		}
	}
	for _, u := range rec.Postgres {
		if w.showsUnit(u) && u.Op != "" && among[u.Op] {
			w.to = max(w.to, u.Arrived, u.Answered)
		}
	}
	for _, e := range rec.History.Events {
		if w.showsEvent(e) && (e.Kind == harness.EventFault || e.Kind == harness.EventHeal) {
			w.to = max(w.to, e.At)
		}
	}
	margin := max(time.Microsecond, (w.to-w.from)/100) // so that the release and the last answer are clear of the edges
	w.from, w.to = w.from-margin, w.to+margin
	return w
}

// pointWindow is from the first operation of a crash point until the next one
// that is not of it. The last point's lasts until the end of the run: what broke
// the enumeration off comes after it.
func pointWindow(rec harness.Record, point []string, blamed bool) window {
	w := window{zero: originOf(point, rec).at, point: "the last crash point of the run"}
	if !blamed {
		return w
	}
	w.point = "one crash point of the run"
	last := w.zero
	for _, op := range rec.History.Operations {
		if slices.Contains(point, op.ID) {
			last = max(last, op.Sent, op.Answered)
		}
	}
	for _, op := range rec.History.Operations {
		if at := started(op); at > last && !slices.Contains(point, op.ID) && (w.limit == 0 || at < w.limit) {
			w.limit = at
		}
	}
	return w
}

// burstOf is the index of the burst to show.
func burstOf(rec harness.Record, bursts []harness.BurstReport, ids []string) int {
	among := setOf(ids)
	for _, op := range rec.History.Operations {
		if op.Burst != "" && among[op.ID] {
			if i := slices.IndexFunc(bursts, func(b harness.BurstReport) bool { return b.Name == op.Burst }); i >= 0 {
				return i
			}
		}
	}
	return 0
}

// started is when an operation was sent, or should have been.
func started(op harness.Operation) time.Duration {
	if op.Sent != 0 {
		return op.Sent
	}
	return op.Intended
}

// shows reports whether the operation belongs into the picture. Operations of
// a kind that prepared the first burst prepare the later ones as well.
func (w window) shows(op harness.Operation) bool {
	if op.Sent == 0 && op.Intended == 0 {
		return false
	}
	if w.point != "" {
		return w.holds(started(op))
	}
	if w.bursts == 0 || op.Burst == w.burst && op.Burst != "" {
		return true
	}
	return op.Burst == "" && !w.setup[op.Kind] && w.holds(started(op))
}

func (w window) showsCall(c harness.UpstreamCall) bool { return w.whole() || w.holds(c.Received) }

func (w window) showsUnit(u harness.Unit) bool { return w.whole() || w.holds(u.Arrived) }

func (w window) showsEvent(e harness.Event) bool {
	return e.Kind != harness.EventPhase && (w.whole() || w.holds(e.At))
}

// whole reports whether the window is the whole run.
func (w window) whole() bool { return w.bursts == 0 && w.point == "" }

func (w window) holds(at time.Duration) bool {
	return at >= w.zero && (w.limit == 0 || at < w.limit)
}

// x is the place of an instant, and width the length between two, in per cent.
func (w window) x(at time.Duration) string {
	at = max(w.from, min(at, w.to))
	return percent(float64(at-w.from), float64(w.to-w.from))
}

func (w window) width(from, to time.Duration) string {
	from, to = max(w.from, from), min(w.to, to)
	return percent(float64(max(0, to-from)), float64(w.to-w.from))
}

// caption says which part of the run is drawn.
func (w window) caption() string {
	switch {
	case w.point != "":
		return "µs since the first request of " + w.point + " was sent"
	case w.bursts == 0:
		return "µs since the first request was sent"
	case w.bursts == 1:
		return "µs since the burst's release"
	default:
		return fmt.Sprintf("µs since the release of burst %s, one of %d", w.burst, w.bursts)
	}
}

// others says what is outside of the window.
func (w window) others() string {
	if w.point != "" {
		return "preparation, other crash points"
	}
	return "preparation, other bursts"
}
