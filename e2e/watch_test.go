package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// A kin is one process that descends from the program.
type kin struct {
	pid, parent int
	started     string // clock ticks since boot: a pid alone may be somebody else's later
	command     string // spaces between the words
}

func (k kin) String() string { return fmt.Sprintf("process %d: %.150s", k.pid, k.command) }

// processes reads /proc. Zombies are not alive.
func processes() map[int]kin {
	all := map[int]kin{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		i := bytes.LastIndexByte(stat, ')')
		if err != nil || i < 0 {
			continue // ended while we looked
		}
		fields := strings.Fields(string(stat[i+1:])) // from the state, the third
		if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		parent, _ := strconv.Atoi(fields[1])
		all[pid] = kin{pid: pid, parent: parent, started: fields[19]}
	}
	return all
}

// A watch remembers every descendant that the program ever had, so that a
// later look tells which of them it left behind, whoever their parent is then.
type watch struct {
	root int
	done chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	seen map[string]kin
}

func watchKin(root int) *watch {
	w := &watch{root: root, done: make(chan struct{}), seen: map[string]kin{}}
	w.wg.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			w.look()
			select {
			case <-w.done:
				return
			case <-ticker.C:
			}
		}
	})
	return w
}

// look adds those whose parents are known, generation by generation.
func (w *watch) look() {
	all := processes()
	family := map[int]bool{w.root: true}
	for grown := true; grown; {
		grown = false
		for pid, p := range all {
			if family[p.parent] && !family[pid] {
				family[pid], grown = true, true
			}
		}
	}
	delete(family, w.root)
	w.mu.Lock()
	defer w.mu.Unlock()
	for pid := range family {
		p := all[pid]
		key := strconv.Itoa(pid) + " " + p.started
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if p.command = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")); p.command == "" {
			p.command = w.seen[key].command
		}
		w.seen[key] = p
	}
}

func (w *watch) stop() {
	close(w.done)
	w.wg.Wait()
	w.look()
}

// alive gives the descendants that still live and match.
func (w *watch) alive(match *regexp.Regexp) []kin {
	now := processes()
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []kin
	for _, k := range w.seen {
		if p, ok := now[k.pid]; ok && p.started == k.started && match.MatchString(k.command) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b kin) int { return a.pid - b.pid })
	return found
}

var anything = regexp.MustCompile(``)

// What the parts look like in the process table.
var (
	postmaster = regexp.MustCompile(`^\S*/postgres -D \S+`)
	java       = regexp.MustCompile(`java .*wiremock`)
	redis      = regexp.MustCompile(`redis-server|valkey-server`)
	server     = regexp.MustCompile(`overbook sut --design`)
)

// await waits until a descendant of the program matches.
func (w *watch) await(t *testing.T, match *regexp.Regexp) kin {
	t.Helper()
	var found []kin
	err := clock.Await(t.Context(), "a process like "+match.String(), 60*time.Second, 5*time.Millisecond, func(context.Context) (bool, string, error) {
		found = w.alive(match)
		return len(found) > 0, "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

// gone fails the test when a descendant lives on.
func (w *watch) gone(t *testing.T, within time.Duration) {
	t.Helper()
	err := clock.Await(context.Background(), "everything that was started to be gone", within, 10*time.Millisecond, func(context.Context) (bool, string, error) {
		left := w.alive(anything)
		return len(left) == 0, fmt.Sprint(left), nil
	})
	if err != nil {
		t.Error(err)
	}
}

var dataDirectory = regexp.MustCompile(`^\S*/postgres -D (\S+)`)

// clusters are the data directories of the Postgres servers that were started.
func (w *watch) clusters() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var dirs []string
	for _, k := range w.seen {
		if m := dataDirectory.FindStringSubmatch(k.command); m != nil {
			dirs = append(dirs, m[1])
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
