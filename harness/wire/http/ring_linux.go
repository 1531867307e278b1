package wirehttp

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's io_uring interface, as far as one submission of sends needs it.
const (
	offSQRing      = 0
	offCQRing      = 0x8000000
	offSQEs        = 0x10000000
	opSend         = 26
	opRecv         = 27
	enterGetEvents = 1
	sqeSize        = 64
	cqeSize        = 16
	reapSlice      = 100 // ms between two looks for late completions
	reapTries      = 20
)

// setupParams is the kernel's struct io_uring_params.
type setupParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// sqe is the kernel's struct io_uring_sqe, as a send uses it.
type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	length        uint32
	msgFlags      uint32
	userData      uint64
	_             [3]uint64
}

// cqe is the kernel's struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// A ring is an io_uring with room for one burst. It is used once. Entries are
// carried out in the order in which they were prepared, and each during the
// submission: MSG_DONTWAIT makes the kernel do it at once or say EAGAIN, so
// that nothing is left to a worker thread.
type ring struct {
	fd           int
	params       setupParams
	sq, cq, sqes []byte // mapped
	pins         runtime.Pinner
	entries      uint32
}

// newRing sets up a ring for n entries. The error says that io_uring is not to
// be had: an old kernel, a container's seccomp profile, or a sysctl.
func newRing(n int) (*ring, error) {
	r := &ring{}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(&r.params)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("set up io_uring: %w", errno)
	}
	r.fd = int(fd)
	unix.CloseOnExec(r.fd)
	p := &r.params
	err := r.mapAll(
		int(p.sq.array+p.sqEntries*4),
		int(p.cq.cqes+p.cqEntries*cqeSize),
		int(p.sqEntries*sqeSize))
	if err != nil {
		r.close()
		return nil, fmt.Errorf("map io_uring: %w", err)
	}
	return r, nil
}

func (r *ring) mapAll(sq, cq, sqes int) (err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.sq, err = unix.Mmap(r.fd, offSQRing, sq, prot, flags); err != nil {
		return err
	}
	if r.cq, err = unix.Mmap(r.fd, offCQRing, cq, prot, flags); err != nil {
		return err
	}
	r.sqes, err = unix.Mmap(r.fd, offSQEs, sqes, prot, flags)
	return err
}

func word(m []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&m[off])) }

// send prepares to send p.
func (r *ring) send(fd int, p []byte) { r.prepare(opSend, fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }

// peek prepares to look for something to read, without taking it.
func (r *ring) peek(fd int, p []byte) { r.prepare(opRecv, fd, p, unix.MSG_DONTWAIT|unix.MSG_PEEK) }

func (r *ring) prepare(op uint8, fd int, p []byte, flags uint32) {
	i := r.entries
	r.entries++
	if len(p) > 0 {
		r.pins.Pin(&p[0])
	}
	e := (*sqe)(unsafe.Pointer(&r.sqes[i*sqeSize]))
	*e = sqe{
		opcode: op, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), length: uint32(len(p)),
		msgFlags: flags, userData: uint64(i),
	}
	*word(r.sq, r.params.sq.array+i*4) = i
	atomic.StoreUint32(word(r.sq, r.params.sq.tail), r.entries)
}

// submit hands all entries over in one call and says how many the kernel
// took; the others were not touched.
func (r *ring) submit() int {
	for {
		took, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.entries), 0, enterGetEvents, 0, 0)
		switch errno {
		case 0:
			return int(took)
		case unix.EINTR:
		default:
			return 0
		}
	}
}

// reap reads the completions of the first len(results) entries. One that does
// not come in time is an error that leaves open what happened to its bytes.
func (r *ring) reap(results []result) {
	for i := range results {
		results[i].err = errNoCompletion
	}
	left := len(results)
	mask := *word(r.cq, r.params.cq.mask)
	head := atomic.LoadUint32(word(r.cq, r.params.cq.head))
	for try := 0; left > 0 && try < reapTries; {
		if head == atomic.LoadUint32(word(r.cq, r.params.cq.tail)) {
			try++
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}, reapSlice)
			continue
		}
		c := (*cqe)(unsafe.Pointer(&r.cq[r.params.cq.cqes+(head&mask)*cqeSize]))
		res := &results[c.userData]
		res.err = nil
		if c.res < 0 {
			res.err = unix.Errno(-c.res)
		} else {
			res.n = int(c.res)
		}
		left--
		head++
		atomic.StoreUint32(word(r.cq, r.params.cq.head), head)
	}
}

func (r *ring) close() {
	for _, m := range [][]byte{r.sq, r.cq, r.sqes} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	_ = unix.Close(r.fd)
	r.pins.Unpin()
}

// errNoCompletion leaves open whether anything was sent.
var errNoCompletion = errors.New("the kernel did not say whether it sent")
