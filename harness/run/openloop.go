package run

import (
	"context"
	"errors"

	"github.com/overbook/overbook/harness"
)

// Load is of [harness.Env].
func (e *env) Load(context.Context, harness.OpenLoop) (harness.OpenLoopReport, []harness.Operation, error) {
	return harness.OpenLoopReport{}, nil, errors.New("open loops can't be run yet")
}
