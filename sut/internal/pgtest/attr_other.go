//go:build !linux

package pgtest

import "syscall"

// childAttr makes the server a process group of its own. Only Linux can end it
// with us when we are killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
