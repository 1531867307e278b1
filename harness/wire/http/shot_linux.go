package wirehttp

import (
	"errors"
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
	results []result // one for each line, and then one for each look
	ring    *ring
	look    []byte // room for looks; nil when none are made
	how     string
}

// newShot prepares the release of the lines. Where a line carries many
// requests, the arrival times of their answers cannot be told apart later; so
// a look at whether anything is there already belongs to the shot.
func newShot(lines []*line, kind harness.Technique) *shot {
	s := &shot{how: howThread}
	entries := len(lines)
	if kind == harness.H2SinglePacket {
		s.look, s.how, entries = make([]byte, 1), howWrite, 2*len(lines)
	}
	s.results = make([]result, entries)
	for _, l := range lines {
		s.fds = append(s.fds, l.fd)
		s.parts = append(s.parts, l.cn.out)
	}
	if os.Getenv(noRingEnv) == "1" {
		return s
	}
	r, err := newRing(entries)
	if err != nil {
		return s // not allowed here: the thread does it
	}
	s.ring, s.how = r, howRing
	for i, fd := range s.fds {
		r.send(fd, s.parts[i])
	}
	for i := len(s.fds); i < entries; i++ {
		r.peek(s.fds[i-len(s.fds)], s.look)
	}
	return s
}

// fire lets go. It gives the instants before the first and after the last
// system call, and how it was done.
func (s *shot) fire(c clock.Clock) (before, after time.Duration, how string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.KeepAlive(s.parts)
	before = c.Now()
	if s.ring == nil {
		return before, s.byThread(c, 0), s.how
	}
	submitted := s.ring.submit()
	after = c.Now()
	s.ring.reap(s.results[:submitted])
	for i := range s.results[:submitted] {
		s.results[i].at = after
	}
	if submitted < len(s.results) {
		return before, s.byThread(c, submitted), howMixed
	}
	return before, after, s.how
}

// byThread does one thing after another, from the given one on.
func (s *shot) byThread(c clock.Clock, from int) time.Duration {
	for i := from; i < len(s.results); i++ {
		var r result
		if line := i - len(s.fds); line < 0 {
			r.n, r.err = transferNow(unix.SYS_SENDTO, s.fds[i], s.parts[i], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			r.n, r.err = transferNow(unix.SYS_RECVFROM, s.fds[line], s.look, unix.MSG_DONTWAIT|unix.MSG_PEEK)
		}
		r.at = c.Now()
		s.results[i] = r
	}
	return s.results[len(s.fds)-1].at
}

// quiet reports whether there was nothing to read on the line after all parts
// were in the kernel: none of its requests was answered at that instant.
func (s *shot) quiet(pos int) bool {
	return s.look != nil && errors.Is(s.results[len(s.fds)+pos].err, unix.EAGAIN)
}

func (s *shot) close() {
	if s.ring != nil {
		s.ring.close()
	}
}

// transferNow is one send or receive without waiting. It does not tell the Go
// scheduler, so that nothing else is put on this thread's processor in the
// middle of a release; as it cannot block, nothing is kept waiting for long.
func transferNow(call uintptr, fd int, p []byte, flags uintptr) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := unix.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
