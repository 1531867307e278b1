package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/overbook/overbook/harness"
)

// The exit codes. Each command's help ends with them.
const (
	ExitPass        = 0
	ExitViolation   = 1
	ExitUnknown     = 2
	ExitRegression  = 3
	ExitUsage       = 4
	ExitEnvironment = 5
	ExitBug         = 70
	ExitInterrupted = 130
)

const exitHelp = `
Exit codes:
  0    every check passed
  1    a violation was found (always wins)
  2    nothing failed, but something is UNKNOWN (--strict: 1, --allow-unknown: 0)
  3    a threshold or baseline regressed, safety held
  4    usage or configuration error, nothing was run
  5    environment: a database, WireMock, a port or the server is not ready, or died
  70   a bug in Overbook
  130  interrupted`

// codedError is an error with the exit code that it ends the program with.
type codedError struct {
	code int
	hint string
	err  error // nil: everything has been said
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func usage(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &codedError{ExitUsage, hint, err}
}

func environment(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &codedError{ExitEnvironment, hint, err}
}

// ended is the silent end of a command whose output says it all.
func ended(code int) error {
	if code == ExitPass {
		return nil
	}
	return &codedError{code: code}
}

// report prints an error and gives the exit code. Cobra's own errors are
// about usage. What an interruption cut short is no fault of the environment.
func report(w io.Writer, err error, interrupted bool) int {
	if err == nil {
		return ExitPass
	}
	var coded *codedError
	var file *fs.PathError
	switch {
	case errors.As(err, &coded):
	case errors.As(err, &file): // standard output can't be written
		coded = &codedError{ExitEnvironment, "", err}
	default:
		coded = &codedError{ExitUsage, "overbook --help shows what there is", err}
	}
	if interrupted && coded.code == ExitEnvironment {
		coded = &codedError{ExitInterrupted, "", coded.err}
	}
	if coded.err != nil {
		fmt.Fprintf(w, "error: %s\n", strings.TrimRight(err.Error(), "\n"))
		if coded.hint != "" {
			fmt.Fprintf(w, "hint: %s\n", coded.hint)
		}
	}
	return coded.code
}

// codeOf gives the exit code of a suite. A violation always wins; then comes
// the interruption, then a broken environment, then any other Unknown.
func codeOf(s harness.Suite, interrupted, strict, allowUnknown bool) int {
	unknown, broken, failed := false, false, false
	for _, r := range s.Scenarios {
		switch r.Verdict {
		case harness.Failed:
			failed = true
		case harness.Unknown:
			unknown = true
			broken = broken || r.Reason == harness.ReasonEnvironment
		case harness.Pass:
		default:
			return ExitBug // an undecided result must never look like a pass
		}
	}
	switch {
	case failed:
		return ExitViolation
	case interrupted:
		return ExitInterrupted
	case broken:
		return ExitEnvironment
	case unknown && strict:
		return ExitViolation
	case unknown && allowUnknown:
		return ExitPass
	case unknown || len(s.Scenarios) == 0 || len(s.Skipped) > 0:
		return ExitUnknown
	}
	return ExitPass
}
