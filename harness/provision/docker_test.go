package provision_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
)

// needDocker skips unless it was asked for and there is a daemon.
func needDocker(t *testing.T) {
	t.Helper()
	if os.Getenv("OVERBOOK_TEST_DOCKER") != "1" {
		t.Skip("Docker tests are run by make test-docker (OVERBOOK_TEST_DOCKER=1)")
	}
	if _, err := provision.DockerVersion(t.Context()); err != nil {
		t.Skipf("no Docker daemon: %v; as root: scripts/dockerd-local.sh start", err)
	}
}

func dockerOptions() provision.Options {
	return provision.Options{Prefer: "docker", Need: provision.Need{Postgres: true, WireMock: true, Redis: true}}
}

func TestDockerBringsUpAllParts(t *testing.T) {
	needDocker(t)
	env := up(t, dockerOptions())
	for _, text := range []string{env.Postgres.Describe(), env.WireMock.Describe(), env.Redis.Describe()} {
		if !strings.Contains(text, "Docker") {
			t.Errorf("Describe does not say Docker: %q", text)
		}
	}
	checkPostgres(t, env.Postgres)
	checkRedis(t, env.Redis)
	if got := len(containers(t, "")); got != 3 {
		t.Errorf("%d containers run, want 3", got)
	}
	if err := env.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := containers(t, ""); len(left) != 0 {
		t.Errorf("left after Close: %v", left)
	}
	if env.Postgres.Died() != nil {
		t.Error("a server that was closed did not die on its own")
	}
}

// WireMock in Docker has to proxy to doubles on our loopback.
func TestDockerWireMockReachesOurLoopback(t *testing.T) {
	needDocker(t)
	env := up(t, provision.Options{Prefer: "docker", Need: provision.Need{WireMock: true}})
	double := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer double.Close()
	stub := fmt.Sprintf(`{"request":{"urlPath":"/reserve"},"response":{"proxyBaseUrl":%q}}`, env.WireMock.Reach(double.URL))
	post(t, env.WireMock.URL()+"/__admin/mappings", stub, http.StatusCreated)
	post(t, env.WireMock.URL()+"/reserve", "{}", http.StatusTeapot)
}

func TestDockerContainerThatDiesIsNoticed(t *testing.T) {
	needDocker(t)
	env := up(t, provision.Options{Prefer: "docker", Need: provision.Need{Redis: true}})
	for _, id := range containers(t, "") {
		docker(t, "kill", id)
	}
	select {
	case <-env.Redis.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("nobody noticed")
	}
	if err := env.Redis.Died(); err == nil || !strings.Contains(err.Error(), "exit status 137") {
		t.Errorf("Died = %v", err)
	}
}

func TestDockerImageThatIsNotThere(t *testing.T) {
	needDocker(t)
	t.Setenv("OVERBOOK_REDIS_IMAGE", "overbook.invalid/redis:none")
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "docker", Need: provision.Need{Redis: true}})
	if err == nil || !strings.Contains(err.Error(), "docker pull overbook.invalid/redis:none") {
		t.Errorf("err = %v", err)
	}
}

// The harness is killed: its containers go.
func TestDockerContainersDieWithAKilledHarness(t *testing.T) {
	needDocker(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDockerPlayKilledHarness$")
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
	if len(containers(t, "")) != 2 {
		t.Errorf("before the kill: %v", containers(t, ""))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	err = clock.Await(t.Context(), "containers to go", 30*time.Second, 50*time.Millisecond, func(context.Context) (bool, string, error) {
		left := containers(t, "")
		return len(left) == 0, fmt.Sprint(left), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDockerPlayKilledHarness is no test: it is the process that is killed.
func TestDockerPlayKilledHarness(t *testing.T) {
	if os.Getenv("OVERBOOK_TEST_VICTIM") == "" {
		t.Skip("played by another test")
	}
	_, err := provision.Up(context.Background(), provision.Options{Prefer: "docker", Need: provision.Need{Postgres: true, Redis: true}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, "up")
	<-make(chan struct{})
}

// Without a watchdog the next start removes what a killed run left.
func TestDockerSweepsLeftovers(t *testing.T) {
	needDocker(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	id := docker(t, "run", "-d", "--label", "com.overbook.session=/nowhere/at/all", "--label", "com.overbook.host="+host, "redis:7")
	foreign := docker(t, "run", "-d", "--label", "com.overbook.session=/nowhere/at/all", "--label", "com.overbook.host=another-machine", "redis:7")
	t.Cleanup(func() { docker(t, "rm", "-f", "-v", foreign) })
	up(t, provision.Options{Prefer: "docker", Need: provision.Need{Redis: true}})
	running := strings.Join(containers(t, "--no-trunc"), " ")
	if strings.Contains(running, id) {
		t.Error("the leftover is still there")
	}
	if !strings.Contains(running, foreign) {
		t.Error("a container of another machine was removed")
	}
}

func containers(t *testing.T, option string) []string {
	t.Helper()
	args := []string{"ps", "-aq", "--filter", "label=com.overbook.session"}
	if option != "" {
		args = append(args, option)
	}
	return strings.Fields(docker(t, args...))
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
