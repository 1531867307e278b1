package reports_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// junitDoc reads JUnit as a CI server would, with none of the writer's types.
type junitDoc struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Suites   []struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure []xmlText `xml:"failure"`
			Error   []xmlText `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type xmlText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func junit(t rapid.TB, s harness.Suite) junitDoc {
	t.Helper()
	var b bytes.Buffer
	if err := reports.JUnit(&b, s); err != nil {
		t.Fatal(err)
	}
	var doc junitDoc
	if err := xml.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatalf("%v in:\n%q", err, b.String())
	}
	return doc
}

func TestJUnitCarriesVerdictEvidenceAndReplay(t *testing.T) {
	doc := junit(t, page().Suite)
	if doc.Tests != 9 || doc.Failures != 2 || doc.Errors != 2 {
		t.Errorf("%d tests, %d failures, %d errors; want 9, 2, 2", doc.Tests, doc.Failures, doc.Errors)
	}
	failed := doc.Suites[1].Cases[1]
	if failed.Name != "L-I3" || len(failed.Failure) != 1 {
		t.Fatalf("the second case of the second suite is %+v, want the failure of L-I3", failed)
	}
	for _, want := range []string{"{student-17,student-61}", "confirm-017", "overbook replay runs/library/one-seat@direct/"} {
		if !strings.Contains(failed.Failure[0].Text, want) {
			t.Errorf("%q is missing from the failure:\n%s", want, failed.Failure[0].Text)
		}
	}
	unknown := doc.Suites[2].Cases[0]
	if len(unknown.Error) != 1 || !strings.Contains(unknown.Error[0].Message, "vacuous") || !strings.Contains(unknown.Error[0].Text, "what to do: ") {
		t.Errorf("the unknown case is %+v, want an error with reason and advice", unknown)
	}
}

// TestJUnitCountsEveryBadCheck: whatever the texts hold, the XML parses, and
// there are as many failures as failed checks.
func TestJUnitCountsEveryBadCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySuite(t)
		doc := junit(t, s)
		if len(doc.Suites) != len(s.Scenarios) {
			t.Fatalf("%d suites for %d scenarios", len(doc.Suites), len(s.Scenarios))
		}
		for i, r := range s.Scenarios {
			bad := 0
			for _, c := range doc.Suites[i].Cases {
				bad += len(c.Failure) + len(c.Error)
			}
			good := r.Verdict == harness.Pass && len(r.Checks) > 0
			for _, v := range r.Checks {
				good = good && v.Status == harness.Pass
			}
			if good != (bad == 0) {
				t.Fatalf("suite %d: %d bad cases, passed is %v", i, bad, good)
			}
			if bad != doc.Suites[i].Failures+doc.Suites[i].Errors || doc.Suites[i].Tests != len(doc.Suites[i].Cases) {
				t.Fatalf("suite %d: its counts are not those of its cases", i)
			}
		}
	})
}

func TestGitHubShowsTheWorstTen(t *testing.T) {
	r, _ := passing()
	r.Verdict, r.Checks = harness.Failed, nil
	for i := range 9 {
		r.Checks = append(r.Checks, harness.Verdict{ID: fmt.Sprintf("unknown-%d", i), Status: harness.Unknown, Reason: harness.ReasonTimeout})
	}
	for i := range 5 {
		r.Checks = append(r.Checks, harness.Verdict{ID: fmt.Sprintf("failed-%d", i), Status: harness.Failed, Rule: "scenarios/a,b.sql:7"})
	}
	var b bytes.Buffer
	if err := reports.GitHub(&b, harness.Suite{Scenarios: []harness.Result{r}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 11 || lines[10] != "4 more did not pass; the summary has them all" {
		t.Fatalf("got %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	for i, l := range lines[:5] {
		if !strings.HasPrefix(l, "::error file=scenarios/a%2Cb.sql,line=7,title=FAIL "+r.Name+fmt.Sprintf(" failed-%d::", i)) {
			t.Errorf("line %d is not the violation %d: %s", i, i, l)
		}
	}
}

// TestGitHubCantBeForged: every line is our own command, whatever a server answered.
func TestGitHubCantBeForged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := reports.GitHubPage(&b, anyPage(t)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			ours := strings.HasPrefix(line, "::error ") || strings.HasPrefix(line, "::notice ") && strings.Contains(line, "::crash points of a")
			if !ours && !strings.HasSuffix(line, "; the summary has them all\n") {
				t.Fatalf("forged line %q", line)
			}
			if strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\r\x1b\x00") {
				t.Fatalf("control characters in %q", line)
			}
		}
	})
}

func TestNothingToAnnotateWhenAllPassed(t *testing.T) {
	r, _ := passing()
	var b bytes.Buffer
	if err := reports.GitHub(&b, harness.Suite{Scenarios: []harness.Result{r}}); err != nil {
		t.Fatal(err)
	}
	if b.Len() != 0 {
		t.Errorf("got %q", b.String())
	}
}

// TestMarkdownKeepsItsTables: no text breaks a row, a fence, or lets markup
// through that is not ours.
func TestMarkdownKeepsItsTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPage(t)
		var b bytes.Buffer
		if err := reports.MarkdownPage(&b, p); err != nil {
			t.Fatal(err)
		}
		rows, fence := map[int]int{}, "" // by bars
		enumerations, open := 0, 0
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case fence != "":
				if line == fence {
					fence = ""
				}
			case strings.HasPrefix(line, "```"):
				fence = strings.TrimSuffix(line, "text")
			case line == "<details><summary>the points</summary>":
				enumerations++
				open++
			case line == "</details>":
				open--
			default:
				if strings.HasPrefix(line, "| ") {
					rows[strings.Count(strings.ReplaceAll(line, `\\`, ""), "|")-strings.Count(strings.ReplaceAll(line, `\\`, ""), `\|`)]++
				}
				if strings.Contains(line, "<") {
					t.Fatalf("markup in %q", line)
				}
			}
		}
		if n := len(p.Suite.Scenarios); n > 0 && rows[10] != n+2 || rows[8] < 3*enumerations || fence != "" || open != 0 {
			t.Fatalf("rows by bars %v for %d scenarios and %d enumerations, open fence %q, %d open details", rows, n, enumerations, fence, open)
		}
		delete(rows, 10)
		delete(rows, 8)
		if len(rows) > 0 {
			t.Fatalf("rows that are of no table, by bars: %v", rows)
		}
	})
}

// TestEnumerationsAreNoticed: also where all passed, a line for each, up to ten.
func TestEnumerationsAreNoticed(t *testing.T) {
	p := crashPage()
	var b bytes.Buffer
	if err := reports.GitHubPage(&b, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"::notice title=PASS telescope/booking-crash::crash points of a booking: 16 of 16\n",
		"::notice title=FAIL telescope/booking-crash::crash points of a booking: 20 of 20, 6 went wrong\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in:\n%s", want, b.String())
		}
	}
	p.Suite.Scenarios = slices.Repeat(p.Suite.Scenarios[:1], 12)
	b.Reset()
	if err := reports.GitHubPage(&b, p); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "::notice "); n != 10 || !strings.HasSuffix(b.String(), "\n2 more enumerations; the summary has them all\n") {
		t.Errorf("%d notices in:\n%s", n, b.String())
	}
}
