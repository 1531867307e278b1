// Package mutant plants one bug in the reference server: a patch is applied in
// memory, handed to `go build -overlay`, and gives a program that is the
// server with that bug. The tree is never touched.
//
// A patch is a unified diff below sut/mutants with a preamble:
//
//	Title: what the bug is
//	Bug: the report or text it stands for, in our own words
//	Killed-by: <scenario> <check>
//
// It must not run scenarios or decide whether a mutant was killed.
package mutant

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// Folder is where the patches live, below the source tree's root.
const Folder = "sut/mutants"

// A Mutant is one planted bug.
type Mutant struct {
	ID       string // "L-M1", from the file's name
	File     string // below the root
	Title    string
	Bug      string
	Killers  []Killer // scenarios that must turn red, each with the check
	preamble string
	files    []*gitdiff.File
}

// A Killer is a scenario and the check of it that must be violated.
type Killer struct {
	Scenario, Check string
}

// Root finds the source tree that holds dir: the folder with our go.mod.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		b, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && bytes.HasPrefix(b, []byte("module github.com/overbook/overbook\n")) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("mutants are built from source, and %s is not in a checkout of Overbook: clone the repository and run there (Go is needed too)", dir)
		}
	}
}

// All reads every patch of the tree, in order of their ids.
func All(root string) ([]Mutant, error) {
	names, err := filepath.Glob(filepath.Join(root, Folder, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []Mutant
	var errs []error
	for _, name := range names {
		m, err := read(root, name)
		if slices.ContainsFunc(all, func(o Mutant) bool { return strings.EqualFold(o.ID, m.ID) }) {
			err = errors.Join(err, fmt.Errorf("read %s: there is another mutant %s", m.File, m.ID))
		}
		errs = append(errs, err)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Mutant) int { return compareIDs(a.ID, b.ID) })
	return all, errors.Join(errs...)
}

// compareIDs orders L-M2 before L-M16.
func compareIDs(a, b string) int {
	if len(a) != len(b) && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Find gives the mutant with the id.
func Find(root, id string) (Mutant, error) {
	all, err := All(root)
	if err != nil {
		return Mutant{}, err
	}
	ids := make([]string, 0, len(all))
	for _, m := range all {
		if strings.EqualFold(m.ID, id) {
			return m, nil
		}
		ids = append(ids, m.ID)
	}
	return Mutant{}, fmt.Errorf("no mutant %q below %s; there are %s", id, Folder, cmp.Or(strings.Join(ids, ", "), "none"))
}

// read reads one patch and its preamble.
func read(root, name string) (Mutant, error) {
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return Mutant{}, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return Mutant{}, err
	}
	m := Mutant{File: filepath.ToSlash(rel), ID: idOf(filepath.Base(name))}
	if m.files, m.preamble, err = gitdiff.Parse(bytes.NewReader(text)); err != nil {
		return m, fmt.Errorf("read %s: %w", rel, err)
	}
	for _, f := range m.files { // plain diffs keep the prefixes, those of git don't
		f.OldName, f.NewName = strings.TrimPrefix(f.OldName, "b/"), strings.TrimPrefix(f.NewName, "b/")
	}
	for line := range strings.Lines(m.preamble) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Title":
			m.Title = value
		case "Bug":
			m.Bug = value
		case "Killed-by":
			scenario, check, _ := strings.Cut(value, " ")
			m.Killers = append(m.Killers, Killer{scenario, strings.TrimSpace(check)})
		}
	}
	nameless := slices.ContainsFunc(m.Killers, func(k Killer) bool { return k.Scenario == "" || k.Check == "" })
	if m.Title == "" || len(m.Killers) == 0 || nameless || len(m.files) == 0 {
		return m, fmt.Errorf("read %s: the preamble needs `Title: …` and `Killed-by: <scenario> <check>`, and then a diff", rel)
	}
	return m, nil
}

// idOf takes "L-M1" out of "L-M1-no-grouping.patch".
func idOf(base string) string {
	parts := strings.SplitN(strings.TrimSuffix(base, ".patch"), "-", 3)
	return strings.Join(parts[:min(2, len(parts))], "-")
}

// target is the part of the tree that mutants may change: the server under
// test. A bug in the harness would be one in the judge.
const target = "sut/"

// Apply gives the mutated files by their path below the root. A patch that no
// longer fits the tree, changes nothing, or changes more than the server under
// test is an error that names the file and the place.
func (m Mutant) Apply(root string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, f := range m.files {
		if f.IsNew || f.IsDelete || f.OldName != f.NewName || f.IsBinary {
			return nil, fmt.Errorf("%s: mutants change text files, they do not add, remove or rename (%s)", m.File, f.NewName)
		}
		if !strings.HasPrefix(path.Clean(f.OldName), target) {
			return nil, fmt.Errorf("%s: mutants change files below %s, not %s", m.File, target, f.OldName)
		}
		if _, twice := changed[f.OldName]; twice {
			return nil, fmt.Errorf("%s: %s is changed twice; put all its hunks under one header", m.File, f.OldName)
		}
		old, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.OldName)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.File, err)
		}
		var out bytes.Buffer
		if err := gitdiff.Apply(&out, bytes.NewReader(old), f); err != nil {
			return nil, fmt.Errorf("%s no longer applies to %s: %w (refresh the patch)", m.File, f.OldName, err)
		}
		if bytes.Equal(old, out.Bytes()) {
			return nil, fmt.Errorf("%s: changes nothing in %s", m.File, f.OldName)
		}
		changed[f.OldName] = out.Bytes()
	}
	return changed, nil
}

// waitDelay bounds how long a cancelled build's own children are waited for.
const waitDelay = 5 * time.Second

// Build builds the program with the bug planted, below dir, and gives its path.
func (m Mutant) Build(ctx context.Context, root, dir string) (string, error) {
	root, rootErr := filepath.Abs(root) // the build runs in root, where a relative path would mean another place
	dir, dirErr := filepath.Abs(dir)
	if err := errors.Join(rootErr, dirErr); err != nil {
		return "", err
	}
	changed, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	work := filepath.Join(dir, strings.ToLower(m.ID))
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, content := range changed {
		mutated := filepath.Join(work, filepath.FromSlash(name))
		if err := writeFile(mutated, content); err != nil {
			return "", fmt.Errorf("write the mutated %s: %w", name, err)
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(name))] = mutated
	}
	doc, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	overlayFile, program := filepath.Join(work, "overlay.json"), filepath.Join(work, "overbook")
	if err := writeFile(overlayFile, doc); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlayFile, "-o", program, ".")
	cmd.Dir = root
	cmd.WaitDelay = waitDelay
	if out, err := cmd.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("build mutant %s: Go is not installed; mutants are built from source", m.ID)
		}
		return "", fmt.Errorf("build mutant %s: %w\n%s", m.ID, err, out)
	}
	return program, nil
}

func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, fs.FileMode(0o644))
}
