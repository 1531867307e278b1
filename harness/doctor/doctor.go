package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Check is one question about the machine.
type Check struct {
	Name string // "PostgreSQL"

	// Run answers: detail is what was found, err what is wrong.
	Run func(ctx context.Context) (detail string, err error)

	// Fix puts it right and tells of its progress; nil when only a person can.
	Fix func(ctx context.Context, progress func(string)) error

	FixText  string // what to do, for a person: a command where there is one
	Optional bool   // Overbook does its main job without it
}

// A State is the answer of a check.
type State string

// The states of a finding.
const (
	Fine    State = "ok"
	Warning State = "warning" // an optional part is missing or not usable
	Missing State = "missing" // a needed part is missing or not usable
	Skipped State = "skipped" // not looked at: interrupted
)

// A Finding is a check with its answer.
type Finding struct {
	Check  Check
	State  State
	Detail string // one line: what was found, or what is wrong
	Err    error
	Fixed  bool // by Repair
}

const checkTimeout = 30 * time.Second // of one check; none of them waits for anything slow

// Diagnose runs the checks in their order, one after the other, and changes
// nothing. There is a finding for every check.
func Diagnose(ctx context.Context, checks []Check) []Finding {
	findings := make([]Finding, 0, len(checks))
	for _, c := range checks {
		findings = append(findings, examine(ctx, c))
	}
	return findings
}

func examine(ctx context.Context, c Check) Finding {
	if err := context.Cause(ctx); err != nil {
		return Finding{Check: c, State: Skipped, Detail: "not looked at", Err: err}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s", checkTimeout))
	defer cancel()
	detail, err := c.Run(bounded)
	switch {
	case err == nil:
		return Finding{Check: c, State: Fine, Detail: detail}
	case c.Optional:
		return Finding{Check: c, State: Warning, Detail: err.Error(), Err: err}
	}
	return Finding{Check: c, State: Missing, Detail: err.Error(), Err: err}
}

// Repair runs the fixes of the findings that are not fine, in their order,
// optional ones too, and looks again. The error joins what could not be fixed
// among the needed ones.
func Repair(ctx context.Context, findings []Finding, progress func(string)) ([]Finding, error) {
	repaired := make([]Finding, 0, len(findings))
	var errs []error
	for _, f := range findings {
		f = repair(ctx, f, progress)
		if f.State != Fine && !f.Check.Optional {
			errs = append(errs, fmt.Errorf("%s: %w", f.Check.Name, f.Err))
		}
		repaired = append(repaired, f)
	}
	return repaired, errors.Join(errs...)
}

func repair(ctx context.Context, f Finding, progress func(string)) Finding {
	// An earlier fix may have put this one right as well.
	if f.State != Fine {
		f = examine(ctx, f.Check)
	}
	if f.State == Fine || f.State == Skipped || f.Check.Fix == nil {
		return f
	}
	if err := f.Check.Fix(ctx, progress); err != nil {
		f.Err, f.Detail = err, err.Error()
		return f
	}
	again := examine(ctx, f.Check)
	again.Fixed = again.State == Fine
	return again
}

// Healthy reports whether nothing needed is missing. Skipped counts as missing.
func Healthy(findings []Finding) bool {
	for _, f := range findings {
		if f.State == Missing || f.State == Skipped {
			return false
		}
	}
	return true
}
