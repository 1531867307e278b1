package reports_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

func compiled(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(s *jsonschema.Schema, doc []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestJSONKeepsToItsSchema(t *testing.T) {
	schema := compiled(t, reports.Schema)
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		if err := reports.JSON(&b, anySuite(t)); err != nil {
			t.Fatal(err)
		}
		if err := validate(schema, b.Bytes()); err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
	})
	for name, s := range map[string]harness.Suite{"fixture": page().Suite, "empty": {}} {
		var b bytes.Buffer
		if err := reports.JSON(&b, s); err != nil {
			t.Fatal(err)
		}
		if err := validate(schema, b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasSuffix(b.Bytes(), []byte("}\n")) || bytes.Contains(b.Bytes(), []byte("null")) {
			t.Errorf("%s: want one document without null, with a line feed at its end", name)
		}
	}
}

func TestAmplificationKeepsToItsSchema(t *testing.T) {
	schema := compiled(t, reports.AmplifySchema)
	for name, a := range map[string]reports.Amplification{"fixture": amplification(), "empty": {}} {
		var b bytes.Buffer
		if err := reports.AmplifyJSON(&b, a); err != nil {
			t.Fatal(err)
		}
		if err := validate(schema, b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaRefusesOtherDocuments keeps the schema from being so wide that it accepts anything.
func TestSchemaRefusesOtherDocuments(t *testing.T) {
	schema := compiled(t, reports.Schema)
	var b bytes.Buffer
	if err := reports.JSON(&b, page().Suite); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, old, new string }{
		{"verdict", `"verdict": "FAIL"`, `"verdict": "GREEN"`},
		{"extra member", `"tool":`, `"extra": 1, "tool":`},
		{"seed", `"seed": "7f3a91c2"`, `"seed": "7f3a"`},
		{"version", `"schema_version": 1`, `"schema_version": 2`},
		{"reason", `"reason": "vacuous"`, `"reason": "tired"`},
	} {
		doc := strings.Replace(b.String(), c.old, c.new, 1)
		if doc == b.String() {
			t.Fatalf("%s: nothing was replaced", c.what)
		}
		if err := validate(schema, []byte(doc)); err == nil {
			t.Errorf("%s: the schema accepts %s", c.what, c.new)
		}
	}
}

func TestJSONReadsBack(t *testing.T) {
	var first, second bytes.Buffer
	if err := reports.JSON(&first, page().Suite); err != nil {
		t.Fatal(err)
	}
	var s harness.Suite
	if err := json.Unmarshal(first.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if err := reports.JSON(&second, s); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Error("the document changes when it is read and written again")
	}
}

func TestJSONNamesAFigureThatIsNoNumber(t *testing.T) {
	s := page().Suite
	s.Scenarios[0].Measurements = map[string]float64{"ratio": math.NaN()}
	err := reports.JSON(&bytes.Buffer{}, s)
	if err == nil || !strings.Contains(err.Error(), "library/one-seat@intent") || !strings.Contains(err.Error(), "ratio") {
		t.Errorf("got %v, want an error that names the scenario and the measurement", err)
	}
}
