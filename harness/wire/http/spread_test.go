//go:build linux

package wirehttp

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/stats"
)

var (
	spreadRounds  = flag.Int("spread.rounds", 0, "rounds of the spread benchmark; 0 leaves it out")
	spreadTools   = flag.Bool("spread.tools", true, "compare with the load generators that are installed")
	spreadPublish = flag.String("spread.publish", "", "directory for burst-spread.json and burst-spread.md")
)

// spreadN is how many requests are to arrive together.
const spreadN = 100

// A contestant lets spreadN requests go at the server, as close together as it can.
type contestant struct {
	name string
	goal float64 // greatest ratio to the floor; 0 for none
	run  func(t *testing.T, s *spreadChild)
}

// A spreadRow is a line of the published table.
type spreadRow struct {
	Name     string     `json:"name"`
	N        int        `json:"n"`
	MedianUS float64    `json:"median_us"`
	LowUS    float64    `json:"p10_us"`
	HighUS   float64    `json:"p90_us"`
	Ratio    float64    `json:"ratio"`
	Interval [2]float64 `json:"ratio_interval"`
	Goal     float64    `json:"goal,omitempty"`
}

// TestBurstSpread is the benchmark behind the figures on how close together a
// burst arrives, measured by a server in another process after it read each
// body. All contestants take turns within each round.
func TestBurstSpread(t *testing.T) {
	if *spreadRounds < 2 {
		t.Skip("a benchmark: run it with -v -spread.rounds=40")
	}
	s := startSpreadChild(t)
	contestants := spreadContestants()
	samples := make([][]time.Duration, len(contestants))
	for round := range *spreadRounds + 1 { // the first warms up and does not count
		for k := range contestants {
			i := (k + round) % len(contestants)
			s.take(t)
			contestants[i].run(t, s)
			at := s.take(t)
			if len(at) < spreadN {
				t.Errorf("round %d, %s: %d arrivals, want %d", round, contestants[i].name, len(at), spreadN)
				continue
			}
			if round > 0 {
				samples[i] = append(samples[i], spreadOf(at))
			}
		}
	}
	rows := spreadRows(contestants, samples)
	table := spreadTable(rows)
	_, _ = io.WriteString(os.Stdout, table)
	if *spreadPublish != "" {
		publishSpread(t, rows, table)
	}
}

// spreadOf is first to last of the first spreadN arrivals.
func spreadOf(at []time.Duration) time.Duration {
	slices.Sort(at)
	return at[spreadN-1] - at[0]
}

func spreadContestants() []contestant {
	all := []contestant{
		{"floor: server stopped, 100 queued, continued", 0, runFloor},
		{"h1 last header byte, io_uring", 1.25, runBurst(harness.H1LastHeaderByte, "0")},
		{"h1 last header byte, one locked thread", 0, runBurst(harness.H1LastHeaderByte, "1")},
		{"h2 single packet, h2c", 1.25, runBurst(harness.H2SinglePacket, "0")},
		{"net/http, 100 warm connections, closed channel", 0, runNetHTTP},
	}
	for _, tool := range []struct {
		name, path string
		args       []string
	}{
		{"wrk", "/first", []string{"-t1", "-c100", "-d1s"}}, // goes on for a second: only first requests are a burst
		{"h2load", "/go", []string{"-n100", "-c100", "-t1", "--h1"}},
		{"h2load", "/go", []string{"-n100", "-c1", "-m100", "-t1"}},
		{"hey", "/go", []string{"-n", "100", "-c", "100"}},
	} {
		if path, err := exec.LookPath(tool.name); err == nil && *spreadTools {
			all = append(all, contestant{tool.name + " " + strings.Join(tool.args, " "), 0, runTool(path, tool.path, tool.args)})
		}
	}
	if path, err := exec.LookPath("vegeta"); err == nil && *spreadTools {
		all = append(all, contestant{"vegeta attack -rate=0 -max-workers=100 -duration=1s", 0, runVegeta(path)})
	}
	return all
}

