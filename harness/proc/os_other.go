//go:build unix && !linux

package proc

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// attributes asks for a group of its own. There is no signal at the harness's
// death outside Linux: after a SIGKILL of the harness children may live on.
func attributes(s Spec) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: s.Credential}
}

// wait returns when the child has ended. Between its reaping and the lock its
// number is free: a signal sent in that moment could reach another process.
func (p *Process) wait() {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bury(func() error { return err })
}

func living(string) ([]Leftover, error) {
	return nil, fmt.Errorf("look for processes left over: %w on %s", errors.ErrUnsupported, runtime.GOOS)
}
