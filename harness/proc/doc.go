// Package proc owns child processes: starting them, knowing when they are
// ready, signalling and reaping them, keeping their output, and making sure
// that none of them outlives the harness, also when the harness is killed
// with SIGKILL.
//
// Every child leads a process group of its own, so that a terminal's Ctrl-C
// reaches the harness alone and a signal from here reaches everything the
// child has started (unless that made a session of its own). On Linux the
// kernel signals the child when the harness dies.
//
// It must not know what the processes are for, must not restart them on its
// own, and must not wait for a state without a deadline.
package proc
