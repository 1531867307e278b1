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

// awaitExit returns at once: cmd.Wait does the waiting here.
func awaitExit(int) {}

func living(string) ([]Leftover, error) {
	return nil, fmt.Errorf("look for processes left over: %w on %s", errors.ErrUnsupported, runtime.GOOS)
}
