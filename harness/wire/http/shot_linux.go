package wirehttp

import (
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// noRingEnv, set to 1, makes bursts use a locked thread instead of io_uring.
const noRingEnv = "OVERBOOK_NO_IO_URING"

// How the held parts were handed over, as the report names it.
const (
	howRing   = "io_uring" // one submission
	howThread = "thread"   // one locked thread, one write after another
	howMixed  = "io_uring+thread"
	howWrite  = "write" // one write for each connection
)

// A result is what the kernel did with one line's held part.
type result struct {
	n   int           // bytes it took
	err error         // what it said otherwise; EAGAIN when there was no room
	at  time.Duration // by when
}

// A shot is a release, prepared so that firing is nothing but system calls.
type shot struct {
	fds     []int
	parts   [][]byte
	results []result
	ring    *ring
	single  bool // a connection carries many racers: there is nothing to gain from a ring for one
}

func newShot(lines []*line, kind harness.Technique) *shot {
	s := &shot{results: make([]result, len(lines)), single: kind == harness.H2SinglePacket}
	for _, l := range lines {
		s.fds = append(s.fds, l.fd)
		s.parts = append(s.parts, l.cn.out)
	}
	if os.Getenv(noRingEnv) == "1" || (s.single && len(lines) == 1) {
		return s
	}
	if r, err := newRing(len(lines)); err == nil { // not allowed here: the thread does it
		s.ring = r
		for i := range lines {
			r.prepareSend(i, s.fds[i], s.parts[i])
		}
	}
	return s
}

// fire lets go. It gives the instants before the first and after the last
// system call, and how it was done.
func (s *shot) fire(c clock.Clock) (before, after time.Duration, how string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.KeepAlive(s.parts)
	if s.ring == nil {
		how = howThread
		if s.single {
			how = howWrite
		}
		before = c.Now()
		return before, s.byThread(c, 0), how
	}
	how = howRing
	before = c.Now()
	submitted := s.ring.submit(len(s.fds))
	after = c.Now()
	for i := range s.results[:submitted] {
		s.results[i].at = after
	}
	s.ring.reap(s.results[:submitted])
	if submitted < len(s.fds) {
		how = howMixed
		after = s.byThread(c, submitted)
	}
	return before, after, how
}

// byThread writes one after another, from the given line on.
func (s *shot) byThread(c clock.Clock, from int) time.Duration {
	for i := from; i < len(s.fds); i++ {
		n, err := sendNow(s.fds[i], s.parts[i])
		s.results[i] = result{n: n, err: err, at: c.Now()}
	}
	return s.results[len(s.results)-1].at
}

func (s *shot) close() {
	if s.ring != nil {
		s.ring.close()
	}
}

// sendNow is one send without waiting. It does not tell the Go scheduler, so
// that nothing else is put on this thread's processor in the middle of a
// release; as it cannot block, nothing is kept waiting for long.
func sendNow(fd int, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}
