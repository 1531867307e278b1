package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/rundir"
	"github.com/overbook/overbook/reports"
)

// largeLoad is the record of an open loop of so many clients with four calls
// each, and a third as many upstream calls, over half a minute.
func largeLoad(clients int) harness.Record {
	rec := harness.Record{
		Plan: harness.Plan{SchemaVersion: 1, Scenario: "tickets/on-sale", Seed: 7, Choices: json.RawMessage(`{}`)}, Rows: map[string]harness.Rows{},
	}
	gap := 30 * time.Second / time.Duration(clients)
	for n := range clients {
		for i, kind := range []string{"hold", "hold", "charge", "read"} {
			id := fmt.Sprintf("op-%d", len(rec.History.Operations)+1)
			from := time.Second + time.Duration(n)*gap + time.Duration(i)*200*time.Millisecond
			op := harness.Operation{
				ID: id, Process: n, Kind: kind, Caller: fmt.Sprint("visitor-", n), Load: "sale", Server: fmt.Sprint("sut-", n%2+1), Method: "POST", Path: "/events/1/holds",
				Input: json.RawMessage(fmt.Sprintf(`{"seat":"A-%d","visitor":%d}`, n%2000, n)), Status: 201, Output: strings.Repeat("x", 300),
				Header: map[string]string{"Content-Type": "application/json"}, Intended: from, Sent: from + time.Millisecond, Answered: from + time.Duration(5+n%90)*time.Millisecond, Outcome: harness.OK,
			}
			if n%5 != 0 {
				op.Status, op.Outcome = 409, harness.Fail
			}
			rec.History.Operations = append(rec.History.Operations, op)
			if kind == "charge" && n%3 == 0 {
				rec.Upstream = append(rec.Upstream, harness.UpstreamCall{
					Seq: len(rec.Upstream) + 1, Upstream: "payments", Caller: op.Server, Method: "POST", Path: "/charges", Op: id, Request: string(op.Input), Status: 201,
					Received: op.Sent + time.Millisecond, Forwarded: op.Sent + 2*time.Millisecond, Accepted: op.Answered - time.Millisecond, Answered: op.Answered,
				})
			}
		}
	}
	calls := len(rec.History.Operations)
	rec.History.Loads = []harness.OpenLoopReport{{
		Name: "sale", Planned: clients, Arrived: clients, Left: clients, Started: time.Second, Ended: 32 * time.Second, Schedule: 30 * time.Second, MaxPresent: 250,
		LateP50: 60 * time.Microsecond, LateP99: 9 * time.Millisecond, LateMax: 31 * time.Millisecond, Slack: 300 * time.Millisecond, Calls: calls, Sent: calls, Answered: calls,
		InFlight: 64, Connections: 64, ConnectionsOpened: 64, ConnectionsMost: 64, Waited: 120, WaitMax: 12 * time.Millisecond,
	}}
	return rec
}

// A large load must not make the reports large: what is drawn and listed is
// bounded, and says what it leaves out. The times are for reading.
func TestTheReportsOfALargeLoadAreBounded(t *testing.T) {
	clients := 10_000
	if testing.Short() {
		clients = 2_000
	}
	rec := largeLoad(clients)
	many := harness.Evidence{Text: "seats sold twice"}
	for i := 0; i < clients; i += 10 {
		many.Ops = append(many.Ops, rec.History.Operations[4*i].ID)
	}
	for name, checks := range map[string][]harness.Verdict{
		"pass": {{ID: "TK-I1", Status: harness.Pass, Summary: "fine", Evidence: []harness.Evidence{}}},
		"fail": {{ID: "TK-I1", Status: harness.Failed, Summary: "seats were sold twice", Evidence: []harness.Evidence{many}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := harness.Result{
				Name: "tickets/on-sale", Title: "t", Verdict: checks[0].Status, Summary: "s", Seed: 7, Checks: checks, Loads: rec.History.Loads, RunDir: "runs/x",
				Latency: &harness.Latency{N: 1, P50: 1, P95: 1, Max: 1}, Latencies: map[string]*harness.Latency{"charge": {N: 3, P50: 1, P95: 2, Max: 2}},
			}
			s := harness.Suite{SchemaVersion: 1, Tool: "overbook", Verdict: r.Verdict, Scenarios: []harness.Result{r}}
			records := map[string]harness.Record{r.RunDir: rec}
			page := reports.Page{Suite: s, Records: records}
			for _, x := range []struct {
				name  string
				most  int // bytes
				write func(io.Writer) error
			}{
				{"html", 2 << 20, func(w io.Writer) error { return reports.HTML(w, page) }},
				{"text", 16 << 10, func(w io.Writer) error {
					return reports.Text(w, s, reports.TextOptions{Verbose: true, Records: records})
				}},
				{"markdown", 64 << 10, func(w io.Writer) error { return reports.MarkdownPage(w, page) }},
				{"github", 64 << 10, func(w io.Writer) error { return reports.GitHubPage(w, page) }},
				{"junit", 128 << 10, func(w io.Writer) error { return reports.JUnit(w, s) }},
				{"json", 128 << 10, func(w io.Writer) error { return reports.JSON(w, s) }},
			} {
				var b bytes.Buffer
				watch := clock.New()
				if err := x.write(&b); err != nil {
					t.Fatal(err)
				}
				t.Logf("%-8s %7d KB in %s", x.name, b.Len()>>10, watch.Now().Round(time.Millisecond))
				if b.Len() > x.most {
					t.Errorf("%s: %d bytes, want at most %d", x.name, b.Len(), x.most)
				}
			}
		})
	}
}

// TestStoringALargeLoad is a probe as well: what it costs to write and read.
func TestStoringALargeLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 30 MB")
	}
	rec := largeLoad(10_000)
	d, err := rundir.Create(t.TempDir(), rec.Plan.Scenario, clock.Wall(), rec.Plan.Seed)
	if err != nil {
		t.Fatal(err)
	}
	watch := clock.New()
	if err := d.Commit(rec, harness.Result{Verdict: harness.Pass}, nil); err != nil {
		t.Fatal(err)
	}
	wrote := watch.Now()
	read, _, err := rundir.Read(d.Final())
	if err != nil {
		t.Fatal(err)
	}
	if len(read.History.Operations) != len(rec.History.Operations) || len(read.History.Loads) != 1 {
		t.Errorf("%d operations and %d loads came back", len(read.History.Operations), len(read.History.Loads))
	}
	info, err := os.Stat(filepath.Join(d.Final(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d operations: %d MB in history.jsonl, written in %s, read in %s; heap with both copies %d MB", len(rec.History.Operations), info.Size()>>20,
		wrote.Round(time.Millisecond), (watch.Now() - wrote).Round(time.Millisecond), m.HeapAlloc>>20)
}
