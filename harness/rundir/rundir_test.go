package rundir_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/rundir"
)

var started = time.Date(2026, 11, 29, 13, 4, 5, 678e6, time.FixedZone("CET", 3600))

// everyLoad has another number in every field, so that none can be taken for another.
func everyLoad() harness.OpenLoopReport {
	l := harness.OpenLoopReport{Name: "sale"}
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.CanInt() {
			f.SetInt(int64(i) + 1)
		}
	}
	return l
}

// record has something in every field.
func record() harness.Record {
	return harness.Record{
		Plan: harness.Plan{
			SchemaVersion: 1, Scenario: "hotel/one-room", Seed: 0x2a, Params: harness.Params{"users": "2"}, Mutant: "H-M1",
			Choices: json.RawMessage(`{"rooms":["101","1\u003c2"],"orders":[[1,0]]}`),
		},
		History: harness.History{
			Operations: []harness.Operation{
				{
					ID: "op-1", Process: 1, Kind: "confirm", Burst: "b", Load: "sale", Server: "sut-1", Method: "POST", Path: "/x?a=1&b=2", Input: json.RawMessage(`{"seat":"A"}`),
					Status: 201, Header: map[string]string{"Location": "/y"}, Output: "line\n<b>\u2028 é \"quoted\"", Intended: 1, Sent: 2, Answered: 3, Outcome: harness.OK,
				},
				{ID: "op-2", Method: "GET", Path: "/", Intended: 5, Outcome: harness.Info, Err: "timeout: no answer"},
			},
			Events: []harness.Event{{At: 1, Until: 9, Kind: harness.EventPhase, Subject: "up", Text: "two\nlines", Attrs: map[string]string{"k": "v"}}, {At: 4, Kind: harness.EventNote}},
			Bursts: []harness.BurstReport{{Name: "b", Technique: "h1", Requests: 2, Ready: 2, Sent: 2, Answered: 1, Released: 2, Spread: 7, MaxInFlight: 2, ServerSpread: 8}},
			Loads:  []harness.OpenLoopReport{everyLoad()},
		},
		Upstream: []harness.UpstreamCall{{
			Seq: 1, Upstream: "desk", Caller: "sut-1", Method: "POST", Path: "/book", Query: "q=1", Op: "op-1", TraceID: "t",
			Request: "{}", Status: 201, Response: "[]", Received: 1, Forwarded: 2, Accepted: 3, Answered: 4, Fault: "f", Err: "e",
		}},
		Postgres: []harness.Unit{{
			Seq: 1, Session: 2, Server: "sut-1", PID: 77, Statements: []harness.Statement{{SQL: "select $1", Params: []string{"NULL"}, Tag: "SELECT 1", Code: "40001", Text: "t"}},
			Op: "op-1", Tx: 3, Before: "I", After: "T", Committed: true, Arrived: 1, Forwarded: 2, Answered: 3, Delivered: 4, Fault: "f", Err: "e",
		}},
		Counts: []harness.UpstreamCount{{Upstream: "desk", Method: "POST", Path: "/book", Ledger: 1, WireMock: -1, Error: "gone"}, {Upstream: "desk", Method: "POST", Path: "/book", Key: "101", Ledger: 1, WireMock: 1}},
		Rows: map[string]harness.Rows{
			"I1":      {Query: "I1", SQL: "-- rule\nselect 1 where 1 < 2\n", Rows: []harness.Row{{"n": 1.5, "s": "x", "b": true, "z": nil, "l": []any{1.0, "a"}}}},
			"I2":      {Query: "I2", SQL: "select", Rows: []harness.Row{}},
			"table:t": {Query: "table:t", Error: "no such table"},
		},
		Activity: []harness.ActivitySample{{At: 5, Open: []harness.OpenTransaction{{Replica: "sut-1", PID: 7, Since: 2, Query: "select"}}}, {At: 6}},
		Witness:  []harness.Witness{{Kind: "max_in_flight", Want: 1.5, Got: 2, Text: "both"}},
		Measured: map[string]float64{"rate": 12.25},
		Trouble:  []harness.Trouble{{Reason: harness.ReasonLeak, Text: "a process"}},
	}
}

