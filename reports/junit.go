package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property,omitempty"`
	Cases      []junitCase     `xml:"testcase"`
	SystemOut  string          `xml:"system-out,omitempty"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Failure *junitDetail `xml:"failure,omitempty"`
	Error   *junitDetail `xml:"error,omitempty"`
}

type junitDetail struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the suite as JUnit XML: a testsuite for each scenario and a
// testcase for each check. FAIL is a failure with its evidence and the replay
// command, UNKNOWN an error with its reason and what to do. A scenario that is
// worse than all of its checks gets one more case, named "verdict".
func JUnit(w io.Writer, s harness.Suite) error {
	doc := junitSuites{Name: xmlText("overbook"), Time: seconds(s.DurationMS)}
	for _, r := range s.Scenarios {
		suite := junitOf(r)
		doc.Tests += suite.Tests
		doc.Failures += suite.Failures
		doc.Errors += suite.Errors
		doc.Suites = append(doc.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write JUnit report: %w", err)
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("write JUnit report: %w", err)
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return fmt.Errorf("write JUnit report: %w", err)
	}
	return nil
}

func junitOf(r harness.Result) junitSuite {
	suite := junitSuite{
		Name:       xmlText(r.Name),
		Time:       seconds(r.DurationMS),
		Timestamp:  r.Started.UTC().Format(time.RFC3339),
		Properties: junitProperties(r),
		SystemOut:  xmlText(strings.Join(deliveryLines(r), "\n")),
	}
	for _, v := range r.Checks {
		c := junitCase{Class: xmlText(r.Name), Name: xmlText(v.ID), Time: "0.000"}
		switch checked(v) {
		case harness.Failed:
			c.Failure = &junitDetail{Message: xmlText(v.Summary), Type: "FAIL", Text: xmlText(verdictText(r, v))}
		case harness.Unknown:
			c.Error = &junitDetail{Message: xmlText(unknownText(v)), Type: xmlText("UNKNOWN " + string(v.Reason)), Text: xmlText(verdictText(r, v))}
		case harness.Pass:
		}
		suite.Cases = append(suite.Cases, c)
	}
	if extra, ok := unexplained(r); ok {
		c := junitCase{Class: xmlText(r.Name), Name: "verdict", Time: "0.000"}
		detail := &junitDetail{Message: xmlText(extra.Summary), Text: xmlText(verdictText(r, extra))}
		if extra.Status == harness.Failed {
			detail.Type, c.Failure = "FAIL", detail
		} else {
			detail.Type, c.Error = xmlText("UNKNOWN "+string(extra.Reason)), detail
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, c := range suite.Cases {
		suite.Tests++
		if c.Failure != nil {
			suite.Failures++
		}
		if c.Error != nil {
			suite.Errors++
		}
	}
	return suite
}

// unexplained is the verdict of the scenario itself when it is worse than
// every check, so that a list of checks alone would look better than it is.
func unexplained(r harness.Result) (harness.Verdict, bool) {
	if len(r.Checks) > 0 && severity(r) == harness.WorstOf(r.Checks) {
		return harness.Verdict{}, false
	}
	return harness.Verdict{ID: "verdict", Status: severity(r), Reason: r.Reason, Summary: sentence(r)}, true
}

func junitProperties(r harness.Result) []junitProperty {
	properties := []junitProperty{
		{"seed", r.Seed.String()},
		{"replay", xmlText(r.Replay)},
		{"run_dir", xmlText(r.RunDir)},
	}
	if r.Mutant != "" {
		properties = append(properties, junitProperty{"mutant", xmlText(r.Mutant)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		properties = append(properties, junitProperty{xmlText("param." + name), xmlText(r.Params[name])})
	}
	return properties
}

func seconds(ms float64) string { return fmt.Sprintf("%.3f", ms/1000) }

// xmlText drops the characters that XML 1.0 can't hold, not even escaped, and
// replaces broken UTF-8.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r',
			r >= 0x20 && r <= 0xD7FF,
			r >= 0xE000 && r <= 0xFFFD,
			r >= 0x10000 && r <= 0x10FFFF:
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
