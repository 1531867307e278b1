package library

import (
	"testing"

	"github.com/overbook/overbook/harness"
)

func TestRolledBack(t *testing.T) {
	c := rolledBack("x", "doc", map[string]int{"reserving": 1, "terminal": 0})
	if v := c.Judge(harness.Record{}); v.Status != harness.Unknown {
		t.Errorf("nobody looked: %s %s", v.Status, v.Summary)
	}
	note := map[string]string{"reserving": "1", "terminal": "0"}
	rec := harness.Record{History: harness.History{Events: []harness.Event{{Kind: harness.EventNote, Subject: leftSubject, Attrs: note}}}}
	if v := c.Judge(rec); v.Status != harness.Pass {
		t.Errorf("as it should be: %s %s", v.Status, v.Summary)
	}
	note["terminal"] = "1"
	if v := c.Judge(rec); v.Status != harness.Failed || len(v.Evidence) != 1 {
		t.Errorf("a part was committed by itself: %s %s", v.Status, v.Summary)
	}
}