func result() harness.Result {
	p99 := 12.5
	return harness.Result{
		Name: "hotel/one-room", Title: "t", Verdict: harness.Unknown, Reason: harness.ReasonLeak, Summary: "s", Seed: 0x2a, Rounds: 1,
		Params: harness.Params{"users": "2"}, Started: started.UTC(), DurationMS: 3.5, Latency: &harness.Latency{N: 100, P50: 1, P95: 2, P99: &p99, Max: 13},
		Latencies: map[string]*harness.Latency{"pay": {N: 1, P50: 1, P95: 1, Max: 1}, "hold": {N: 2, P50: 3, P95: 4, Max: 4}}, Loads: []harness.OpenLoopReport{everyLoad()},
		Checks:   []harness.Verdict{{ID: "I1", Status: harness.Failed, Summary: "v", Rule: "r", Evidence: []harness.Evidence{{Text: "row", Ops: []string{"op-1"}}}}},
		Upstream: map[string]map[string]harness.CountPair{"desk": {"POST /book": {Ledger: 1, WireMock: -1}}}, Replay: "overbook run",
	}
}

// same compares whole values; the types' blank fields are not theirs to differ in.
var same = cmp.Options{cmpopts.IgnoreUnexported(
	harness.Record{}, harness.Plan{}, harness.History{}, harness.Operation{}, harness.Event{}, harness.BurstReport{}, harness.OpenLoopReport{}, harness.UpstreamCall{}, harness.UpstreamCount{},
	harness.Rows{}, harness.ActivitySample{}, harness.OpenTransaction{}, harness.Witness{}, harness.Trouble{},
	harness.Result{}, harness.Verdict{}, harness.Evidence{}, harness.Latency{}, harness.CountPair{})}

func commit(t *testing.T, root string, started time.Time, rec harness.Record, res harness.Result) string {
	t.Helper()
	d, err := rundir.Create(root, rec.Plan.Scenario, started, rec.Plan.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(rec, res, map[string][]byte{"REPLAY": []byte("again\n")}); err != nil {
		t.Fatal(err)
	}
	return d.Final()
}

func TestRoundTrip(t *testing.T) {
	dir := commit(t, t.TempDir(), started, record(), result())
	rec, res, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(record(), rec, same); d != "" {
		t.Errorf("record: %s", d)
	}
	if d := cmp.Diff(result(), res, same); d != "" {
		t.Errorf("result: %s", d)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "REPLAY")); string(b) != "again\n" {
		t.Errorf("REPLAY: %q, %v", b, err)
	}
}

