package rundir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness/rundir"
)

var stored = []string{"plan.json", "history.jsonl", "upstream.jsonl", "postgres.jsonl", "rows.jsonl", "activity.jsonl", "record.json", "result.json"}

func TestMissingFilesAreNamed(t *testing.T) {
	for _, name := range stored {
		dir := commit(t, t.TempDir(), started, record(), result())
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := rundir.Read(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), dir) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	// Whether there was a Postgres wire is in record.json.
	if _, _, err := rundir.Read(filepath.Join(t.TempDir(), "nowhere")); err == nil || strings.Count(err.Error(), "no such file") != len(stored)-1 {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// A file that was cut anywhere, also between two lines, is not a whole run.
func TestCutFilesAreNoticed(t *testing.T) {
	for _, name := range stored {
		dir := commit(t, t.TempDir(), started, record(), result())
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range whole {
			if atLine := cut > 0 && whole[cut-1] == '\n'; !atLine && cut%61 != 0 {
				continue // every cut between lines, some of the others
			}
			if bytes.Equal(bytes.TrimSpace(whole[:cut]), bytes.TrimSpace(whole)) {
				continue // nothing but the last line break is gone
			}
			if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := rundir.Read(dir); err == nil || !strings.Contains(err.Error(), name) {
				t.Fatalf("%s cut after %d of %d bytes: %v", name, cut, len(whole), err)
			}
		}
	}
}

func TestDamagedDocuments(t *testing.T) {
	for _, tc := range []struct{ file, from, to, want string }{
		{"plan.json", `"schema_version": 1`, `"schema_version": 2`, "plan.json: schema version 2"},
		{"plan.json", `"scenario": "hotel/one-room"`, `"scenario": ""`, `plan.json: schema version 1 of scenario ""`},
		{"plan.json", `"seed": "0000002a"`, `"seed": "x"`, "plan.json: seed"},
		{"result.json", `"verdict": "UNKNOWN"`, `"verdict": null`, "result.json: a verdict is missing"},
		{"result.json", `"verdict": "FAIL"`, `"verdicts": "FAIL"`, "result.json: a verdict is missing"},
		{"result.json", `"verdict": "FAIL"`, `"verdict": "pass"`, "result.json: unmarshal status"},
		{"history.jsonl", `"outcome":"ok"`, `"outcome":null`, "history.jsonl:5: operation op-1 has no outcome"},
		{"history.jsonl", `{"op":`, `{"operation":`, "history.jsonl:5: neither an operation nor an event nor a burst nor an open loop"},
		{"history.jsonl", `{"burst":`, "\n\n{{", "history.jsonl:5: invalid character"},
		{"rows.jsonl", `"query":"I2"`, `"query":"I1"`, `rows.jsonl:2: rows of the query "I1": no name, or a second time`},
		{"rows.jsonl", `"query":"I2"`, `"query":""`, `rows.jsonl:2: rows of the query "": no name, or a second time`},
		{"record.json", `"lines"`, `"rows"`, "record.json: does not say how many lines history.jsonl has"},
		{"upstream.jsonl", "\n", "\n{}\n", "upstream.jsonl: 2 lines, 1 were written"},
	} {
		dir := commit(t, t.TempDir(), started, record(), result())
		path := filepath.Join(dir, tc.file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := strings.Replace(string(text), tc.from, tc.to, 1)
		if damaged == string(text) {
			t.Fatalf("%s has no %s:\n%s", tc.file, tc.from, text)
		}
		if err := os.WriteFile(path, []byte(damaged), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := rundir.Read(dir); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s -> %s: got %v, want %s", tc.from, tc.to, err, tc.want)
		}
	}
}
