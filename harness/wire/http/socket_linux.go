package wirehttp

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// fdSocket is a socket by its descriptor, which it owns.
type fdSocket struct {
	fd     int
	landed wallStamp // when the last bytes that were read arrived
	oob    [oobSize]byte
}

// detach takes the connection away from the Go scheduler and gives its
// descriptor. From here on it never blocks.
func (cn *conn) detach() (int, error) {
	sc, ok := cn.inner.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no descriptor", cn.inner)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(p uintptr) { fd, dupErr = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	if dupErr != nil {
		return -1, dupErr
	}
	cn.stamped = askForStamps(fd)
	cn.sock = &fdSocket{fd: fd}
	_ = cn.inner.Close() // the duplicate keeps the connection open
	return fd, nil
}

// Read reads what is there.
func (s *fdSocket) Read(p []byte) (int, error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(s.fd, p, s.oob[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, errWouldBlock
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		s.landed = stampOf(s.oob[:oobn])
		return n, nil
	}
}

// Write writes what there is room for. MSG_NOSIGNAL: a broken connection is
// an error, not a signal.
func (s *fdSocket) Write(p []byte) (int, error) {
	n, err := transferNow(unix.SYS_SENDTO, s.fd, p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errors.Is(err, unix.EAGAIN) {
		return n, errWouldBlock
	}
	return n, err
}

// Close closes the descriptor.
func (s *fdSocket) Close() error { return unix.Close(s.fd) }

// sendQueue is the number of bytes that the peer's kernel has not acknowledged.
func sendQueue(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }
