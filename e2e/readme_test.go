package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shellBlock is a block of commands in a document.
var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// redLines are the commands of README that show a violation: they must end
// with 1. All others must end with 0.
var redLines = []string{"--set window=150ms", "--mutant"}

// suitePatience bounds a line of README; the whole suite is among them.
const suitePatience = 15 * time.Minute

// Every command line of README is run. Targets of make are only resolved
// (`make -n`): this test is itself run by one of them, and the commands behind
// `make race` are in README, too.
func TestReadmeCommands(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	if err := os.Mkdir(p.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(program, p.path("bin", "overbook")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(strings.TrimSpace(line), "#")
			if command = strings.TrimSpace(command); command == "" {
				continue
			}
			ran++
			t.Run(command, func(t *testing.T) { readmeLine(t, p, root, command) })
		}
	}
	if ran < 15 {
		t.Errorf("%d commands found in README, expected more: are its blocks still marked sh?", ran)
	}
}

func readmeLine(t *testing.T, p *place, root, command string) {
	dir, want := p.dir, 0
	switch {
	case strings.HasPrefix(command, "make "):
		dir, command = root, strings.Replace(command, "make ", "make -n ", 1)
	case strings.Contains(command, "--mutant"): // built from source
		dir = root
		command = strings.Replace(command, "bin/overbook", p.path("bin", "overbook"), 1) + " --out " + p.path("runs")
	}
	for _, red := range redLines {
		if strings.Contains(command, red) && !strings.Contains(command, "path=intent") {
			want = 1
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), suitePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = dir, p.env
	out, err := cmd.CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("%s\nended with %d, want %d\n%s", command, code, want, tail(string(out)))
	}
}
