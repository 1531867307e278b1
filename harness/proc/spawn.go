package proc

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner gives the one goroutine that starts every child. The kernel ties
// "signal the child when its parent dies" to the thread that made the child,
// not to the process: children of a thread that ends are killed although the
// harness lives. So this goroutine keeps its thread and never ends; it is
// the one goroutine here that nobody waits for.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func spawn(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	spawner() <- r
	return <-r.result
}
