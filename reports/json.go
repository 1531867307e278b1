package reports

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/overbook/overbook/harness"
)

// Schema is the JSON Schema (draft 2020-12) of the document that [JSON] writes.
//
//go:embed schema/suite.schema.json
var Schema string

// JSON writes the suite as one indented document with a trailing newline. The
// order of members is fixed; lists and objects without content are [] and {},
// never null. A figure that is no number is an error that names it.
func JSON(w io.Writer, s harness.Suite) error {
	for _, r := range s.Scenarios {
		for name, v := range r.Measurements {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("write JSON report: %s measured %q as %v, which is not a number", r.Name, name, v)
			}
		}
	}
	s = settled(s)
	if s.SchemaVersion == 0 {
		s.SchemaVersion = 1
	}
	return document(w, s)
}

// document writes v as JSON for people and machines.
func document(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON report: %w", err)
	}
	return nil
}
