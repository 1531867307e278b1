package provision

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

const watchdogTimeout = 10 * time.Second // to its first word, and to its end

// watchdogScript removes the containers of a session ($1) when its input ends
// without the word "done": the kernel closes the pipe however the harness
// ends. A container may be in the making at that moment, so it looks again.
const watchdogScript = `
docker ps -q --filter "label=$1" >/dev/null || exit 1
echo ready
read -r word && [ "$word" = done ] && exit 0
for again in 1 2 3 4 5; do
	ids=$(docker ps -aq --filter "label=$1")
	[ -n "$ids" ] && docker rm -f -v $ids
	sleep 1
done >/dev/null 2>&1
`

// A watchdog is a process that outlives the harness for a moment, to remove
// its containers. Nil is none.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the end that we hold; its closing is the alarm
}

// startWatchdog starts it in a session of its own, so that no Ctrl-C and no
// signal to our group reaches it, and waits until it has reached the daemon.
func startWatchdog(session, dockerHost string) (*watchdog, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil, fmt.Errorf("start the watchdog of containers: %w", err)
	}
	in, alarm, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	answer, out, err := os.Pipe()
	if err != nil {
		alarm.Close()
		return nil, err
	}
	defer answer.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "overbook-watchdog", labelSession+"="+session) //nolint:noctx // it has to outlive us
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+dockerHost, "PATH="+os.Getenv("PATH")+":"+docker[:strings.LastIndexByte(docker, '/')])
	cmd.Dir, cmd.Stdin, cmd.Stdout = "/", in, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	out.Close()
	if err != nil {
		alarm.Close()
		return nil, fmt.Errorf("start the watchdog of containers: %w", err)
	}
	_ = answer.SetReadDeadline(clock.Wall().Add(watchdogTimeout))
	word, err := bufio.NewReader(answer).ReadString('\n')
	if err == nil && strings.TrimSpace(word) != "ready" {
		err = fmt.Errorf("it said %q", word)
	}
	if err != nil {
		alarm.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start the watchdog of containers: it did not reach Docker: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: alarm}, nil
}

// release sends it home and waits for its end.
func (w *watchdog) release() error {
	if w == nil {
		return nil
	}
	_, err := w.pipe.WriteString("done\n")
	w.pipe.Close()
	bound := time.AfterFunc(watchdogTimeout, func() { _ = w.cmd.Process.Kill() })
	defer bound.Stop()
	if waitErr := w.cmd.Wait(); err == nil {
		err = waitErr
	}
	if err != nil {
		return fmt.Errorf("release the watchdog of containers: %w", err)
	}
	return nil
}
