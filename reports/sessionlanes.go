package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// Bounds of what is drawn of the database for a counterexample: so much that
// the clients and upstream calls still find room below it.
const (
	hitSessions  = 12
	sessionUnits = 200 // of each session, the first ones
)

// A sessionLane is a connection to Postgres that an operation of the evidence used.
type sessionLane struct {
	number int
	server string
	units  []harness.Unit // of the evidence, and what else it executed meanwhile
}

// sessions draws a lane for each database session that the evidence's
// operations used: what was sent over it while one of them was under way.
func (s *sketch) sessions(rec harness.Record) {
	lanes, left := s.sessionLanes(rec), 0
	for i, l := range lanes {
		if i == hitSessions {
			s.Notes = append(s.Notes, fmt.Sprintf("%d more database sessions of the evidence are not drawn.", len(lanes)-i))
			break
		}
		s.Sessions = true
		s.Labels = append(s.Labels, laneLabel{Y: s.y + laneTall - 4, Text: shortened(oneLine(l.server), 10) + " session " + fmt.Sprint(l.number)})
		for _, t := range harness.Transactions(l.units[:min(len(l.units), sessionUnits)]) {
			s.transaction(t)
		}
		for _, u := range l.units[:min(len(l.units), sessionUnits)] {
			s.unit(u)
		}
		left += max(0, len(l.units)-sessionUnits)
		s.y += laneTall
	}
	if left > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d more statements of these database sessions are not drawn.", left))
	}
}

// sessionLanes gathers the sessions in the order in which the evidence's
// operations first used them.
func (s *sketch) sessionLanes(rec harness.Record) []sessionLane {
	var lanes []sessionLane
	from, to := s.to, s.from // while the evidence used the database
	for _, u := range rec.Postgres {
		if !s.hits[u.Op] || u.Op == "" || !s.showsUnit(u) {
			continue
		}
		from, to = min(from, u.Arrived), max(to, s.unitEnd(u))
		if !slices.ContainsFunc(lanes, func(l sessionLane) bool { return l.number == u.Session }) {
			lanes = append(lanes, sessionLane{number: u.Session, server: u.Server})
		}
	}
	for _, u := range rec.Postgres {
		i := slices.IndexFunc(lanes, func(l sessionLane) bool { return l.number == u.Session })
		if i >= 0 && u.Step() && s.showsUnit(u) && u.Arrived <= to && s.unitEnd(u) >= from {
			lanes[i].units = append(lanes[i].units, u)
		}
	}
	return lanes
}

// unitEnd is the last that is known of a unit. One that is still without an
// answer, although nothing ended it, lasts until the end of the picture.
func (s *sketch) unitEnd(u harness.Unit) time.Duration {
	if u.Answered == 0 && u.Err == "" && u.Fault == "" {
		return s.to
	}
	return max(u.Arrived, u.Forwarded, u.Answered)
}

// transaction underlines what ran in one transaction.
func (s *sketch) transaction(t harness.Transaction) {
	if t.Implicit || t.Op != "" && !s.hits[t.Op] {
		return
	}
	from, to := t.Units[0].Forwarded, t.Ended
	if to == 0 {
		to = s.to
	}
	if from == 0 || to < from {
		return
	}
	s.add(bar{
		X: s.x(from), W: s.width(from, to), Y: s.y + laneTall - 3, H: 1, Class: "tx",
		Title: fmt.Sprintf("transaction %d of %s session %d: %s; from %s to %s µs", t.Number, t.Server, t.Session, cmp.Or(t.Outcome, "open"),
			micros(from-s.zero), micros(to-s.zero)),
	})
}

// unit draws a unit from when it was given to Postgres until it was answered,
// and before that how long it was held.
func (s *sketch) unit(u harness.Unit) {
	title := s.unitTitle(u)
	if held := u.Forwarded - u.Arrived; u.Forwarded == 0 || held >= waitedLong {
		until := cmp.Or(u.Forwarded, u.Arrived)
		s.add(bar{X: s.x(u.Arrived), W: s.width(u.Arrived, until), Y: s.y + 3, H: laneTall - 9, Class: "db held", Title: title})
	}
	from := cmp.Or(u.Forwarded, u.Arrived)
	b := bar{X: s.x(from), W: s.width(from, s.unitEnd(u)), Y: s.y + 1, H: laneTall - 5, Class: "db", Title: title}
	failed := slices.ContainsFunc(u.Statements, func(st harness.Statement) bool { return st.Code != "" })
	switch {
	case u.Fault != "":
		b.Class, b.Sign, b.SignX = "db struck", "✕", s.x(s.unitEnd(u))
	case failed || u.Err != "":
		b.Class, b.Sign, b.SignX = "db broken", "!", s.x(s.unitEnd(u))
	case !s.hits[u.Op]:
		b.Class = "db other"
	}
	s.add(b)
}

func (s *sketch) unitTitle(u harness.Unit) string {
	sql := make([]string, 0, len(u.Statements))
	for _, st := range u.Statements {
		sql = append(sql, shortened(oneLine(st.SQL), 200))
	}
	text := fmt.Sprintf("%s → %s; %s session %d, op %s", shortened(strings.Join(sql, "; "), 400), unitOutcome(u), u.Server, u.Session, cmp.Or(u.Op, "unknown"))
	if u.Fault != "" {
		text += "; fault: " + faultText(oneLine(u.Fault))
	}
	if u.Forwarded == 0 {
		return text + "; here at " + micros(u.Arrived-s.zero) + " µs"
	}
	if held := u.Forwarded - u.Arrived; held >= waitedLong {
		text += "; held for " + screen(span(held))
	}
	text += "; given to Postgres at " + micros(u.Forwarded-s.zero)
	switch {
	case u.Answered == 0:
		text += ", no answer"
	case u.Delivered == 0:
		text += ", answered at " + micros(u.Answered-s.zero) + ", the answer never reached the server"
	default:
		text += ", answered at " + micros(u.Answered-s.zero)
	}
	return text + " µs"
}
