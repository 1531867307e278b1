package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/overbook/overbook"

// listed is what `go list -json` tells of one package.
type listed struct {
	ImportPath, Dir, Doc, Name string
	GoFiles, Imports           []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,Name,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 15 {
		t.Fatalf("go list found %d packages, expected the whole tree", len(all))
	}
	return all
}

// short is the path of a package below the module.
func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func within(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// leaves may import the types and the clock; whatever else a leaf needs is
// named here, with the reason.
var leafExceptions = map[string][]string{
	"harness/provision": {"harness/proc"},                      // starts children
	"harness/doctor":    {"harness/provision", "harness/proc"}, // asks what provisioning would find
	"harness/rundir":    {},                                    // files only
	"harness/wire/http": {"harness/load"},                      // accounting of a burst's delivery
	"harness/run":       nil,                                   // conducts: may import every leaf
	"harness/cli":       nil,                                   // composes: may import everything but sut
}

func TestImportDirections(t *testing.T) {
	for _, p := range packages(t) {
		from := short(p.ImportPath)
		for _, imported := range p.Imports {
			to := short(imported)
			if to == imported {
				if from == "harness" && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
					t.Errorf("%s imports %s: the root package uses the standard library alone", from, imported)
				}
				continue
			}
			if why := forbidden(from, to); why != "" {
				t.Errorf("%s imports %s: %s", from, to, why)
			}
		}
	}
}

// forbidden says why one package of ours may not import another, "" if it may.
func forbidden(from, to string) string {
	switch {
	case within(from, "harness") && within(to, "sut"), within(from, "sut") && within(to, "harness"):
		return "the harness and the server under test never meet"
	case from == "harness":
		return "the root package imports nothing of ours"
	case within(from, "reports") && to != "harness":
		return "reports know the types only"
	case within(from, "sut") && !within(to, "sut"):
		return "the server under test stands alone"
	case within(from, "scenarios") && !within(to, "harness", "scenarios", "stubs"), within(from, "scenarios") && within(to, "harness/run", "harness/cli", "harness/wire", "harness/provision", "harness/proc"):
		return "scenarios use the types and the checks, and name doubles"
	case within(from, "stubs") && to != "harness" && to != "harness/clock" && !within(to, "stubs"):
		return "doubles know the types and the clock only"
	case within(from, "harness") && within(to, "scenarios", "stubs", "reports") && from != "harness/cli":
		return "the engine knows no scenario, double or report"
	}
	allowed, listed := leafExceptions[from]
	leaf := within(from, "harness") && from != "harness" && (!listed || allowed != nil)
	if leaf && to != "harness" && to != "harness/clock" && !slices.Contains(allowed, to) {
		return "leaves don't import each other"
	}
	return ""
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Name != "main" && !strings.HasPrefix(p.Doc, "Package "+p.Name+" ") {
			t.Errorf("%s has no package comment that starts with %q", p.ImportPath, "Package "+p.Name)
		}
		if base := filepath.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "helpers", "types", "lib", "misc"}, base) {
			t.Errorf("%s: a package is named by what it owns", p.ImportPath)
		}
	}
}

// homes of calls that must not spread.
var banned = []struct {
	call  string
	homes []string
	why   string
}{
	{"time.Now", []string{"harness/clock", "sut/clock"}, "take the run's clock"},
	{"time.Since", []string{"harness/clock", "sut/clock"}, "take the run's clock"},
	{"time.Sleep", nil, "wait for a condition with a deadline"},
	{"os.Exit", []string{""}, "return an error"},
	{"fmt.Print", nil, "only the command line prints, and it names the stream"},
	{"fmt.Println", nil, "only the command line prints, and it names the stream"},
	{"fmt.Printf", nil, "only the command line prints, and it names the stream"},
	{"log.Fatal", nil, "return an error"},
	{"rand.Intn", nil, "draw from a seeded generator"},
	{"rand.IntN", nil, "draw from a seeded generator"},
	{"rand.Float64", nil, "draw from a seeded generator"},
	{"rand.Perm", nil, "draw from a seeded generator"},
	{"rand.Shuffle", nil, "draw from a seeded generator"},
	{"testing.T", nil, "library code knows no test"},
}

func TestBannedCalls(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			imports := packageNames(file)
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				ident, ok := sel.X.(*ast.Ident)
				if !ok || !imports[ident.Name] {
					return true
				}
				seen++
				for _, b := range banned {
					if ident.Name+"."+sel.Sel.Name == b.call && !slices.Contains(b.homes, short(p.ImportPath)) {
						t.Errorf("%s/%s uses %s: %s", short(p.ImportPath), name, b.call, b.why)
					}
				}
				return true
			})
		}
	}
	if seen < 1000 {
		t.Fatalf("looked at %d uses of packages, expected thousands: does the test still read the tree?", seen)
	}
}

// packageNames are the names by which a file calls the packages that it imports.
func packageNames(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := filepath.Base(path)
		if name == "v2" {
			name = filepath.Base(filepath.Dir(path))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// The budgets of the style guide. Functions and files may grow a little over
// them for a reason; past these they have to be taken apart.
const (
	functionLines = 75
	fileLines     = 420
)

func TestBudgets(t *testing.T) {
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if n := set.Position(file.End()).Line; n > fileLines {
				t.Errorf("%s/%s has %d lines, at most %d", short(p.ImportPath), name, n, fileLines)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > functionLines {
						t.Errorf("%s/%s: %s has %d lines, at most %d", short(p.ImportPath), name, f.Name.Name, n, functionLines)
					}
				}
			}
		}
	}
}
