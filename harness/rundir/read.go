package rundir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// maxLine bounds one line of the .jsonl files when reading.
const maxLine = 64 << 20

// Read reads a stored run. An incomplete directory is an error that names
// each file that is missing, cut or without what no whole run lacks: a run
// that was not read whole must not be judged.
func Read(dir string) (harness.Record, harness.Result, error) {
	rec, res := harness.Record{Rows: map[string]harness.Rows{}}, harness.Result{}
	lines := map[string]int{}
	err := errors.Join(
		readPlan(dir, &rec.Plan),
		readResult(dir, &res),
		readLines(dir, "history.jsonl", lines, func(l line) error { return l.addTo(&rec.History) }),
		readLines(dir, "upstream.jsonl", lines, func(c harness.UpstreamCall) error {
			rec.Upstream = append(rec.Upstream, c)
			return nil
		}),
		readLines(dir, "rows.jsonl", lines, func(r harness.Rows) error {
			if _, twice := rec.Rows[r.Query]; r.Query == "" || twice {
				return fmt.Errorf("rows of the query %q: no name, or a second time", r.Query)
			}
			rec.Rows[r.Query] = r
			return nil
		}),
		readLines(dir, "activity.jsonl", lines, func(s harness.ActivitySample) error {
			rec.Activity = append(rec.Activity, s)
			return nil
		}),
	)
	var f facts
	if factsErr := readJSON(dir, "record.json", &f); factsErr != nil {
		err = errors.Join(err, factsErr)
	} else {
		if _, wire := f.Lines["postgres.jsonl"]; wire {
			rec.Postgres = []harness.Unit{}
			err = errors.Join(err, readLines(dir, "postgres.jsonl", lines, func(u harness.Unit) error {
				rec.Postgres = append(rec.Postgres, u)
				return nil
			}))
		}
		err = errors.Join(err, compareLines(lines, f.Lines))
	}
	rec.Counts, rec.Witness, rec.Measured, rec.Trouble = f.Counts, f.Witness, f.Measured, f.Trouble
	if err != nil {
		return rec, res, fmt.Errorf("read run %s: %w", dir, err)
	}
	return rec, res, nil
}

func readPlan(dir string, p *harness.Plan) error {
	if err := readJSON(dir, "plan.json", p); err != nil {
		return err
	}
	if p.SchemaVersion != 1 || p.Scenario == "" {
		return fmt.Errorf("plan.json: schema version %d of scenario %q, want version 1 of a named one", p.SchemaVersion, p.Scenario)
	}
	var choices bytes.Buffer // as they were before the file was indented
	if err := json.Compact(&choices, p.Choices); err != nil {
		return fmt.Errorf("plan.json: choices: %w", err)
	}
	p.Choices = choices.Bytes()
	return nil
}

func readResult(dir string, r *harness.Result) error {
	if err := readJSON(dir, "result.json", r); err != nil {
		return err
	}
	if r.Verdict == 0 || slices.ContainsFunc(r.Checks, func(v harness.Verdict) bool { return v.Status == 0 }) {
		return errors.New("result.json: a verdict is missing")
	}
	return nil
}

// addTo puts the line where it belongs.
func (l line) addTo(h *harness.History) error {
	switch {
	case l.Op != nil && l.Op.Outcome == 0:
		return fmt.Errorf("operation %s has no outcome", l.Op.ID)
	case l.Op != nil:
		h.Operations = append(h.Operations, *l.Op)
	case l.Event != nil:
		h.Events = append(h.Events, *l.Event)
	case l.Burst != nil:
		h.Bursts = append(h.Bursts, *l.Burst)
	case l.Load != nil:
		h.Loads = append(h.Loads, *l.Load)
	default:
		return errors.New("neither an operation nor an event nor a burst nor an open loop")
	}
	return nil
}

// compareLines notices files that were cut between two lines.
func compareLines(got, want map[string]int) error {
	var errs []error
	for _, name := range []string{"history.jsonl", "upstream.jsonl", "rows.jsonl", "activity.jsonl", "postgres.jsonl"} {
		n, read := got[name]
		w, ok := want[name]
		if !ok && name == "postgres.jsonl" {
			continue // the Postgres wire was not in the path
		}
		if !ok {
			errs = append(errs, fmt.Errorf("record.json: does not say how many lines %s has", name))
		} else if read && n != w { // a file that can not be read is an error of its own
			errs = append(errs, fmt.Errorf("%s: %d lines, %d were written", name, n, w))
		}
	}
	return errors.Join(errs...)
}

func readJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readLines reads one document a line and notes how many there were, once the
// whole file was read.
func readLines[T any](dir, name string, lines map[string]int, add func(T) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(make([]byte, 0, 1<<16), maxLine)
	documents := 0
	for n := 1; s.Scan(); n++ {
		if strings.TrimSpace(s.Text()) == "" {
			continue
		}
		var v T
		err := json.Unmarshal(s.Bytes(), &v)
		if err == nil {
			err = add(v)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		documents++
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lines[name] = documents
	return nil
}
