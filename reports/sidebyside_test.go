package reports

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

func costly() harness.Result {
	return harness.Result{
		Name: "shop/policy_cost", Verdict: harness.Pass,
		Measurements: map[string]float64{
			"refunds@keep": 2, "refunds@free": 1241720, "kept <s>@keep": 900.601, "alone": 7, "@keep": 1, "odd@": 2,
		},
	}
}

func TestSideBySide(t *testing.T) {
	want := &tableView{
		Head: []string{"measured", "free", "keep"}, Numeric: []bool{false, true, true},
		Rows: [][]string{{"kept <s>", "", "900.601"}, {"refunds", "1241720", "2"}},
	}
	if diff := cmp.Diff(want, sideBySide(costly())); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
	if got := sideBySide(harness.Result{Measurements: map[string]float64{"alone": 1}}); got != nil {
		t.Errorf("a table of nothing: %v", got)
	}
	facts := []fact{{"@keep", "1"}, {"alone", "7"}, {"odd@", "2"}}
	if diff := cmp.Diff(facts, measuredFacts(costly())); diff != "" {
		t.Errorf("the other measurements (-want +got):\n%s", diff)
	}
}

func TestSideBySideIsWritten(t *testing.T) {
	suite := harness.Suite{Scenarios: []harness.Result{costly()}}
	const table = "    measured     free     keep\n    kept <s>           900.601\n    refunds   1241720        2\n"
	for _, o := range []TextOptions{{}, {Verbose: true}, {Streamed: true}} {
		var b strings.Builder
		if err := Text(&b, suite, o); err != nil || strings.Count(b.String(), table) != 1 {
			t.Errorf("text with %+v: %v\n%s\nlacks\n%s", o, err, b.String(), table)
		}
	}
	failed := costly()
	failed.Verdict = harness.Failed
	var b strings.Builder
	if err := Text(&b, harness.Suite{Scenarios: []harness.Result{failed}}, TextOptions{}); err != nil || strings.Count(b.String(), table) != 1 {
		t.Errorf("a block: %v\n%s\nlacks\n%s", err, b.String(), table)
	}
	b.Reset()
	const md = "\nshop/policy\\_cost:\n\n| measured | free | keep |\n| --- | ---: | ---: |\n| kept &lt;s&gt; |  | 900.601 |\n| refunds | 1241720 | 2 |\n"
	if err := Markdown(&b, suite); err != nil || !strings.Contains(b.String(), md) {
		t.Errorf("Markdown: %v\n%s\nlacks\n%s", err, b.String(), md)
	}
	b.Reset()
	if err := HTML(&b, Page{Suite: suite}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"<h3>Side by side</h3>", "<th class=\"num\">free</th>", "<td>kept &lt;s&gt;</td>", "<td class=\"num\">1241720</td>"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page lacks %s", part)
		}
	}
}
