package mutant_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/mutant"
)

const (
	preamble = "Title: nobody is first\nBug: as told by a reader\nKilled-by: hotel/one-room L-I3\nKilled-by: hotel/two-rooms answers\n\n"
	greeting = `--- a/sut/word/word.go
+++ b/sut/word/word.go
@@ -1,4 +1,4 @@
 package word
 
 // Word is what the program says.
-const Word = "right"
+const Word = "wrong"
`
)

// tree makes a source tree with a program that says "right", and the patches.
func tree(t *testing.T, patches map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"go.mod":           "module github.com/overbook/overbook\n\ngo 1.26.0\n",
		"main.go":          "package main\n\nimport \"github.com/overbook/overbook/sut/word\"\n\nfunc main() { print(word.Word) }\n",
		"sut/word/word.go": "package word\n\n// Word is what the program says.\nconst Word = \"right\"\n",
		"harness/judge.go": "package harness\n\nconst Judge = 1\n",
	}
	for name, text := range patches {
		files[mutant.Folder+"/"+name] = text
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// contents gives every file below the root.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wants(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("got %v, want %q in it", err, p)
		}
	}
}

func TestRoot(t *testing.T) {
	root := tree(t, nil)
	for _, dir := range []string{root, filepath.Join(root, "sut", "word")} {
		if got, err := mutant.Root(dir); err != nil || got != root {
			t.Errorf("from %s: %s, %v", dir, got, err)
		}
	}
	t.Chdir(filepath.Join(root, "sut"))
	if got, err := mutant.Root("."); err != nil || !sameFile(t, got, root) {
		t.Errorf("from a relative path: %s, %v", got, err)
	}
	_, err := mutant.Root(t.TempDir())
	wants(t, err, "not in a checkout of Overbook", "clone the repository")
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return os.SameFile(one, other)
}

func TestAllAndFind(t *testing.T) {
	root := tree(t, map[string]string{
		"L-M10-ten.patch": preamble + greeting, "L-M2-two.patch": preamble + greeting, "T-M1-other-design.patch": preamble + greeting, "README.md": "no patch",
	})
	all, err := mutant.All(root)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	if d := cmp.Diff([]string{"L-M2", "L-M10", "T-M1"}, ids); d != "" {
		t.Error(d)
	}
	m, err := mutant.Find(root, "l-m2")
	if err != nil {
		t.Fatal(err)
	}
	if m.Title != "nobody is first" || m.Bug != "as told by a reader" || m.File != "sut/mutants/L-M2-two.patch" {
		t.Errorf("%+v", m)
	}
	if d := cmp.Diff([]mutant.Killer{{Scenario: "hotel/one-room", Check: "L-I3"}, {Scenario: "hotel/two-rooms", Check: "answers"}}, m.Killers); d != "" {
		t.Error(d)
	}
	_, err = mutant.Find(root, "L-M3")
	wants(t, err, `no mutant "L-M3" below sut/mutants; there are L-M2, L-M10, T-M1`)
	_, err = mutant.Find(tree(t, nil), "L-M3")
	wants(t, err, "there are none")
}

func TestPatchesThatCannotBeRead(t *testing.T) {
	const need = "the preamble needs `Title: …` and `Killed-by: <scenario> <check>`, and then a diff"
	for name, tc := range map[string]struct{ text, want string }{
		"no title":             {strings.Replace(preamble, "Title: ", "Name: ", 1) + greeting, need},
		"no killer":            {"Title: t\n\n" + greeting, need},
		"a killer, no check":   {"Title: t\nKilled-by: hotel/one-room\n\n" + greeting, need},
		"second without check": {"Title: t\nKilled-by: a b\nKilled-by: c\n\n" + greeting, need},
		"no diff":              {preamble, need},
		"a broken diff":        {preamble + strings.Replace(greeting, "-1,4 +1,4", "-1,9 +1,4", 1), "L-M1-x.patch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mutant.All(tree(t, map[string]string{"L-M1-x.patch": tc.text}))
			wants(t, err, "sut/mutants/L-M1-x.patch", tc.want)
		})
	}
	_, err := mutant.All(tree(t, map[string]string{"L-M1-x.patch": preamble + greeting, "L-M1-y.patch": preamble + greeting}))
	wants(t, err, "sut/mutants/L-M1-y.patch: there is another mutant L-M1")
}

