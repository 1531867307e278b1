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

// wait returns when the child has ended. It is reaped under the lock, after
// its end was seen without reaping it: until then its number, and that of its
// group, cannot become somebody else's.
func (p *Process) wait() {
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bury(p.cmd.Wait)
}
