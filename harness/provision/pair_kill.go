package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	return m.clean(ctx, all)
}

// clean removes what a server that did not end in good order has left:
// processes that the postmaster made in its last moment, its lock file and
// the shared memory segment that goes with it. The postmaster must be gone;
// killed are processes that have to be waited for.
func (m *member) clean(ctx context.Context, killed []victim) error {
	lock := filepath.Join(m.data(), "postmaster.pid")
	if _, err := os.Lstat(lock); errors.Is(err, fs.ErrNotExist) {
		return nil // it ended in good order
	}
	err := clock.Await(ctx, "every process of "+m.name+" to be gone", killTimeout, killPause, func(context.Context) (bool, string, error) {
		left, err := m.processes()
		killEach(left)
		killed = slices.DeleteFunc(append(killed, left...), victim.ended)
		return len(killed) == 0, fmt.Sprintf("%d left", len(killed)), err
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

// A victim is a process of the server that is to be killed.
type victim struct {
	process *os.Process // which the kernel knows by more than the number, if it can
	pid     int
	born    string // in the kernel's ticks; with the number it names a process for ever
}

// ended reports whether the process has let go of all it had. A process
// without memory, and so without a title, may still hold its connections.
func (v victim) ended() bool {
	state, born := stateAndBirth(v.pid)
	return state == "" || state == "Z" || state == "X" || born != v.born
}

// stateAndBirth reads fields 3 and 22 of a process's stat; "" when there is
// no such process. The name, field 2, may hold spaces and parentheses.
func stateAndBirth(pid int) (state, born string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", ""
	}
	return fields[0], fields[19]
}

// processes are all of the server's that are alive. They are looked for
// twice, before and after taking hold of them, so that none of them can be
// another process that has got the number.
func (m *member) processes() ([]victim, error) {
	found, err := m.living()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var held []victim
	for pid := range found {
		p, err := os.FindProcess(pid)
		if err != nil {
			return nil, err
		}
		_, born := stateAndBirth(pid)
		held = append(held, victim{process: p, pid: pid, born: born})
	}
	again, err := m.living()
	return slices.DeleteFunc(held, func(v victim) bool { return !again[v.pid] }), err
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

// killEach sends SIGKILL. Some may have ended meanwhile.
func killEach(all []victim) {
	for _, v := range all {
		_ = v.process.Kill()
		_ = v.process.Release()
	}
}

// removeSegment removes the segment that the lock file names (line 7: key and
// id), if the process of line 1 made it. Where one that is about to end still
// holds it, the kernel removes it then.
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
	if int(state.Cpid) != pid {
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
