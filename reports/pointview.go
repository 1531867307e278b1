package reports

import (
	"fmt"

	"github.com/overbook/overbook/harness"
)

// A pointsView is one enumeration of crash points in the page: what went wrong
// lies open, the rest is folded away.
type pointsView struct {
	Line  string
	Bad   bool // some went wrong
	Wrong *pointTableView
	Rest  *pointTableView
	More  string // summary of the rest
}

// A pointTableView is some of the points. The column of verdicts is there when
// it has something to say.
type pointTableView struct {
	Marked bool
	Rows   []pointRow
	Note   string // what was left out
}

func pointViews(r harness.Result, rec harness.Record) []pointsView {
	list := enumerationsOf(r, rec)
	views := make([]pointsView, 0, len(list))
	for _, n := range list {
		v := pointsView{Line: n.line(), Bad: n.Wrong > 0, Wrong: pointTableOf(n.Rows[:n.Wrong]), Rest: pointTableOf(n.Rows[n.Wrong:])}
		v.More = fmt.Sprintf("All %d points, in order", len(n.Rows))
		if v.Bad {
			v.More = fmt.Sprintf("The other points, in order (%d)", len(n.Rows)-n.Wrong)
		}
		views = append(views, v)
	}
	return views
}

// pointTableOf is a table of points, or nil without any.
func pointTableOf(rows []pointRow) *pointTableView {
	if len(rows) == 0 {
		return nil
	}
	t := &pointTableView{Marked: rows[0].Mark != "", Rows: rows}
	if left := len(rows) - pointsShown; left > 0 {
		t.Rows, t.Note = rows[:pointsShown], fmt.Sprintf("%d more points are in the run directory", left)
	}
	return t
}
