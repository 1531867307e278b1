// Package rundir owns the layout of a run directory: it writes a record and
// its result, and reads them back, so that check, report, replay and compare
// work on stored runs.
//
//	runs/<scenario>/<time>-<seed>/
//	  plan.json       every choice of the run
//	  history.jsonl   operations, events, bursts and open loops, one JSON document a line
//	  upstream.jsonl  the ledger
//	  postgres.jsonl  what went over the Postgres wire, where there was one
//	  rows.jsonl      named queries and their rows, read after settling
//	  activity.jsonl  samples of database sessions
//	  record.json     counts, witnesses, measurements, trouble
//	  latency.hdr     response times by kind (HdrHistogram V2, compressed, base64)
//	  result.json     what was judged
//	  logs/           of every process
//	  REPLAY          the exact command
//
// A directory is written under a temporary name and renamed; the link
// `latest` beside it is moved last. It must not judge or render anything.
package rundir

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/overbook/overbook/harness"
)

// A Dir is a run directory that is being written.
type Dir struct {
	final, temp string
}

// Create starts a run directory below root. Logs can be written into
// [Dir.Logs] at once; the directory gets its name in [Dir.Commit].
func Create(root, scenario string, started time.Time, seed harness.Seed) (*Dir, error) {
	if !filepath.IsLocal(filepath.FromSlash(scenario)) {
		return nil, fmt.Errorf("create run directory: the scenario's name %q leads out of %s", scenario, root)
	}
	parent := filepath.Join(root, filepath.FromSlash(scenario))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w (choose another place with --out)", err)
	}
	base := started.UTC().Format("20060102T150405.000") + "-" + seed.String()
	sweep(parent)
	temp, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-%s-", writing, os.Getpid(), base))
	if err == nil {
		err = os.Chmod(temp, 0o755) // for others to read, as files made here are
	}
	if err != nil {
		return nil, fmt.Errorf("create run directory: %w (choose another place with --out)", err)
	}
	d := &Dir{final: filepath.Join(parent, base), temp: temp}
	if err := os.Mkdir(d.Logs(), 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("create run directory: %w", err), d.Discard())
	}
	return d, nil
}

// writing begins the names of directories that have no name of their own yet;
// the process that writes follows.
const writing = ".writing-"

// sweep removes what processes that are dead left half written. It is best
// effort: a directory that can't be removed is in nobody's way.
func sweep(parent string) {
	left, err := filepath.Glob(filepath.Join(parent, writing+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), writing), "-")
		n, err := strconv.Atoi(pid)
		if err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
}

// Logs is the folder for the processes' logs.
func (d *Dir) Logs() string { return filepath.Join(d.temp, "logs") }

// Final is the name that the directory will have.
func (d *Dir) Final() string { return d.final }

// Discard removes a directory that was never committed.
func (d *Dir) Discard() error { return os.RemoveAll(d.temp) }

// Commit writes everything, renames the directory and moves `latest`.
// extra holds further files by name, such as latency.hdr and REPLAY.
func (d *Dir) Commit(rec harness.Record, res harness.Result, extra map[string][]byte) error {
	w := writer{dir: d.temp, counted: map[string]int{}}
	w.json("plan.json", rec.Plan)
	w.lines("history.jsonl", historyLines(rec.History))
	w.lines("upstream.jsonl", anySlice(rec.Upstream))
	rows := make([]any, 0, len(rec.Rows))
	for _, r := range sortedRows(rec.Rows) {
		rows = append(rows, r)
	}
	w.lines("rows.jsonl", rows)
	w.lines("activity.jsonl", anySlice(rec.Activity))
	if rec.Postgres != nil {
		w.lines("postgres.jsonl", anySlice(rec.Postgres))
	}
	w.json("record.json", facts{rec.Counts, rec.Witness, rec.Measured, rec.Trouble, w.counted})
	w.json("result.json", res)
	for name, content := range extra {
		w.file(name, content)
	}
	if w.err != nil {
		return fmt.Errorf("write run directory: %w", w.err)
	}
	if err := os.Rename(d.temp, d.final); err != nil {
		return fmt.Errorf("name run directory: %w", err)
	}
	return pointLatest(d.final)
}

// pointLatest moves the link `latest` in one step.
func pointLatest(dir string) error {
	link := filepath.Join(filepath.Dir(dir), "latest")
	temp := link + "-" + filepath.Base(dir)
	if err := os.Symlink(filepath.Base(dir), temp); err != nil {
		return fmt.Errorf("link latest run: %w", err)
	}
	if err := os.Rename(temp, link); err != nil {
		return errors.Join(fmt.Errorf("link latest run: %w", err), os.Remove(temp))
	}
	return nil
}

// facts are the small parts of a record that share one file.
type facts struct {
	Counts   []harness.UpstreamCount `json:"counts"`
	Witness  []harness.Witness       `json:"witness"`
	Measured map[string]float64      `json:"measured"`
	Trouble  []harness.Trouble       `json:"trouble"`
	Lines    map[string]int          `json:"lines"` // of each .jsonl file, so that a cut one is noticed
}

// line is one line of history.jsonl: exactly one field is set.
type line struct {
	Op    *harness.Operation      `json:"op,omitempty"`
	Event *harness.Event          `json:"event,omitempty"`
	Burst *harness.BurstReport    `json:"burst,omitempty"`
	Load  *harness.OpenLoopReport `json:"load,omitempty"`
}

func historyLines(h harness.History) []any {
	lines := make([]any, 0, len(h.Operations)+len(h.Events)+len(h.Bursts)+len(h.Loads))
	for i := range h.Events {
		lines = append(lines, line{Event: &h.Events[i]})
	}
	for i := range h.Bursts {
		lines = append(lines, line{Burst: &h.Bursts[i]})
	}
	for i := range h.Loads {
		lines = append(lines, line{Load: &h.Loads[i]})
	}
	for i := range h.Operations {
		lines = append(lines, line{Op: &h.Operations[i]})
	}
	return lines
}

// writer writes files until the first error.
type writer struct {
	dir     string
	counted map[string]int // lines of the .jsonl files
	err     error
}

func (w *writer) file(name string, content []byte) {
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join(w.dir, name), content, 0o644)
	}
}

func (w *writer) json(name string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("%s: %w", name, err))
	}
	w.file(name, append(b, '\n'))
}

func (w *writer) lines(name string, docs []any) {
	if w.err != nil {
		return
	}
	f, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		w.err = err
		return
	}
	w.counted[name] = len(docs)
	if err := errors.Join(encodeLines(f, docs), f.Close()); err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
	}
}

func encodeLines(out io.Writer, docs []any) error {
	b := bufio.NewWriter(out)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	for _, d := range docs {
		if err := enc.Encode(d); err != nil {
			return err
		}
	}
	return b.Flush()
}
