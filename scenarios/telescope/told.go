package telescope

import (
	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// bookedOrNot are the words to a booking when no quota is in the way.
var bookedOrNot = []string{"201", "409 slot-taken", "409 slot-closed"}

// toldAmong: each type of write is answered with one of its words, in the
// words of [word], where how many of which is chance. Types that are not named
// are not judged, nor is an answer that did not come. In an environment that
// broke, 500 and above is no violation.
func toldAmong(id, doc string, allowed map[string][]string) harness.Check {
	return answers.Among(answers.AmongRule{ID: id, Doc: doc, Rule: where + "/told.go", Group: operationType, Allowed: allowed})
}

// done counts the operations of a kind that were answered with the status.
func done(ops []harness.Operation, kind string, status int) int {
	n := 0
	for _, op := range ops {
		if op.Kind == kind && op.Status == status {
			n++
		}
	}
	return n
}

// onceStruck judges only a record in which so many faults took place: a server
// that writes its statements otherwise than a fault's match expects is not
// disturbed, and what it then tells everybody is right.
func onceStruck(n int, c harness.Check) harness.Check {
	judge := c.Judge
	c.Judge = func(rec harness.Record) harness.Verdict {
		struck := 0
		for _, e := range rec.History.Events {
			if e.Kind == harness.EventFault {
				struck++
			}
		}
		if struck < n {
			return harness.Undecided(harness.ReasonVacuous, "%d of %d faults took place", struck, n)
		}
		return judge(rec)
	}
	return c
}