func TestEmptyRecordRoundTrip(t *testing.T) {
	empty := harness.Record{Plan: harness.Plan{SchemaVersion: 1, Scenario: "s", Choices: json.RawMessage("{}")}}
	rec, _, err := rundir.Read(commit(t, t.TempDir(), started, empty, harness.Result{Verdict: harness.Unknown}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(empty, rec, same, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestLayout(t *testing.T) {
	root := t.TempDir()
	d, err := rundir.Create(root, "hotel/one-room", started, 0x2a)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(root, "hotel", "one-room", "20261129T120405.678-0000002a"); d.Final() != want {
		t.Errorf("final name %s, want %s", d.Final(), want)
	}
	if err := os.WriteFile(filepath.Join(d.Logs(), "sut-1.log"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Final()); err == nil {
		t.Error("the directory has its name before it is whole")
	}
	if err := d.Commit(record(), result(), nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"activity.jsonl", "history.jsonl", "logs", "plan.json", "postgres.jsonl", "record.json", "result.json", "rows.jsonl", "upstream.jsonl"}
	if d := cmp.Diff(want, names(t, d.Final())); d != "" {
		t.Error(d)
	}
	if b, err := os.ReadFile(filepath.Join(d.Final(), "logs", "sut-1.log")); string(b) != "hello" {
		t.Errorf("the log: %q, %v", b, err)
	}
	if d := cmp.Diff([]string{"20261129T120405.678-0000002a", "latest"}, names(t, filepath.Dir(d.Final()))); d != "" {
		t.Error(d)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	slices.Sort(list)
	return list
}

func TestLatestMovesAndResolves(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first := commit(t, root, started, record(), result())
	resolve := func(arg, want string) {
		t.Helper()
		if got, err := rundir.Resolve(root, arg); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", arg, got, err, want)
		}
	}
	resolve("hotel/one-room", first)
	second := commit(t, root, started.Add(time.Second), record(), result())
	resolve("hotel/one-room", second)
	resolve(filepath.Join(root, "hotel/one-room/latest"), second)
	resolve(filepath.Join(root, "hotel/one-room"), second)
	resolve(first, first)
	resolve("hotel/one-room/"+filepath.Base(first), first)
	_, err = rundir.Resolve(root, "hotel/two-rooms")
	if err == nil || !strings.Contains(err.Error(), `no stored run at "hotel/two-rooms"`) || !strings.Contains(err.Error(), root) {
		t.Error(err)
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	root := t.TempDir()
	d, err := rundir.Create(root, "hotel", started, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Logs(), "x.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, filepath.Join(root, "hotel")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCreateRefuses(t *testing.T) {
	root := t.TempDir()
	blocked := filepath.Join(root, "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A file in the place of the root cannot be written into by anybody, root included.
	if _, err := rundir.Create(blocked, "hotel", started, 1); err == nil || !strings.Contains(err.Error(), "--out") || !strings.Contains(err.Error(), blocked) {
		t.Error(err)
	}
	for _, name := range []string{"../hotel", "/hotel", ""} {
		if _, err := rundir.Create(root, name, started, 1); err == nil || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What can't be stored is an error that names the file, and never half a run.
func TestCommitRefuses(t *testing.T) {
	for file, change := range map[string]func(*harness.Record, *harness.Result){
		"history.jsonl": func(r *harness.Record, _ *harness.Result) { r.History.Operations[0].Outcome = 0 },
		"record.json":   func(r *harness.Record, _ *harness.Result) { r.Measured["rate"] = math.NaN() },
		"result.json":   func(_ *harness.Record, r *harness.Result) { r.Checks[0].Status = 0 },
		"plan.json":     func(r *harness.Record, _ *harness.Result) { r.Plan.Choices = json.RawMessage("{") },
	} {
		t.Run(file, func(t *testing.T) {
			root := t.TempDir()
			rec, res := record(), result()
			change(&rec, &res)
			d, err := rundir.Create(root, "hotel", started, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Commit(rec, res, nil); err == nil || !strings.Contains(err.Error(), "write run directory: "+file) {
				t.Error(err)
			}
			if err := d.Discard(); err != nil {
				t.Error(err)
			}
			if left := names(t, filepath.Join(root, "hotel")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestTwoRunsOfOneNameDoNotMix(t *testing.T) {
	root := t.TempDir()
	first := commit(t, root, started, record(), result())
	d, err := rundir.Create(root, record().Plan.Scenario, started, record().Plan.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(harness.Record{Plan: record().Plan}, result(), nil); err == nil {
		t.Error("a second run took the name of the first")
	}
	if err := d.Discard(); err != nil {
		t.Error(err)
	}
	if rec, _, err := rundir.Read(first); err != nil || len(rec.History.Operations) != 2 {
		t.Errorf("the first run has changed: %d operations, %v", len(rec.History.Operations), err)
	}
}

// What a process that was killed left half written goes with the next run of
// the scenario; what a living one is writing stays.
func TestDeadWritersAreSwept(t *testing.T) {
	root := t.TempDir()
	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Join(root, "hotel", "one-room")
	left := filepath.Join(parent, fmt.Sprintf(".writing-%d-x-1", dead.Process.Pid))
	alive := filepath.Join(parent, fmt.Sprintf(".writing-%d-x-2", os.Getppid()))
	for _, dir := range []string{left, alive} {
		if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := rundir.Create(root, "hotel/one-room", started, 1)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(d.Logs())); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory is %v, %v; others must be able to read it", info, err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what the dead process left is still there: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("what the living process writes is gone: %v", err)
	}
}
