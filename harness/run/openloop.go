package run

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness"
)

// Load is of [harness.Env].
func (e *env) Load(ctx context.Context, l harness.OpenLoop) (harness.OpenLoopReport, []harness.Operation, error) {
	if err := l.Validate(); err != nil {
		panic(fmt.Sprintf("scenario %s: %v", e.s.scenario.Name, err))
	}
	report, ops, err := e.s.client.OpenLoop(ctx, l, func(r *harness.Request) (string, func(context.Context, harness.Operation)) {
		url := e.s.target(r)
		if url == "" {
			return "", nil
		}
		return url, e.s.responseFault(*r)
	})
	e.s.rec.load(report)
	e.s.rec.operations(ops...)
	e.Record(harness.Event{
		At: report.Started, Until: report.Ended, Kind: harness.EventNote, Subject: report.Name,
		Text: fmt.Sprintf("open loop: %d of %d clients came, at most %d at once", report.Arrived, report.Planned, report.MaxPresent),
	})
	if err != nil {
		return report, ops, fmt.Errorf("open loop %s: %w", l.Name, err)
	}
	return report, ops, nil
}
