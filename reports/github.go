package reports

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// githubAnnotations is how many annotations GitHub shows for one step.
const githubAnnotations = 10

// GitHub writes the suite as [GitHubPage] does, without records.
func GitHub(w io.Writer, s harness.Suite) error { return GitHubPage(w, Page{Suite: s}) }

// GitHubPage writes workflow commands: ::error for the ten worst checks that
// did not pass, violations before unknowns, and ::notice for up to ten
// enumerations of crash points. What is left out is counted on a plain line.
func GitHubPage(w io.Writer, page Page) error {
	s := page.Suite
	type finding struct {
		result  harness.Result
		verdict harness.Verdict
	}
	var found []finding
	for _, r := range s.Scenarios {
		if v, ok := unexplained(r); ok && v.Status != harness.Pass {
			found = append(found, finding{r, v})
		}
		for _, v := range r.Checks {
			if checked(v) != harness.Pass {
				found = append(found, finding{r, v})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Compare(checked(b.verdict), checked(a.verdict))
	})
	var b strings.Builder
	for i, f := range found {
		if i == githubAnnotations {
			fmt.Fprintf(&b, "%d more did not pass; the summary has them all\n", len(found)-i)
			break
		}
		b.WriteString(annotation(f.result, f.verdict) + "\n")
	}
	notices := enumerationNotices(page)
	for i, n := range notices {
		if i == githubAnnotations {
			fmt.Fprintf(&b, "%d more enumerations; the summary has them all\n", len(notices)-i)
			break
		}
		b.WriteString(n + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write GitHub annotations: %w", err)
	}
	return nil
}

// enumerationNotices says of each enumeration how much of it was done.
func enumerationNotices(page Page) []string {
	var notices []string
	for _, r := range page.Suite.Scenarios {
		rec, _ := recordOf(page.Records, r)
		for _, n := range enumerationsOf(r, rec) {
			title := marks[severity(r)].word + " " + r.Name
			notices = append(notices, "::notice title="+githubProperty(oneLine(title))+"::"+githubData(n.line()))
		}
	}
	return notices
}

func annotation(r harness.Result, v harness.Verdict) string {
	title := marks[checked(v)].word + " " + r.Name + " " + v.ID
	properties := "title=" + githubProperty(oneLine(title))
	if file, line := ruleFile(v.Rule); file != "" {
		properties = "file=" + githubProperty(file) + line + "," + properties
	}
	return "::error " + properties + "::" + githubData(shortened(verdictText(r, v), evidenceTextRunes))
}

// ruleFile reads "path/to/file.sql:23" into the properties of an annotation.
// A rule that is not a file's path gives nothing.
func ruleFile(rule string) (file, line string) {
	if !strings.Contains(rule, "/") || strings.ContainsAny(rule, " \t\n") || strings.Contains(rule, "://") || printable(rule) != rule {
		return "", ""
	}
	path, number, found := strings.Cut(rule, ":")
	if found && number != "" && strings.Trim(number, "0123456789") == "" {
		return path, ",line=" + number
	}
	return path, ""
}

func githubData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(strings.TrimRight(s, "\n"))
}

func githubProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}
