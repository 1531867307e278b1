package reports

import (
	"fmt"
	"io"

	"github.com/overbook/overbook/harness"
)

// A Page is what the HTML report shows.
type Page struct {
	Suite   harness.Suite
	Records map[string]harness.Record // by Result.RunDir, or by Result.Name
	_       struct{}
}

// HTML writes one self-contained page.
func HTML(w io.Writer, page Page) error {
	_, err := fmt.Fprintf(w, "<!doctype html><title>overbook</title><p>%s</p>\n", lastLine(page.Suite))
	return err
}
