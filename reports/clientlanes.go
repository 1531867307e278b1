package reports

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// A clientLane is the operations of one client.
type clientLane struct {
	process int
	ops     []harness.Operation
	hit     bool // named in the evidence
	end     time.Duration
}

// hitLanes bounds the clients that are drawn apart as a counterexample.
const hitLanes = 12

// clientLanes bounds the clients that are drawn: of a large load a sample.
const clientLanes = 300

// counterexample draws the clients that the evidence names, each with the
// upstream calls of its operations below it, and then the database sessions that
// they used.
func (s *sketch) counterexample(rec harness.Record, lanes []clientLane) {
	top, drawn := 0, 0
	for _, l := range lanes {
		if !l.hit || drawn == hitLanes {
			continue
		}
		if drawn++; drawn == 1 {
			s.head("evidence")
			top = s.y
		}
		s.Labels = append(s.Labels, laneLabel{Y: s.y + laneTall - 3, Text: fmt.Sprintf("▶ client %d", l.process), Class: "hit"})
		for _, op := range l.ops {
			s.add(s.operationBar(op, s.y, laneTall-2))
		}
		s.y += laneTall
		for _, c := range rec.Upstream {
			if s.showsCall(c) && l.sent(c.Op) {
				s.Labels = append(s.Labels, laneLabel{Y: s.y + laneTall - 5, Text: shortened(c.Upstream, 16)})
				s.add(s.callBar(c, s.y+1, laneTall-5))
				s.y += laneTall
			}
		}
		s.y += 3
	}
	if drawn > 0 {
		s.sessions(rec)
		s.Bands = append(s.Bands, laneBand{top - 2, s.y - top + 1})
		s.y += laneGap
	}
}

// sent reports whether the operation is one of the client's.
func (l clientLane) sent(op string) bool {
	return op != "" && slices.ContainsFunc(l.ops, func(o harness.Operation) bool { return o.ID == op })
}

// clients draws a lane for each client in the order of their last answers.
func (s *sketch) clients(lanes []clientLane) {
	if len(lanes) == 0 {
		return
	}
	height, every := laneTall, 1
	if len(lanes) > laneFew {
		height, every = laneShort, 5
	}
	all := len(lanes)
	if lanes = sampled(lanes, clientLanes); len(lanes) == all {
		s.head(fmt.Sprintf("clients (%d)", all))
	} else {
		s.head(fmt.Sprintf("clients (%d of %d)", len(lanes), all))
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d clients are drawn: those that the evidence names first, and an even sample of the others in the order of their last answers.", len(lanes), all))
	}
	top := s.y
	for i, l := range lanes {
		if l.hit {
			s.Labels = append(s.Labels, laneLabel{Y: s.y + height, Text: fmt.Sprintf("▶ %d", l.process), Class: "hit"})
		} else if i%every == 0 && (every == 1 || !hitNear(lanes, i)) {
			s.Labels = append(s.Labels, laneLabel{Y: s.y + height - 1, Text: fmt.Sprint(l.process)})
		}
		for _, op := range l.ops {
			s.add(s.operationBar(op, s.y, height-2))
		}
		s.y += height
	}
	s.Bands = append(s.Bands, laneBand{top - 2, s.y - top + 2})
}

// sampled gives at most so many lanes in their order, evenly spread; lanes that
// are named in the evidence come before the others.
func sampled(lanes []clientLane, most int) []clientLane {
	if len(lanes) <= most {
		return lanes
	}
	hits := 0
	for _, l := range lanes {
		if l.hit {
			hits++
		}
	}
	room := map[bool]int{true: min(hits, most), false: most - min(hits, most)}
	size := map[bool]int{true: hits, false: len(lanes) - hits}
	kept, met := make([]clientLane, 0, most), map[bool]int{}
	for _, l := range lanes {
		i := met[l.hit]
		met[l.hit]++
		if (i+1)*room[l.hit]/size[l.hit] > i*room[l.hit]/size[l.hit] { // one more is due at this place
			kept = append(kept, l)
		}
	}
	return kept
}

// hitNear reports whether the label of a highlighted lane would touch that of lane i.
func hitNear(lanes []clientLane, i int) bool {
	return slices.ContainsFunc(lanes[max(0, i-1):min(len(lanes), i+2)], func(l clientLane) bool { return l.hit })
}

// lanes sorts the operations by client: in the order of
// their last answers. It counts what is outside of the window.
func (s *sketch) lanes(rec harness.Record) (lanes []clientLane, outside int) {
	index := map[int]int{}
	for _, op := range rec.History.Operations {
		if !s.shows(op) {
			outside++
			continue
		}
		i, ok := index[op.Process]
		if !ok {
			i = len(lanes)
			index[op.Process] = i
			lanes = append(lanes, clientLane{process: op.Process})
		}
		lanes[i].ops = append(lanes[i].ops, op)
		lanes[i].hit = lanes[i].hit || s.hits[op.ID]
		end := op.Answered
		if end == 0 {
			end = s.to
		}
		lanes[i].end = max(lanes[i].end, end)
	}
	slices.SortStableFunc(lanes, func(a, b clientLane) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.process, b.process))
	})
	return lanes, outside
}

func (s *sketch) operationBar(op harness.Operation, y, height int) bar {
	end, until := op.Answered, "no whole answer"
	if end == 0 {
		end = s.to
	} else {
		until = "answered at " + micros(op.Answered-s.zero)
	}
	from := started(op)
	sent := "sent at " + micros(from-s.zero)
	if op.Sent == 0 {
		sent, end = "not sent", from
	}
	b := bar{X: s.x(from), W: s.width(from, end), Y: y, H: height, Class: "info"}
	switch op.Outcome {
	case harness.OK:
		b.Class = "ok"
	case harness.Fail:
		b.Class = "fail"
	case harness.Info:
	}
	if s.hits[op.ID] {
		b.Class += " hit"
	}
	b.Title = fmt.Sprintf("op %s client %d %s %s %s → %s, outcome %s; %s, %s µs", op.ID, op.Process, op.Kind, op.Method, op.Path,
		answerShort(op), op.Outcome, sent, until)
	return b
}

// answerShort is the answer for a tooltip.
func answerShort(op harness.Operation) string { return shortened(answerText(op), 60) }
