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

// clients draws a lane for each client: those of the counterexample first,
// then in the order of their last answer. It gives the number of operations
// outside of the window.
func (s *sketch) clients(rec harness.Record) (outside int) {
	lanes, outside := s.lanes(rec)
	if len(lanes) == 0 {
		return outside
	}
	height := laneTall
	if len(lanes) > laneFew {
		height = laneShort
	}
	s.head(fmt.Sprintf("clients (%d)", len(lanes)))
	top := s.y
	for i, l := range lanes {
		h := height
		if l.hit {
			h = laneTall
		}
		label := laneLabel{Y: s.y + h - 2, Text: fmt.Sprint(l.process)}
		if l.hit {
			label.Class, label.Text = "hit", fmt.Sprintf("▶ client %d", l.process)
		}
		if l.hit || h == laneTall || i%5 == 0 {
			s.Labels = append(s.Labels, label)
		}
		for _, op := range l.ops {
			s.add(s.operationBar(op, h))
		}
		s.y += h
		if i+1 < len(lanes) && l.hit && !lanes[i+1].hit {
			s.y += laneGap / 2
		}
	}
	s.Bands = append(s.Bands, laneBand{top - 2, s.y - top + 3})
	return outside
}

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
		if a.hit != b.hit {
			if a.hit {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.process, b.process))
	})
	return lanes, outside
}

func (s *sketch) operationBar(op harness.Operation, height int) bar {
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
	b := bar{X: s.x(from), W: s.width(from, end), Y: s.y, H: height - 2, Class: "info"}
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
