package provision_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
)

// family gives the process that the lock file of a data directory names and
// its children, by their parent: not the way in which they are killed.
func family(t *testing.T, dir string) (pids []int, segment string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	must(t, err)
	lines := strings.Split(string(text), "\n")
	postmaster, err := strconv.Atoi(lines[0])
	must(t, err)
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	pids = []int{postmaster}
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		must(t, err)
		if _, parent := status(pid); parent == postmaster {
			pids = append(pids, pid)
		}
	}
	return pids, strings.Fields(lines[6])[1]
}

// status reads state and parent of a process; "" when there is none.
func status(pid int) (state string, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	_, _ = fmt.Sscan(after, &state, &parent)
	return state, parent
}

func segmentExists(t *testing.T, id string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/sysvipc/shm")
	must(t, err)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == id {
			return true
		}
	}
	return false
}

// A backend that computes does not notice the postmaster's death, and keeps
// its connection: it has to be killed itself.
func TestKillPrimaryLeavesNoProcess(t *testing.T) {
	p := upPair(t, provision.Options{}, true)
	dir := ask(t, p.URL(), `show data_directory`)
	busy, err := pgx.Connect(t.Context(), p.URL())
	must(t, err)
	defer busy.Close(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := busy.Exec(context.Background(), `do $$ begin loop end loop; end $$`)
		ended <- err
	}()
	await(t, "a backend to compute", func() (bool, string, error) {
		n := ask(t, p.URL(), `select count(*)::text from pg_stat_activity where query like 'do %' and state = 'active'`)
		return n == "1", n, nil
	})
	pids, segment := family(t, dir)
	if len(pids) < 5 || !segmentExists(t, segment) {
		t.Fatalf("processes %v, shared memory segment %s", pids, segment)
	}
	must(t, p.KillPrimary(t.Context()))
	for _, pid := range pids {
		if state, _ := status(pid); state != "" && state != "Z" {
			t.Errorf("process %d is still there (%s)", pid, state)
		}
	}
	if segmentExists(t, segment) {
		t.Errorf("shared memory segment %s is still there", segment)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("an endless loop came to an end")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the connection of the backend is still there")
	}
	// It had sent all it had, so that it can follow.
	must(t, p.Promote(t.Context()))
	must(t, p.StartOldFenced(t.Context()))
	must(t, exec1(t.Context(), standbyURL(t, p), `insert into seats values (1)`))
	await(t, "the old primary to follow", func() (bool, string, error) {
		n := count(t, primaryURL(t, p))
		return n == 1, strconv.Itoa(n), nil
	})
	wantReadOnly(t, primaryURL(t, p))
}