func one(t *testing.T, diff string) (mutant.Mutant, string) {
	t.Helper()
	root := tree(t, map[string]string{"L-M1-x.patch": preamble + diff})
	m, err := mutant.Find(root, "L-M1")
	if err != nil {
		t.Fatal(err)
	}
	return m, root
}

func TestApply(t *testing.T) {
	for name, header := range map[string]string{"plain": "", "git": "diff --git a/sut/word/word.go b/sut/word/word.go\nindex 1111111..2222222 100644\n"} {
		t.Run(name, func(t *testing.T) { applies(t, header+greeting) })
	}
}

func applies(t *testing.T, diff string) {
	m, root := one(t, diff)
	before := contents(t, root)
	changed, err := m.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"sut/word/word.go": "package word\n\n// Word is what the program says.\nconst Word = \"wrong\"\n"}
	got := map[string]string{}
	for name, b := range changed {
		got[name] = string(b)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(before, contents(t, root)); d != "" {
		t.Errorf("the tree was touched: %s", d)
	}
}

func TestApplyRefuses(t *testing.T) {
	const only = "mutants change text files, they do not add, remove or rename"
	word := strings.NewReplacer("sut/word/word.go", "harness/judge.go", " package word", " package harness",
		" // Word is what the program says.\n", "", "Word = \"right\"", "Judge = 1", "Word = \"wrong\"", "Judge = 2", "-1,4 +1,4", "-1,3 +1,3")
	for name, tc := range map[string]struct {
		diff  string
		wants []string
	}{
		"the code has moved on": {strings.Replace(greeting, `"right"`, `"left"`, 1), []string{"sut/mutants/L-M1-x.patch no longer applies to sut/word/word.go", "refresh the patch"}},
		"a file that is gone":   {strings.ReplaceAll(greeting, "word.go", "gone.go"), []string{"sut/mutants/L-M1-x.patch", "gone.go"}},
		"a new file":            {"--- /dev/null\n+++ b/sut/new.go\n@@ -0,0 +1 @@\n+package sut\n", []string{only, "sut/new.go"}},
		"a deleted file":        {"diff --git a/sut/word/word.go b/sut/word/word.go\ndeleted file mode 100644\n--- a/sut/word/word.go\n+++ /dev/null\n@@ -1,4 +0,0 @@\n-package word\n-\n-// Word is what the program says.\n-const Word = \"right\"\n", []string{only}},
		"a renamed file":        {"diff --git a/sut/word/word.go b/sut/word/other.go\nsimilarity index 100%\nrename from sut/word/word.go\nrename to sut/word/other.go\n", []string{only}},
		"a bug in the judge":    {word.Replace(greeting), []string{"mutants change files below sut/, not harness/judge.go"}},
		"out by a side door":    {strings.ReplaceAll(word.Replace(greeting), "harness/judge.go", "sut/../harness/judge.go"), []string{"mutants change files below sut/"}},
		"nothing changed":       {strings.Replace(greeting, `"wrong"`, `"right"`, 1), []string{"changes nothing in sut/word/word.go"}},
		"one file twice":        {greeting + greeting, []string{"sut/word/word.go is changed twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := one(t, tc.diff)
			changed, err := m.Apply(root)
			wants(t, err, tc.wants...)
			if len(changed) > 0 {
				t.Errorf("%d files changed all the same", len(changed))
			}
		})
	}
}

func TestBuildPlantsTheBugAndLeavesTheTree(t *testing.T) {
	m, root := one(t, greeting)
	before := contents(t, root)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Chdir(filepath.Dir(root)) // relative paths must mean what they mean here
	dir := t.TempDir()
	program, err := m.Build(t.Context(), filepath.Base(root), dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "l-m1", "overbook"); program != want {
		t.Errorf("built %s, want %s", program, want)
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil || string(out) != "wrong" {
		t.Errorf("the mutant says %q, %v", out, err)
	}
	if d := cmp.Diff(before, contents(t, root)); d != "" {
		t.Errorf("the tree was touched: %s", d)
	}
}

func TestBuildErrorsCarryTheCompilersWords(t *testing.T) {
	m, root := one(t, strings.Replace(greeting, `+const Word = "wrong"`, `+const Word = wrong`, 1))
	_, err := m.Build(t.Context(), root, t.TempDir())
	wants(t, err, "build mutant L-M1", "undefined: wrong")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, root = one(t, greeting)
	if _, err := m.Build(ctx, root, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build: %v", err)
	}
}
