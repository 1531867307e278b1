package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// TimelineBars is the most bars that the timeline of one scenario draws. More
// make a browser slow and can't be told apart; the page says what is left out.
const TimelineBars = 10_000

// A timelineView is the swim-lane picture, in real time: faults, upstream
// calls by replica, the clients' operations, and the database sessions that the
// evidence used.
type timelineView struct {
	Caption string
	Notes   []string
	Height  int
	Bottom  int // where the axis is
	Labels  []laneLabel
	Bands   []laneBand
	Ticks   []tick
	Bars    []bar
	Markers []marker
	Zero    string

	Sessions bool // lanes of database sessions are among them
}

type laneLabel struct {
	Y     int // base line
	Text  string
	Class string // "head", "hit" or ""
}

type laneBand struct{ Y, H int }

type bar struct {
	X, W  string
	Y, H  int
	Class string // outcome: ok, fail, info; up for upstream calls; db for statements, tx; hit when named in the evidence
	Title string
	Mark  string // place of the upstream's answer, "" for none
	Sign  string // of a fault or an error, "" for none
	SignX string
}

type marker struct {
	X, Class, Label, Anchor, Title string
	Y                              int
}

// Heights of lanes, in pixels.
const (
	laneTall   = 14 // of few
	laneShort  = 6  // of many
	laneFew    = 40
	laneGap    = 14
	laneHead   = 18
	axisHeight = 16
	markerRows = 24 // markers with a label
)

// A sketch is a timeline that is being drawn, from the top down.
type sketch struct {
	timelineView
	window
	hits map[string]bool
	y    int
	left int // bars that weren't drawn
}

// timelineOf draws the picture, or gives nil when there is nothing to draw.
func timelineOf(r harness.Result, rec harness.Record) *timelineView {
	ids := badOps(r)
	s := sketch{window: windowOf(r, rec), hits: map[string]bool{}}
	for _, id := range ids {
		s.hits[id] = true
	}
	s.Caption, s.y = s.caption(), axisHeight
	lanes, outside := s.lanes(rec)
	s.markers(rec)
	s.counterexample(rec, lanes)
	s.upstream(rec)
	s.clients(lanes)
	if len(s.Bars)+len(s.Markers) == 0 {
		return nil
	}
	s.Bottom = s.y + 4
	s.Height = s.Bottom + 24
	s.Zero = s.x(s.zero)
	s.Ticks = timeTicks(s.from-s.zero, s.to-s.zero)
	if s.left > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d bars are not drawn: the picture is capped at %d.", s.left, TimelineBars))
	}
	if outside > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d operations are outside of this window (%s) and not drawn.", outside, s.others()))
	}
	return &s.timelineView
}

func (s *sketch) head(text string) {
	s.y += laneHead
	s.Labels = append(s.Labels, laneLabel{Y: s.y - 5, Text: text, Class: "head"})
}

func (s *sketch) add(b bar) {
	if len(s.Bars) >= TimelineBars {
		s.left++
		return
	}
	s.Bars = append(s.Bars, b)
}

// markers draws faults, processes' ends and notes as lines across all lanes.
func (s *sketch) markers(rec harness.Record) {
	var events []harness.Event
	for _, e := range rec.History.Events {
		if s.showsEvent(e) && e.Kind != harness.EventBurst && e.At >= s.from && e.At <= s.to {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return
	}
	slices.SortStableFunc(events, func(a, b harness.Event) int { return cmp.Compare(a.At, b.At) })
	s.head("events")
	for i, e := range events {
		m := marker{X: s.x(e.At), Class: string(e.Kind), Anchor: "start", Y: s.y + 10}
		if e.At-s.from > (s.to-s.from)*6/10 {
			m.Anchor = "end"
		}
		text := eventText(e)
		m.Title = fmt.Sprintf("%s %s: %s, %s µs", e.Kind, e.Subject, text, micros(e.At-s.zero))
		if i < markerRows {
			m.Label = shortened(text, 60)
			s.y += 13
		}
		s.Markers = append(s.Markers, m)
		if e.Until > e.At {
			s.add(bar{X: s.x(e.At), W: s.width(e.At, e.Until), Y: m.Y - 8, H: 10, Class: "event", Title: m.Title})
		}
	}
	s.y += laneGap
}

// eventText is what an event's marker says.
func eventText(e harness.Event) string {
	text := oneLine(e.Text)
	if _, err := harness.ParseFault(text); err == nil && e.Kind == harness.EventHeal {
		return "healed: " + faultText(text)
	}
	return cmp.Or(faultText(text), string(e.Kind))
}

// upstream draws the calls of each replica, each in the first row that is free.
func (s *sketch) upstream(rec harness.Record) {
	byCaller := map[string][]harness.UpstreamCall{}
	for _, c := range rec.Upstream {
		if s.showsCall(c) {
			lane := c.Upstream + " ← " + c.Caller
			byCaller[lane] = append(byCaller[lane], c)
		}
	}
	for _, lane := range slices.Sorted(maps.Keys(byCaller)) {
		calls := byCaller[lane]
		slices.SortStableFunc(calls, func(a, b harness.UpstreamCall) int { return cmp.Compare(a.Received, b.Received) })
		s.head(fmt.Sprintf("%s (%d)", lane, len(calls)))
		rows, count := s.packed(calls)
		height := laneTall
		if count > laneFew/4 {
			height = laneShort
		}
		for i, c := range calls {
			s.add(s.callBar(c, s.y+rows[i]*height, height-2))
		}
		s.Bands = append(s.Bands, laneBand{s.y - 2, count*height + 2})
		s.y += count*height + laneGap
	}
}

// packed gives each call the first row that is free when it begins.
func (s *sketch) packed(calls []harness.UpstreamCall) (rows []int, count int) {
	var free []time.Duration // when each row is free again
	for _, c := range calls {
		row := slices.IndexFunc(free, func(at time.Duration) bool { return at <= c.Received })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = s.callEnd(c)
		rows = append(rows, row)
	}
	return rows, len(free)
}

// callEnd is the last that was seen of a call; one without an answer is open.
func (s *sketch) callEnd(c harness.UpstreamCall) time.Duration {
	if c.Answered == 0 && c.Accepted == 0 {
		return s.to
	}
	return max(c.Received, c.Accepted, c.Answered)
}

func (s *sketch) callBar(c harness.UpstreamCall, y, height int) bar {
	b := bar{X: s.x(c.Received), W: s.width(c.Received, s.callEnd(c)), Y: y, H: height, Class: "up"}
	if c.Answered == 0 {
		b.Class = "up lost"
	}
	if s.hits[c.Op] {
		b.Class += " hit"
	}
	answer := "no answer"
	if c.Accepted != 0 {
		b.Mark = s.x(c.Accepted)
		answer = fmt.Sprintf("answered %d at %s", c.Status, micros(c.Accepted-s.zero))
	}
	passed := "not passed on"
	if c.Answered != 0 {
		passed = "passed on at " + micros(c.Answered-s.zero)
	}
	b.Title = fmt.Sprintf("call %d %s %s by %s for op %s: received at %s, %s, %s µs", c.Seq, c.Method, c.Path, c.Caller,
		cmp.Or(c.Op, "unknown"), micros(c.Received-s.zero), answer, passed)
	if c.Fault != "" {
		b.Title += "; fault: " + c.Fault
	}
	if c.Err != "" {
		b.Title += "; " + c.Err
	}
	return b
}
