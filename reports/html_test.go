package reports_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

func TestPageIsSelfContained(t *testing.T) {
	doc := rendered(t, page())
	root := parsed(t, doc)
	for _, n := range elements(root, "*") {
		for _, a := range n.Attr {
			outward := slices.Contains([]string{"src", "srcset", "action", "background", "poster", "data"}, a.Key) || strings.HasPrefix(a.Key, "on") || a.Key == "style"
			if outward || a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("<%s %s=%q> may load, run or style something", n.Data, a.Key, a.Val)
			}
		}
	}
	style, script := elements(root, "style"), elements(root, "script")
	if len(style) != 1 || len(script) != 1 {
		t.Fatalf("%d style and %d script elements, want one of each", len(style), len(script))
	}
	if css := textOf(style[0]); strings.Contains(css, "url(") || strings.Contains(css, "@import") {
		t.Error("the style sheet loads something")
	}
	var policy string
	for _, m := range elements(root, "meta") {
		if attr(m, "http-equiv") == "Content-Security-Policy" {
			policy = attr(m, "content")
		}
	}
	for _, want := range []string{"default-src 'none'", "style-src 'sha256-" + hash(textOf(style[0])) + "'", "script-src 'sha256-" + hash(textOf(script[0])) + "'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q lacks %q", policy, want)
		}
	}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func TestPageOfAHundredUsersIsUnderOneMegabyte(t *testing.T) {
	r, rec := failing()
	p := reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.RunDir: rec}}
	if n := len(rendered(t, p)); n > 1_000_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestPageOpensAtTheFirstViolation(t *testing.T) {
	root := parsed(t, rendered(t, page()))
	jump := attr(elements(root, "body")[0], "data-jump")
	for _, n := range elements(root, "article") {
		if attr(n, "id") == jump {
			if got := textOf(n); !strings.Contains(got, "L-I3") || !strings.Contains(got, "FAIL") {
				t.Errorf("it opens at %q", got)
			}
			return
		}
	}
	t.Errorf("no check has the id %q", jump)
}

// TestHostileTextStaysText renders arbitrary suites and records: nothing of
// them becomes an element, an attribute or a script.
func TestHostileTextStaysText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := reports.HTML(&b, anyPage(t)); err != nil {
			t.Fatal(err)
		}
		root, err := html.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(elements(root, "script")); n != 1 {
			t.Fatalf("%d scripts", n)
		}
		for _, n := range elements(root, "*") {
			if n.Data == "img" {
				t.Fatal("an image got in")
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") {
					t.Fatalf("<%s %s> got in", n.Data, a.Key)
				}
			}
		}
	})
}

func TestEmptyAndPartialRecordsRender(t *testing.T) {
	r, _ := failing()
	sentOnly := harness.Record{History: harness.History{Operations: []harness.Operation{{ID: "confirm-017", Kind: "confirm", Sent: time.Second, Outcome: harness.Info}}}}
	for _, c := range []struct {
		name string
		page reports.Page
		want string
	}{
		{"no scenario", reports.Page{}, "No scenario was run"},
		{"no record", reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}}, "record was not given to this report"},
		{"empty record", reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.Name: {}}}, "No operation was answered"},
		{"no answers", reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.Name: sentOnly}}, "no whole answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := textOf(parsed(t, rendered(t, c.page))); !strings.Contains(got, c.want) {
				t.Errorf("%q is not on the page", c.want)
			}
		})
	}
}

func bars(root *html.Node) (all, hit int) {
	for _, svg := range elements(root, "svg") {
		if attr(svg, "class") != "tl" {
			continue
		}
		for _, g := range elements(svg, "g") {
			class := strings.Fields(attr(g, "class"))
			if len(class) > 0 && slices.Contains([]string{"ok", "fail", "info", "up"}, class[0]) {
				all++
				if slices.Contains(class, "hit") {
					hit++
				}
			}
		}
	}
	return all, hit
}

func TestTimelineIsCappedAndSaysSo(t *testing.T) {
	r, _ := passing()
	var rec harness.Record
	const over = 17
	for i := range reports.TimelineBars + over {
		at := time.Duration(i+1) * time.Microsecond
		rec.History.Operations = append(rec.History.Operations, harness.Operation{
			ID: fmt.Sprint(i), Process: i % 200, Kind: "read", Sent: at, Intended: at, Answered: at + time.Millisecond, Outcome: harness.OK,
		})
	}
	p := reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.Name: rec}}
	root := parsed(t, rendered(t, p))
	if all, _ := bars(root); all != reports.TimelineBars {
		t.Errorf("%d bars, want %d", all, reports.TimelineBars)
	}
	if want := "17 bars are not drawn: the picture is capped at 10000."; !strings.Contains(textOf(root), want) {
		t.Errorf("the page does not say %q", want)
	}
}

// TestTimelineShowsTheBurstOfTheCounterexample has three rounds and evidence in the second.
func TestTimelineShowsTheBurstOfTheCounterexample(t *testing.T) {
	r, _ := failing()
	var rec harness.Record
	for round := range 3 {
		released := time.Duration(round+1) * time.Second
		rec.History.Bursts = append(rec.History.Bursts, harness.BurstReport{Name: fmt.Sprintf("round-%d", round+1), Requests: 2, Released: released})
		for i := range 2 {
			id := fmt.Sprintf("confirm-%d-%d", round+1, i)
			rec.History.Operations = append(rec.History.Operations,
				harness.Operation{ID: "prepare-" + id, Process: i, Kind: "prepare", Sent: released - 10*time.Millisecond, Answered: released - 9*time.Millisecond, Outcome: harness.OK},
				harness.Operation{ID: id, Process: i, Kind: "confirm", Burst: fmt.Sprintf("round-%d", round+1), Intended: released, Sent: released + time.Microsecond, Answered: released + 100*time.Millisecond, Outcome: harness.OK})
			rec.Upstream = append(rec.Upstream, harness.UpstreamCall{Upstream: "pyxis", Caller: "sut-1", Op: id, Received: released + time.Millisecond, Accepted: released + 90*time.Millisecond, Answered: released + 91*time.Millisecond})
		}
	}
	r.Checks = []harness.Verdict{{ID: "L-I3", Status: harness.Failed, Evidence: []harness.Evidence{{Text: "two", Ops: []string{"confirm-2-1"}}}}}
	p := reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.Name: rec}}
	root := parsed(t, rendered(t, p))
	if all, hit := bars(root); all != 6 || hit != 4 {
		t.Errorf("%d bars, %d highlighted; want 6 (2 clients, 2 calls, 1 of each apart as evidence) and 4", all, hit)
	}
	for _, want := range []string{"release of burst round-2, one of 3", "10 operations are outside of this window", "sent at 1, answered at 100\u202f000 µs"} {
		if !strings.Contains(textOf(root), want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// What passed is folded beside other scenarios; alone it is what the reader came for.
func TestOnePassingScenarioLiesOpen(t *testing.T) {
	passing := harness.Result{Name: "library/one", Verdict: harness.Pass, Checks: []harness.Verdict{{ID: "L-I1", Status: harness.Pass}}}
	for n, want := range map[int]int{1: 1, 2: 0} {
		var page bytes.Buffer
		suite := harness.Suite{Verdict: harness.Pass}
		for range n {
			suite.Scenarios = append(suite.Scenarios, passing)
		}
		if err := reports.HTML(&page, reports.Page{Suite: suite}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(page.String(), " open>"); got != want {
			t.Errorf("%d passing scenarios: %d lie open, want %d", n, got, want)
		}
	}
}