func TestPairThatIsClosedLeavesNothing(t *testing.T) {
	const mark = "OVERBOOK_RUN=closed-pair"
	p := upPair(t, provision.Options{MarkEnv: mark}, true)
	dirs := []string{ask(t, p.URL(), `show data_directory`), ask(t, strings.Replace(standbyURL(t, p), "/night", "/postgres", 1), `show data_directory`)}
	if found, err := proc.Living(mark); err != nil || len(found) < 10 {
		t.Errorf("the mark is on too few: %v, %v", found, err)
	}
	for range 2 {
		must(t, p.Close(t.Context()))
	}
	if found, err := proc.Living(mark); err != nil || len(found) != 0 {
		t.Errorf("left after Close: %v, %v", found, err)
	}
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Dir(dir)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	select {
	case <-p.Done():
	default:
		t.Error("a closed pair is not done")
	}
	if err := p.Died(); err != nil {
		t.Errorf("nothing died on its own: %v", err)
	}
	for name, step := range map[string]func(context.Context) error{"kill": p.KillPrimary, "promote": p.Promote, "start": p.StartOldFenced} {
		if err := step(t.Context()); err == nil || !strings.Contains(err.Error(), "the pair is closed") {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestServerOfAPairThatDiesIsNoticed(t *testing.T) {
	p := upPair(t, provision.Options{}, false)
	dir := ask(t, strings.Replace(standbyURL(t, p), "/night", "/postgres", 1), `show data_directory`)
	must(t, p.KillPrimary(t.Context()))
	select {
	case <-p.Done():
		t.Errorf("KillPrimary was taken for an accident: %v", p.Died())
	default:
	}
	pids, segment := family(t, dir)
	must(t, syscall.Kill(pids[0], syscall.SIGKILL))
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("nobody noticed")
	}
	wantProblem(t, p.Died(), "the standby PostgreSQL died during the run")
	wantProblem(t, p.Promote(t.Context()), "promote the standby", "died during the run", "postgres-standby.log")
	must(t, p.Close(t.Context()))
	if p.Died() == nil {
		t.Error("Close has forgotten the accident")
	}
	// Nobody had hold of its processes when it died: one that has nothing left
	// but its number cannot be told from others, and may need a moment more.
	await(t, "everything of it to go", func() (bool, string, error) {
		left := ""
		for _, pid := range pids {
			if state, _ := status(pid); state != "" && state != "Z" {
				left += fmt.Sprintf("process %d (%s) ", pid, state)
			}
		}
		if segmentExists(t, segment) {
			left += "shared memory " + segment
		}
		return left == "", left, nil
	})
}

// Both go with a harness that is killed.
func TestPairDiesWithAKilledHarness(t *testing.T) {
	const mark = "OVERBOOK_RUN=pair-victim"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlayKilledPair$")
	cmd.Env = append(os.Environ(), "OVERBOOK_TEST_VICTIM=pair")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "up" {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	if found, err := proc.Living(mark); err != nil || len(found) < 10 {
		t.Fatalf("before the kill: %v, %v", found, err)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	await(t, "both to go", func() (bool, string, error) {
		found, err := proc.Living(mark)
		return len(found) == 0, fmt.Sprint(found), err
	})
}

// TestPlayKilledPair is no test: it is the process that is killed.
func TestPlayKilledPair(t *testing.T) {
	if os.Getenv("OVERBOOK_TEST_VICTIM") != "pair" {
		t.Skip("played by another test")
	}
	_, err := provision.UpPair(context.Background(), provision.Options{MarkEnv: "OVERBOOK_RUN=pair-victim"}, true)
	must(t, err)
	fmt.Fprintln(os.Stdout, "up")
	<-make(chan struct{})
}

func TestPairThatCannotBe(t *testing.T) {
	half := t.TempDir()
	local, err := provision.PostgresBinaries()
	must(t, err)
	for _, name := range []string{"postgres", "initdb"} {
		must(t, os.Symlink(filepath.Join(local, name), filepath.Join(half, name)))
	}
	for name, c := range map[string]struct {
		o     provision.Options
		bin   string
		words []string
	}{
		"given by URL":     {o: provision.Options{PostgresURL: "postgres://u:secret@127.0.0.1/postgres"}, words: []string{"not ours to kill", "next: leave --postgres out"}},
		"Docker alone":     {o: provision.Options{Prefer: "docker"}, words: []string{"failover needs local PostgreSQL binaries", "next: "}},
		"no pg_basebackup": {bin: half, words: []string{"failover needs pg_basebackup", half, "next: "}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.bin != "" {
				t.Setenv("OVERBOOK_PG_BIN", c.bin)
			}
			_, err := provision.UpPair(t.Context(), c.o, true)
			wantProblem(t, err, append(c.words, "bring up a primary and a standby")...)
			if !provision.IsAbsent(err) {
				t.Errorf("is not taken for absent: %v", err)
			}
		})
	}
	t.Setenv("OVERBOOK_PG_BIN", "/nowhere/at/all")
	if _, err := provision.UpPair(t.Context(), provision.Options{}, true); err == nil || provision.IsAbsent(err) {
		t.Errorf("named binaries that are none: %v", err)
	}
}

// A pair that does not come up leaves nothing: neither after an error nor
// when the caller has seen enough.
func TestPairThatDoesNotComeUpLeavesNothing(t *testing.T) {
	const mark = "OVERBOOK_RUN=no-pair"
	local, err := provision.PostgresBinaries()
	must(t, err)
	broken := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		must(t, os.Symlink(filepath.Join(local, name), filepath.Join(broken, name)))
	}
	must(t, os.Chmod(filepath.Dir(broken), 0o755)) // it is not root that runs them
	must(t, os.Symlink("/bin/false", filepath.Join(broken, "pg_basebackup")))
	t.Setenv("OVERBOOK_PG_BIN", broken)
	o := provision.Options{MarkEnv: mark, CacheDir: t.TempDir()}
	_, err = provision.UpPair(t.Context(), o, true)
	wantProblem(t, err, "copy the primary for the standby", "exit status 1", "next: ")
	ctx, cancel := context.WithCancelCause(t.Context())
	o.CacheDir = t.TempDir() // so that there is something to wait for
	o.Progress = func(string) { cancel(errors.New("interrupted by the user")) }
	if _, err := provision.UpPair(ctx, o, true); err == nil || !strings.Contains(err.Error(), "interrupted by the user") {
		t.Errorf("err = %v", err)
	}
	if found, err := proc.Living(mark); err != nil || len(found) != 0 {
		t.Errorf("left: %v, %v", found, err)
	}
}
