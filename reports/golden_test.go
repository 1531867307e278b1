package reports_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/overbook/overbook/reports"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with testdata/name, or rewrites it under -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./reports -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); go test ./reports -update accepts it:\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	p, crash := page(), crashPage()
	for _, c := range []struct {
		file  string
		write func(*bytes.Buffer) error
	}{
		{"text.golden", func(b *bytes.Buffer) error { return reports.Text(b, p.Suite, reports.TextOptions{Records: p.Records}) }},
		{"text_verbose.golden", func(b *bytes.Buffer) error {
			return reports.Text(b, p.Suite, reports.TextOptions{Verbose: true, Width: 80})
		}},
		{"text_color.golden", func(b *bytes.Buffer) error {
			return reports.Text(b, p.Suite, reports.TextOptions{Color: true, Width: 100, Records: p.Records})
		}},
		{"markdown.golden", func(b *bytes.Buffer) error { return reports.Markdown(b, p.Suite) }},
		{"crash_text.golden", func(b *bytes.Buffer) error {
			return reports.Text(b, crash.Suite, reports.TextOptions{Records: crash.Records})
		}},
		{"crash_text_verbose.golden", func(b *bytes.Buffer) error {
			return reports.Text(b, crash.Suite, reports.TextOptions{Verbose: true, Records: crash.Records})
		}},
		{"crash_markdown.golden", func(b *bytes.Buffer) error { return reports.MarkdownPage(b, crash) }},
		{"junit.golden", func(b *bytes.Buffer) error { return reports.JUnit(b, p.Suite) }},
		{"github.golden", func(b *bytes.Buffer) error { return reports.GitHub(b, p.Suite) }},
		{"suite_json.golden", func(b *bytes.Buffer) error { return reports.JSON(b, p.Suite) }},
		{"amplify_text.golden", func(b *bytes.Buffer) error { return reports.AmplifyText(b, amplification(), reports.TextOptions{}) }},
		{"amplify_markdown.golden", func(b *bytes.Buffer) error { return reports.AmplifyMarkdown(b, amplification()) }},
		{"amplify_json.golden", func(b *bytes.Buffer) error { return reports.AmplifyJSON(b, amplification()) }},
		{"html_outline.golden", func(b *bytes.Buffer) error {
			b.WriteString(outline(parsed(t, rendered(t, p))))
			return nil
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			var b bytes.Buffer
			if err := c.write(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file, b.Bytes())
		})
	}
}

func rendered(t *testing.T, p reports.Page) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := reports.HTML(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parsed(t *testing.T, doc []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// outline is what a reader sees of the page, without the pictures' bars.
func outline(root *html.Node) string {
	var b strings.Builder
	var walk func(n *html.Node, depth int)
	walk = func(n *html.Node, depth int) {
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			if c.Type != html.ElementNode || c.Data == "style" || c.Data == "script" {
				continue
			}
			switch c.Data {
			case "h1", "h2", "h3", "p", "figcaption", "th", "td", "pre", "dt", "dd", "caption":
				b.WriteString(strings.Repeat("  ", depth) + c.Data + classOf(c) + ": " + strings.Join(strings.Fields(textOf(c)), " ") + "\n")
			case "svg":
				b.WriteString(strings.Repeat("  ", depth) + "svg" + classOf(c) + " " + attr(c, "aria-label") + "\n")
			case "details", "section", "article", "figure", "table", "nav", "main", "header", "footer":
				b.WriteString(strings.Repeat("  ", depth) + c.Data + classOf(c) + idOf(c) + "\n")
				walk(c, depth+1)
			default:
				walk(c, depth)
			}
		}
	}
	walk(root, 0)
	return b.String()
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func classOf(n *html.Node) string {
	if c := attr(n, "class"); c != "" {
		return "." + strings.ReplaceAll(c, " ", ".")
	}
	return ""
}

func idOf(n *html.Node) string {
	if id := attr(n, "id"); id != "" {
		return "#" + id
	}
	return ""
}

func textOf(n *html.Node) string {
	if n.Type == html.TextNode {
		return n.Data
	}
	var b strings.Builder
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		b.WriteString(textOf(c))
	}
	return b.String()
}

// elements gives all elements of a name.
func elements(root *html.Node, name string) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && (n.Data == name || name == "*") {
			found = append(found, n)
		}
	}
	return found
}
