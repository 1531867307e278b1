package upstream

import (
	"net"

	"golang.org/x/sys/unix"
)

// TCP states of the kernel (include/net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpClosed      = 7
)

// gone reports whether the peer has closed its side. A peer that has merely
// shut down its sending side counts as gone.
func gone(c net.Conn) bool { return tcpState(c) != tcpEstablished }

// refused reports whether the connection was reset: what was written last
// reached nobody. A peer that read it and then closed is not meant.
func refused(c net.Conn) bool { return tcpState(c) == tcpClosed }

// tcpState asks the kernel. Reading would not do: the HTTP server's own
// reader waits on the connection and takes the error away.
func tcpState(c net.Conn) uint8 {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return tcpClosed
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return tcpClosed
	}
	state := uint8(tcpClosed)
	if err := raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	}); err != nil {
		return tcpClosed
	}
	return state
}
