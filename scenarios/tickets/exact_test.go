package tickets

import (
	"encoding/json"
	"testing"

	"github.com/overbook/overbook/harness"
)

func TestDecidedExactly(t *testing.T) {
	judge := decidedExactly().Judge
	order := func(part, decided string) harness.Record {
		rec := recordOf()
		putOrder(rec, 1, [3]string{"CONFIRMED", "", "CAPTURED"}, 4500.0)
		rec.Rows["table:charges"].Rows[0]["resolved_at"] = decided
		plan, err := json.Marshal(cast{Parts: []string{part}})
		if err != nil {
			t.Fatal(err)
		}
		rec.Plan.Choices = plan
		return rec
	}
	const end = "2031-01-01T00:08:00"
	expectVerdict(t, judge(order("at-the-end", end+"+00:00")), harness.Pass, "1 captures")
	expectVerdict(t, judge(order("tick-after", end+".001+00:00")), harness.Pass, "1 captures")
	expectVerdict(t, judge(order("tick-before", "2031-01-01T00:07:59.999+00:00")), harness.Pass, "1 captures")
	expectVerdict(t, judge(order("at-the-end", end+".000001+00:00")), harness.Unknown, "1µs from the end of its hold, not 0s")
	none := order("at-the-end", end+"+00:00")
	none.Rows["table:charges"].Rows[0]["resolved_at"] = nil
	expectVerdict(t, judge(none), harness.Unknown, "0 of 1")
	expectVerdict(t, judge(without(order("at-the-end", end+"+00:00"), "table:holds")), harness.Unknown, "holds could not be read")
}
