package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/reports"
)

// document wants exactly one JSON document that the schema allows.
func document(t *testing.T, text string, schema string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(into); err != nil {
		t.Fatalf("standard output is no JSON: %v\n%s", err, tail(text))
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("there is more than one document on standard output (%v)", err)
	}
	source, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", source); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(instance); err != nil {
		t.Error(err)
	}
}

// suite is what a test looks at in the --json document.
type suite struct {
	Verdict   string
	Seed      string
	Scenarios []struct {
		Name, Verdict, Reason, Summary string
		RunDir                         string `json:"run_dir"`
		Replay                         string
		Responses                      map[string]int
		Checks                         []struct{ ID, Verdict, Reason, Summary string }
	}
	Skipped []string
}

var progressLine = regexp.MustCompile(`^(seed [0-9a-f]{8}, .*| *\d+s  .*|[✓✗?] .*|)$`)

func TestGreenRunAndItsDirectory(t *testing.T) {
	p := newPlace(t)
	e := p.run(t, 0, "run", "library/one-seat", "--json", "--seed", "7f3a91c2", "--users", "30", "--junit", "race.xml", "--html", "race.html")
	var s suite
	document(t, e.stdout, reports.Schema, &s)
	for line := range strings.Lines(e.stderr) {
		if !progressLine.MatchString(strings.TrimRight(line, "\n")) {
			t.Errorf("on standard error there is more than progress: %q", line)
		}
	}
	if s.Verdict != "PASS" || len(s.Scenarios) != 1 || s.Seed != "7f3a91c2" || s.Scenarios[0].Responses["201"] != 1 || s.Scenarios[0].Responses["409"] != 29 {
		t.Fatalf("unexpected result: %+v", s)
	}
	dir := s.Scenarios[0].RunDir
	for _, name := range []string{
		"plan.json", "history.jsonl", "upstream.jsonl", "rows.jsonl", "activity.jsonl", "record.json", "latency.hdr", "result.json",
		"REPLAY", "report.html", "junit.xml", "summary.md", "logs/sut-1.log",
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s of the run directory is missing or empty: %v", name, err)
		}
	}
	if latest, err := filepath.EvalSymlinks(p.path("runs/library/one-seat/latest")); err != nil || filepath.Base(latest) != filepath.Base(dir) {
		t.Errorf("latest leads to %s (%v), want %s", latest, err, dir)
	}
	const replay = "overbook run library/one-seat --seed 7f3a91c2 --set users=30"
	if b, err := os.ReadFile(filepath.Join(dir, "REPLAY")); err != nil || strings.TrimSpace(string(b)) != replay || s.Scenarios[0].Replay != replay {
		t.Errorf("REPLAY holds %q (%v), the document %q, want %q", b, err, s.Scenarios[0].Replay, replay)
	}
	for _, name := range []string{filepath.Join(dir, "junit.xml"), p.path("race.xml")} {
		wellFormed(t, name)
	}
	if b, err := os.ReadFile(p.path("race.html")); err != nil || !bytes.Contains(b, []byte("</html>")) {
		t.Errorf("--html: %v, %d bytes", err, len(b))
	}
	stored(t, p)
	again := p.run(t, 0, "replay", "library/one-seat")
	if got := again.lastLine(); got != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("replay ends with %q", got)
	}
	first, second := choices(t, filepath.Join(dir, "plan.json")), choices(t, p.path("runs/library/one-seat/latest/plan.json"))
	if first != second {
		t.Errorf("replay made another plan:\n%s\n%s", first, second)
	}
}

