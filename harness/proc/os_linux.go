package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes asks the kernel for a group of its own and for a signal when the
// harness dies. It is set after the change of user, so a Credential keeps it.
func attributes(s Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: s.DeathSignal, Credential: s.Credential}
}

// awaitExit waits until the child has ended, without reaping it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
