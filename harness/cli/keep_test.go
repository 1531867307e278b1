package cli

import (
	"fmt"
	"testing"

	"github.com/overbook/overbook/harness"
)

// What is kept is bounded by the operations in it, whatever the verdicts; the
// first record is always there.
func TestKeepingRecords(t *testing.T) {
	for _, tc := range []struct {
		verdict    harness.Status
		operations int
		want       int
	}{{harness.Pass, 10, keepRecords}, {harness.Failed, 10, 100}, {harness.Failed, 40_000, 5}, {harness.Pass, 40_000, 5}, {harness.Unknown, 2 * keepOperations, 1}} {
		c := campaign{records: map[string]harness.Record{}}
		for i := range 100 {
			c.keep(harness.Result{RunDir: fmt.Sprint(i), Verdict: tc.verdict}, harness.Record{History: harness.History{Operations: make([]harness.Operation, tc.operations)}})
		}
		if _, first := c.records["0"]; len(c.records) != tc.want || !first {
			t.Errorf("%v with %d operations each: %d kept, want %d", tc.verdict, tc.operations, len(c.records), tc.want)
		}
	}
}
