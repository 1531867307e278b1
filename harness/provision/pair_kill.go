package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
)

const (
	killPause   = time.Millisecond
	killTimeout = 10 * time.Second // SIGKILL to gone; only a process stuck in the kernel needs longer
)

// killAll ends the server as a power cut would: SIGKILL to every process of
// it. A signal to the group would not do, as Postgres gives each of its
// processes a group of its own; they would notice the postmaster's death and
// end when they get round to it.
func (m *member) killAll(ctx context.Context) error {
	all, err := m.processes() // before the postmaster is gone, so that they die within microseconds of it
	if err != nil {
		return err
	}
	if err := m.run.process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrExited) {
		return err
	}
	killEach(all)
	if err := m.run.process.Kill(); err != nil {
		return err
	}
	return m.clean(ctx)
}

// clean removes what a server that did not end in good order has left:
// processes that the postmaster made in its last moment, its lock file and
// the shared memory segment that goes with it. The postmaster must be gone.
func (m *member) clean(ctx context.Context) error {
	lock := filepath.Join(m.data(), "postmaster.pid")
	if _, err := os.Lstat(lock); errors.Is(err, fs.ErrNotExist) {
		return nil // it ended in good order
	}
	err := clock.Await(ctx, "every process of "+m.name+" to be gone", killTimeout, killPause, func(context.Context) (bool, string, error) {
		left, err := m.processes()
		killEach(left)
		return len(left) == 0, fmt.Sprintf("%d left", len(left)), err
	})
	if err != nil {
		return err
	}
	// Postgres would see to both at its next start, unless the lock's process
	// number is somebody else's by then; and there may be no next start.
	if err := removeSegment(lock); err != nil {
		return &Problem{What: "remove the shared memory of " + m.name, Where: lock, Err: err, Fix: "look at it with ipcs -m"}
	}
	return os.Remove(lock)
}

// processes are all of the server's that are alive. The caller signals them
// once. They are looked for twice, before and after taking hold of them, so
// that none of them can be another process that has got the number.
func (m *member) processes() ([]*os.Process, error) {
	found, err := m.living()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	held := map[int]*os.Process{}
	for pid := range found {
		if held[pid], err = os.FindProcess(pid); err != nil {
			return nil, err
		}
	}
	again, err := m.living()
	var all []*os.Process
	for pid, p := range held {
		if again[pid] {
			all = append(all, p)
		} else {
			_ = p.Release()
		}
	}
	return all, err
}

// living gives the numbers of the server's processes. A process has the mark
// in its title, or in the postmaster's arguments when it was just made.
func (m *member) living() (map[int]bool, error) {
	found, err := proc.Living(m.mark)
	if err != nil {
		return nil, err
	}
	pids := map[int]bool{}
	for _, l := range found {
		if strings.HasPrefix(l.Command, "postgres:") || strings.HasPrefix(l.Command, filepath.Join(m.bin, "postgres")+" ") {
			pids[l.PID] = true
		}
	}
	return pids, nil
}

// killEach sends SIGKILL and lets go of them. Some may have ended meanwhile.
func killEach(all []*os.Process) {
	for _, p := range all {
		_ = p.Kill()
	}
	for _, p := range all {
		_ = p.Release()
	}
}

// removeSegment removes the segment that the lock file names (line 7: key and
// id), if the process of line 1 made it and nobody uses it any more.
func removeSegment(lock string) error {
	text, err := os.ReadFile(lock)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil // it had none yet
	}
	segment := strings.Fields(lines[6])
	if len(segment) != 2 {
		return nil
	}
	pid, err1 := strconv.Atoi(lines[0])
	id, err2 := strconv.Atoi(segment[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var state unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &state); err != nil {
		return ignoreGone(err)
	}
	if int(state.Cpid) != pid || state.Nattch != 0 {
		return nil
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) {
		return nil
	}
	return err
}
