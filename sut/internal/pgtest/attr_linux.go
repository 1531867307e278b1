package pgtest

import "syscall"

// childAttr makes the server a process group of its own that ends with us,
// even when we are killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
