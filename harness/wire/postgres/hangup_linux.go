package pgwire

import (
	"net"

	"golang.org/x/sys/unix"
)

const tcpEstablished = 1 // include/net/tcp_states.h

// hungUp reports whether the peer has closed its side, whether or not what it
// sent before has been read.
func hungUp(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	up := false
	if err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		up = err == nil && info.State == tcpEstablished
	}); err != nil {
		return true
	}
	return !up
}
