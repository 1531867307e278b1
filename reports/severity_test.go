package reports_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// TestNoReportIsMilderThanItsChecks: a result whose own verdict is better than
// its checks, or that has no checks, is not shown as a pass anywhere.
func TestNoReportIsMilderThanItsChecks(t *testing.T) {
	failed := []harness.Verdict{{ID: "ok", Status: harness.Pass, Summary: "fine"}, {ID: "bad", Status: harness.Failed, Summary: "two winners"}}
	for _, c := range []struct {
		name   string
		checks []harness.Verdict
		want   string
	}{
		{"a failed check under a pass", failed, "FAIL"},
		{"a check that forgot to decide", []harness.Verdict{{ID: "zero", Summary: "?"}}, "UNKNOWN"},
		{"no checks at all", nil, "UNKNOWN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := harness.Suite{Verdict: harness.Pass, Scenarios: []harness.Result{{Name: "x/y", Verdict: harness.Pass, Checks: c.checks}}}
			for format, doc := range everyFormat(t, reports.Page{Suite: s}) {
				if !strings.Contains(doc, c.want) {
					t.Errorf("%s does not say %s:\n%s", format, c.want, doc)
				}
			}
			if got := reports.Line(s.Scenarios[0], reports.TextOptions{}); !strings.Contains(got, c.want) {
				t.Errorf("the line is %q", got)
			}
		})
	}
}

// TestTroubleBeyondTheChecksIsShown: all checks passed, yet the run is unknown.
func TestTroubleBeyondTheChecksIsShown(t *testing.T) {
	r, _ := passing()
	r.Verdict, r.Reason, r.Summary = harness.Unknown, harness.ReasonDisagree, "ledger 1, wiremock 2"
	for format, doc := range everyFormat(t, reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}}) {
		for _, want := range []string{"UNKNOWN", "observers-disagree", "ledger 1, wiremock 2"} {
			if !strings.Contains(strings.ReplaceAll(doc, `\-`, "-"), want) {
				t.Errorf("%s does not say %q", format, want)
			}
		}
		if format != "json" && !strings.Contains(doc, "compare upstream.jsonl") {
			t.Errorf("%s does not say what to do", format)
		}
	}
}

// TestReportsArePure: the same suite gives the same bytes.
func TestReportsArePure(t *testing.T) {
	first, second := everyFormat(t, page()), everyFormat(t, page())
	for format := range first {
		if first[format] == "" || first[format] != second[format] {
			t.Errorf("%s differs from one time to the next, or is empty", format)
		}
	}
}

func everyFormat(t *testing.T, p reports.Page) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"text":     func(b *bytes.Buffer) error { return reports.Text(b, p.Suite, reports.TextOptions{}) },
		"json":     func(b *bytes.Buffer) error { return reports.JSON(b, p.Suite) },
		"junit":    func(b *bytes.Buffer) error { return reports.JUnit(b, p.Suite) },
		"markdown": func(b *bytes.Buffer) error { return reports.Markdown(b, p.Suite) },
		"github":   func(b *bytes.Buffer) error { return reports.GitHub(b, p.Suite) },
		"html":     func(b *bytes.Buffer) error { return reports.HTML(b, p) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		docs[name] = b.String()
	}
	// The legend of the page explains every verdict; it is no statement.
	if _, body, ok := strings.Cut(docs["html"], "<body"); ok {
		docs["html"], _, _ = strings.Cut(body, "<footer>")
	}
	return docs
}