// runVegeta lets a hundred workers send as fast as they can for a second;
// only the first requests are a burst. It takes its target from standard input.
func runVegeta(path string) func(*testing.T, *spreadChild) {
	return func(t *testing.T, s *spreadChild) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), path, "attack", "-rate=0", "-max-workers=100", "-workers=100", "-connections=100",
			"-duration=1s", "-output="+os.DevNull)
		cmd.Stdin = strings.NewReader("GET " + s.url + "/first\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

func runBurst(kind harness.Technique, noRing string) func(*testing.T, *spreadChild) {
	return func(t *testing.T, s *spreadChild) {
		t.Helper()
		t.Setenv(noRingEnv, noRing)
		reqs := make([]harness.Request, spreadN)
		for i := range reqs {
			reqs[i] = harness.Request{Method: "POST", Path: "/go", Body: json.RawMessage(`{"seat":"A-001"}`)}
		}
		rep, _, err := testClient(clock.New()).Burst(t.Context(), same(s.url, spreadN), harness.Burst{Requests: reqs, Technique: kind})
		if err != nil || rep.Answered != spreadN {
			t.Errorf("%s: %+v, %v", kind, rep, err)
		}
	}
}

// runFloor is the best that can be had: the server does not run while the
// last bytes are queued, and has the machine to itself when it goes on.
func runFloor(t *testing.T, s *spreadChild) {
	t.Helper()
	const body = `{"seat":"A-001"}`
	head := fmt.Sprintf("POST /go HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r", s.addr, len(body))
	var dialer net.Dialer
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range spreadN {
		c, err := dialer.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
	}
	awaitQueues(t, conns)
	s.stop(t)
	for _, c := range conns {
		if _, err := io.WriteString(c, "\n"+body); err != nil {
			t.Fatal(err)
		}
	}
	awaitQueues(t, conns)
	s.resume(t)
	for _, c := range conns {
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitQueues(t *testing.T, conns []net.Conn) {
	t.Helper()
	err := clock.Await(t.Context(), "acknowledgements", 5*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		for _, c := range conns {
			raw, err := c.(*net.TCPConn).SyscallConn()
			if err != nil {
				return false, "", err
			}
			var queued int
			var qerr error
			if err := raw.Control(func(fd uintptr) { queued, qerr = sendQueue(int(fd)) }); err != nil {
				return false, "", err
			}
			if qerr != nil || queued > 0 {
				return false, "bytes are on their way", qerr
			}
		}
		return true, "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func runNetHTTP(t *testing.T, s *spreadChild) {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: spreadN, MaxIdleConns: spreadN}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	volley := func(path string) {
		barrier := make(chan struct{})
		var racers, ready sync.WaitGroup
		ready.Add(spreadN)
		for range spreadN {
			racers.Go(func() {
				ready.Done()
				<-barrier
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(`{"seat":"A-001"}`))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			})
		}
		ready.Wait()
		close(barrier)
		racers.Wait()
	}
	volley("/meet") // all connections are open and warm after it
	volley("/go")
}

func runTool(path, url string, args []string) func(*testing.T, *spreadChild) {
	return func(t *testing.T, s *spreadChild) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), path, append(slices.Clone(args), s.url+url)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

func spreadRows(contestants []contestant, samples [][]time.Duration) []spreadRow {
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := func(s []time.Duration) (r [][]time.Duration) {
		for _, d := range s {
			r = append(r, []time.Duration{d})
		}
		return r
	}
	us := func(s []time.Duration, p string) float64 {
		pc, _ := stats.ParsePercentile(p)
		d, _ := stats.Exact(s, pc)
		return float64(d) / 1e3
	}
	var rows []spreadRow
	for i, c := range contestants {
		if len(samples[i]) < 2 { // a tool that never managed; its errors were reported
			continue
		}
		row := spreadRow{Name: c.name, N: len(samples[i]), Goal: c.goal, MedianUS: us(samples[i], "p50"), LowUS: us(samples[i], "p10"), HighUS: us(samples[i], "p90")}
		row.Ratio, row.Interval[0], row.Interval[1] = stats.RatioInterval(rng, rounds(samples[i]), rounds(samples[0]), stats.P50, 1000)
		rows = append(rows, row)
	}
	return rows
}

func spreadTable(rows []spreadRow) string {
	var b strings.Builder
	b.WriteString("| technique | n | median µs | p10 - p90 µs | ratio to floor (95 %) | goal |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		goal := ""
		if r.Goal > 0 {
			goal = fmt.Sprintf("<= %.2f met", r.Goal)
			if !(r.Ratio <= r.Goal) {
				goal = fmt.Sprintf("<= %.2f MISSED", r.Goal)
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f - %.0f | %.2f (%.2f - %.2f) | %s |\n", r.Name, r.N, r.MedianUS, r.LowUS, r.HighUS, r.Ratio, r.Interval[0], r.Interval[1], goal)
	}
	return b.String()
}

func publishSpread(t *testing.T, rows []spreadRow, table string) {
	t.Helper()
	doc, err := json.MarshalIndent(map[string]any{
		"schema_version": 1, "requests": spreadN, "cores": runtime.NumCPU(), "go": runtime.Version(), "rows": rows,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("# How close together %d requests arrive\n\nFirst to last arrival at a server in another process, stamped after the body was read, over loopback,\n"+
		"on %d cores with %s. All techniques took turns within each round; ratios are of medians, intervals by bootstrap over rounds.\n\nMade by `make bench`.\n\n%s",
		spreadN, runtime.NumCPU(), runtime.Version(), table)
	for name, content := range map[string]string{"burst-spread.json": string(doc) + "\n", "burst-spread.md": text} {
		if err := os.WriteFile(filepath.Join(*spreadPublish, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
