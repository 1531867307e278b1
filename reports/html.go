package reports

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overbook/overbook/harness"
)

//go:embed assets/report.html.tmpl
var pageTemplate string

//go:embed assets/report.css
var pageStyle string

//go:embed assets/report.js
var pageScript string

// A Page is a suite with the records behind it: what the HTML report shows, and
// what Markdown and annotations take crash points from. A scenario without a
// record is shown without its pictures, which the HTML report says.
type Page struct {
	Suite   harness.Suite
	Records map[string]harness.Record // by Result.RunDir, or else by Result.Name
	_       struct{}
}

// HTML writes one self-contained page. It loads nothing (a content security
// policy forbids it), works without JavaScript and without colour, and opens
// at the first violation.
func HTML(w io.Writer, page Page) error {
	t, err := template.New("report").Funcs(template.FuncMap{"long": long}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parse HTML template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, viewOf(page)); err != nil {
		return fmt.Errorf("render HTML report: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}

// A pageView is the page as the template sees it: texts and numbers ready to print.
type pageView struct {
	Policy    string
	Style     template.CSS
	Script    template.JS
	Title     string
	Verdict   markView
	LastLine  string
	Seed      string
	Started   string
	Took      string
	Version   string
	Host      string
	Jump      string // id of the first check that did not pass, "" when all did
	JumpText  string
	Scenarios []scenarioView
}

// A markView is a verdict for readers with and without colour.
type markView struct{ Sign, Word, Class string }

func markOf(s harness.Status) markView {
	class := map[harness.Status]string{harness.Pass: "pass", harness.Unknown: "unknown", harness.Failed: "fail"}
	return markView{marks[s].sign, marks[s].word, class[s]}
}

func viewOf(page Page) pageView {
	s := settled(page.Suite)
	v := pageView{
		Policy: fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
			digest(pageStyle), digest(pageScript)),
		Style:    template.CSS(pageStyle), //nolint:gosec // embedded, not input
		Script:   template.JS(pageScript), //nolint:gosec // embedded, not input
		Verdict:  markOf(s.Verdict),
		LastLine: lastLine(s),
		Seed:     s.Seed.String(),
		Started:  s.Started.UTC().Format("2006-01-02 15:04:05 MST"),
		Took:     millis(s.DurationMS),
		Version:  cmp.Or(s.Tool, "overbook") + " " + s.Version,
		Host:     hostLine(s.Host),
	}
	v.Title = v.Verdict.Word + ": " + v.LastLine
	for i, r := range s.Scenarios {
		rec, have := recordOf(page.Records, r)
		one := scenarioOf(fmt.Sprintf("s%d", i+1), r, rec, have)
		one.Open = one.Verdict.Class != "pass" || len(s.Scenarios) == 1
		v.Scenarios = append(v.Scenarios, one)
	}
	v.Jump, v.JumpText = firstBad(v.Scenarios)
	return v
}

// firstBad is where the page opens: at the first violation, else at the first unknown.
func firstBad(scenarios []scenarioView) (id, text string) {
	for _, class := range []struct{ name, text string }{{"fail", "Go to the first violation"}, {"unknown", "Go to the first UNKNOWN"}} {
		for _, s := range scenarios {
			if s.Verdict.Class != class.name {
				continue
			}
			for _, c := range s.Checks {
				if c.Verdict.Class == class.name {
					return c.ID, class.text
				}
			}
			return s.ID, class.text
		}
	}
	return "", ""
}

// screen writes microseconds with their sign, which text for terminals avoids.
func screen(figure string) string { return strings.ReplaceAll(figure, " us", " µs") }

// long reports whether a cell may be broken over lines; short ones may not.
func long(cell string) bool { return utf8.RuneCountInString(cell) > 30 }

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// micros writes a duration as whole microseconds in groups of three: 1 203 221.
func micros(d time.Duration) string {
	n := d.Microseconds()
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}
