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

// GitHub writes workflow commands (::error) for the ten worst checks that did
// not pass; violations come before unknowns. What is left out is counted on a
// last, plain line.
func GitHub(w io.Writer, s harness.Suite) error {
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
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write GitHub annotations: %w", err)
	}
	return nil
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
