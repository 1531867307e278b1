package provision_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
)

var allParts = provision.Need{Postgres: true, WireMock: true, Redis: true}

func TestUpStartsAllPartsAndCloseLeavesNothing(t *testing.T) {
	const mark = "OVERBOOK_RUN=all-parts"
	env := up(t, provision.Options{Prefer: "local", Need: allParts, MarkEnv: mark})
	checkPostgres(t, env.Postgres)
	checkRedis(t, env.Redis)
	post(t, env.WireMock.URL()+"/__admin/mappings", `{"request":{"urlPath":"/reserve"},"response":{"status":201}}`, 201)
	post(t, env.WireMock.URL()+"/reserve", "{}", 201)
	if text := env.Postgres.Describe(); !strings.Contains(text, "local") || !strings.Contains(text, "durability off") {
		t.Errorf("Describe = %q", text)
	}
	// Postgres and Redis overwrite their environment: the mark has to be
	// found all the same, in every process of the three.
	found, err := proc.Living(mark)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "checkpointer", "java", "redis"} {
		if !strings.Contains(fmt.Sprint(found), name) {
			t.Errorf("%s does not carry the mark: %v", name, found)
		}
	}
	for range 2 {
		if err := env.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := proc.Living(mark); err != nil || len(found) != 0 {
		t.Errorf("left after Close: %v, %v", found, err)
	}
	if err := env.Postgres.Died(); err != nil {
		t.Errorf("a server that was closed did not die on its own: %v", err)
	}
}

func TestPostgresNeverRunsAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("we are not root")
	}
	const mark = "OVERBOOK_RUN=no-root"
	up(t, provision.Options{Prefer: "local", Need: provision.Need{Postgres: true}, MarkEnv: mark})
	found, err := proc.Living(mark)
	if err != nil || len(found) == 0 {
		t.Fatalf("living: %v, %v", found, err)
	}
	for _, p := range found {
		info, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID))
		if err != nil {
			continue // ended meanwhile
		}
		if info.Sys().(*syscall.Stat_t).Uid == 0 {
			t.Errorf("runs as root: %v", p)
		}
	}
}