func choices(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wellFormed(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		XMLName xml.Name `xml:"testsuites"`
		Tests   int      `xml:"tests,attr"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil || doc.Tests == 0 {
		t.Errorf("%s: %v, %d tests", name, err, doc.Tests)
	}
}

// stored looks at the run just made in every form.
func stored(t *testing.T, p *place) {
	t.Helper()
	e := p.run(t, 0, "check", "library/one-seat")
	if got := e.lastLine(); got != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("check ends with %q", got)
	}
	var s suite
	document(t, p.run(t, 0, "check", "runs/library/one-seat/latest", "--json").stdout, reports.Schema, &s)
	for format, look := range map[string]string{
		"html": `(?i)^<!doctype html>`, "junit": `<testsuites`, "markdown": `library/one-seat`, "json": `"verdict": "PASS"`, "text": `^1 passed, 0 failed, 0 skipped$`, "github": ``,
	} {
		e := p.run(t, 0, "report", "library/one-seat", "--format", format)
		says(t, format, e.stdout, look)
		if e.stderr != "" {
			t.Errorf("report --format %s says on standard error: %s", format, e.stderr)
		}
	}
}

func TestTextOfAGreenRun(t *testing.T) {
	e := newPlace(t).run(t, 0, "run", "library/one-seat", "--users", "20")
	if got := e.lastLine(); got != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("the last line is %q", got)
	}
	says(t, "standard output", e.stdout, `^✓ PASS +library/one-seat`)
	if strings.Count(e.stdout, "PASS") != 1 {
		t.Errorf("the scenario is shown more than once:\n%s", e.stdout)
	}
}

// What a run needs depends on its parameters: two servers have a seat lock.
func TestMoreReplicasBringTheirRedis(t *testing.T) {
	e := newPlace(t).run(t, 0, "run", "library/one-seat", "--replicas", "2", "--users", "20")
	says(t, "standard output", e.stdout, `^✓ PASS +library/one-seat`)
}

func TestOverbookedSeatIsFoundAndShown(t *testing.T) {
	p := newPlace(t)
	e := p.run(t, 1, "run", "library/one-seat", "--set", "path=direct", "--set", "window=150ms", "--seed", "5", "--github", "annotations.txt")
	if got := e.lastLine(); got != "0 passed, 1 failed, 0 skipped" {
		t.Errorf("the last line is %q", got)
	}
	says(t, "standard output", e.stdout, `^✗ FAIL +library/one-seat`, `L-I3`, `at_most_one_winner|\.sql`,
		`overbook run library/one-seat --seed 00000005 --set path=direct --set window=150ms`, `report\.html`)
	if b, err := os.ReadFile(p.path("annotations.txt")); err != nil || !bytes.Contains(b, []byte("::error")) {
		t.Errorf("--github: %q, %v", b, err)
	}
	// A violation is found again in the stored run, with no part started.
	says(t, "check", p.run(t, 1, "check", "library/one-seat").stdout, `L-I3`)
	// The line of REPLAY makes the same plan.
	line, err := os.ReadFile(p.path("runs/library/one-seat/latest/REPLAY"))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(line))
	plan := p.run(t, 0, append([]string{"plan"}, words[2:]...)...)
	says(t, "plan", plan.stdout, `"path": "direct"`, `"window": "150ms"`, `"seed": "00000005"`)
}

func TestAmplify(t *testing.T) {
	p := newPlace(t)
	e := p.run(t, 0, "amplify", "--rounds", "2", "--users", "20", "--json", "--markdown", "table.md")
	var a struct {
		Users, Rounds int
		Paths         struct {
			Direct, Intent struct {
				ReservePosts struct{ Ledger, Wiremock int } `json:"reserve_posts"`
			}
		}
	}
	document(t, e.stdout, reports.AmplifySchema, &a)
	want := struct{ Ledger, Wiremock int }{20, 20}
	if a.Users != 20 || a.Rounds != 2 || a.Paths.Direct.ReservePosts != want {
		t.Errorf("direct path: %+v", a)
	}
	if want.Ledger, want.Wiremock = 1, 1; a.Paths.Intent.ReservePosts != want {
		t.Errorf("intent path: %+v", a)
	}
	if b, err := os.ReadFile(p.path("table.md")); err != nil || !bytes.Contains(b, []byte("|")) {
		t.Errorf("--markdown: %q, %v", b, err)
	}
}

func TestDemo(t *testing.T) {
	e := newPlace(t).run(t, 0, "demo")
	says(t, "standard output", e.stdout, `^✗ FAIL`, `^✓ PASS`, `L-I3`)
	if got := e.lastLine(); got != "1 passed, 1 failed, 0 skipped" {
		t.Errorf("the last line is %q", got)
	}
	says(t, "standard error", e.stderr, `without the worker: FAIL`, `with it: +PASS`, `report\.html`)
}

func TestDoctorLists(t *testing.T) {
	e := newPlace(t).run(t, 0, "doctor")
	says(t, "doctor", e.stdout, `✓ .*PostgreSQL`, `✓ .*(?i:wiremock)`, `✓ .*(?i:java)`, `✓ .*(?i:redis)`)
}

func TestUpStaysUntilCtrlC(t *testing.T) {
	p := newPlace(t)
	r := p.start(t, "up")
	url := ""
	address := regexp.MustCompile(`(?m)^ *sut-1 +(http://\S+)`)
	err := clock.Await(t.Context(), "the address of sut-1", time.Minute, 10*time.Millisecond, func(context.Context) (bool, string, error) {
		if m := address.FindStringSubmatch(r.stdout.String()); m != nil {
			url = m[1]
		}
		return url != "", r.stderr.String(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("healthz answers %s", res.Status)
	}
	takenPort(t, r)
	r.signal(t, syscall.SIGINT)
	e := r.end(t)
	want(t, e, 0)
	says(t, "standard output", e.stdout, `^ *postgres +postgres://`, `^ *wiremock +http://`, `^ *pyxis +http://`, `Ctrl-C`)
	if left, _ := filepath.Glob(p.path("runs/library/one-seat/*")); len(left) > 0 {
		t.Errorf("a run directory was left: %v", left)
	}
}

// takenPort starts a second server by hand on the port of the first.
func takenPort(t *testing.T, r *running) {
	t.Helper()
	find := func(x string) string {
		m := regexp.MustCompile(`(?m)^ *` + x).FindStringSubmatch(r.stdout.String())
		if m == nil {
			t.Fatalf("%s is not in:\n%s", x, r.stdout)
		}
		return m[1]
	}
	port := find(`sut-1 +http://(\S+)`)
	other := newPlace(t).with("DATABASE_URL="+find(`postgres +(postgres://\S+)`), "PYXIS_URL="+find(`pyxis +(http://\S+)`), "LISTEN="+port, "REPLICA=by-hand")
	e := other.start(t, "sut", "--design", "library").end(t)
	if e.code == 0 {
		t.Errorf("a server on a taken port: %s", e)
	}
	says(t, "sut on a taken port", e.stderr, regexp.QuoteMeta(port), `address already in use`)
	e = newPlace(t).run(t, 5, "stub", "pyxis", "--listen", port)
	says(t, "stub on a taken port", e.stderr, regexp.QuoteMeta(port), `use port 0`)
}