func TestDurabilityIsSetAndShown(t *testing.T) {
	for _, durable := range []bool{false, true} {
		env := up(t, provision.Options{Prefer: "local", Need: provision.Need{Postgres: true}, Durable: durable})
		conn, err := pgx.Connect(t.Context(), env.Postgres.AdminURL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var fsync, commit, dir string
		if err := conn.QueryRow(t.Context(), `select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('data_directory')`).Scan(&fsync, &commit, &dir); err != nil {
			t.Fatal(err)
		}
		want, text := "off", "durability off"
		if durable {
			want, text = "on", "durability on"
		}
		if fsync != want || commit != want || !strings.Contains(env.Postgres.Describe(), text) {
			t.Errorf("durable %v: fsync %s, synchronous_commit %s, %q", durable, fsync, commit, env.Postgres.Describe())
		}
		if durable && strings.HasPrefix(dir, "/dev/shm") {
			t.Errorf("durable commits in memory: %s", dir)
		}
	}
}

// A damaged or cut seed is made anew, never used.
func TestDamagedSeedIsMadeAnew(t *testing.T) {
	cache := t.TempDir()
	o := provision.Options{Prefer: "local", Need: provision.Need{Postgres: true}, CacheDir: cache}
	bring := func() (said string) {
		o.Progress = func(s string) { said += s + "\n" }
		env := up(t, o)
		if err := env.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		return said
	}
	if said := bring(); !strings.Contains(said, "making PostgreSQL's data directory") {
		t.Fatalf("the first start said %q", said)
	}
	if said := bring(); said != "" {
		t.Errorf("with a seed it said %q", said)
	}
	seeds, err := filepath.Glob(filepath.Join(cache, "*.seed"))
	if err != nil || len(seeds) != 1 {
		t.Fatalf("seeds: %v, %v", seeds, err)
	}
	whole, err := os.ReadFile(seeds[0])
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, bad := range map[string][]byte{"cut": whole[:len(whole)/3], "one bit": flipped, "empty": nil} {
		if err := os.WriteFile(seeds[0], bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if said := bring(); !strings.Contains(said, "damaged") {
			t.Errorf("%s: said %q", name, said)
		}
	}
}

func TestUnwritableCacheCostsTimeOnly(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	said := ""
	up(t, provision.Options{Prefer: "local", Need: provision.Need{Postgres: true}, CacheDir: filepath.Join(blocked, "cache"), Progress: func(s string) { said += s }})
	if !strings.Contains(said, "cannot keep the data directory") {
		t.Errorf("said %q", said)
	}
}

func TestServerThatDiesIsNoticed(t *testing.T) {
	const mark = "OVERBOOK_RUN=dies"
	env := up(t, provision.Options{Prefer: "local", Need: allParts, MarkEnv: mark})
	for _, part := range []struct {
		name string
		done <-chan struct{}
		died func() error
	}{
		{"postgres", env.Postgres.Done(), env.Postgres.Died},
		{"java", env.WireMock.Done(), env.WireMock.Died},
		{"redis", env.Redis.Done(), env.Redis.Died},
	} {
		if err := part.died(); err != nil {
			t.Errorf("%s is alive: %v", part.name, err)
		}
		killOne(t, mark, part.name)
		select {
		case <-part.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: nobody noticed", part.name)
		}
		if err := part.died(); err == nil || !strings.Contains(err.Error(), "died during the run") {
			t.Errorf("%s: Died = %v", part.name, err)
		}
	}
}

// killOne kills the first process with the mark and the word in its command.
func killOne(t *testing.T, mark, word string) {
	t.Helper()
	found, err := proc.Living(mark)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		if strings.Contains(p.Command, word) && !strings.HasPrefix(p.Command, "postgres:") {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %s in %v", word, found)
}

func TestErrorOfOnePartLeavesNothingOfTheOthers(t *testing.T) {
	const mark = "OVERBOOK_RUN=half"
	work := t.TempDir()
	t.Setenv("OVERBOOK_REDIS_BIN", "/bin/false")
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: allParts, MarkEnv: mark, WorkDir: work})
	if err == nil || !strings.Contains(err.Error(), "Redis") {
		t.Fatalf("err = %v", err)
	}
	if strings.Contains(err.Error(), "called off") {
		t.Errorf("the error tells of what only follows from it: %v", err)
	}
	if found, err := proc.Living(mark); err != nil || len(found) != 0 {
		t.Errorf("left: %v, %v", found, err)
	}
}

// All parts go with a harness that is killed.
func TestPartsDieWithAKilledHarness(t *testing.T) {
	const mark = "OVERBOOK_RUN=victim"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlayKilledHarness$")
	cmd.Env = append(os.Environ(), "OVERBOOK_TEST_VICTIM=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "up" {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	if found, err := proc.Living(mark); err != nil || len(found) < 3 {
		t.Fatalf("before the kill: %v, %v", found, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	err = clock.Await(t.Context(), "parts to go", 20*time.Second, 2*time.Millisecond, func(context.Context) (bool, string, error) {
		found, err := proc.Living(mark)
		return len(found) == 0, fmt.Sprint(found), err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPlayKilledHarness is no test: it is the process that is killed.
func TestPlayKilledHarness(t *testing.T) {
	if os.Getenv("OVERBOOK_TEST_VICTIM") == "" {
		t.Skip("played by another test")
	}
	if _, err := provision.Up(context.Background(), provision.Options{Prefer: "local", Need: allParts, MarkEnv: "OVERBOOK_RUN=victim"}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, "up")
	<-make(chan struct{})
}

// closedPort is a port that refuses.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
