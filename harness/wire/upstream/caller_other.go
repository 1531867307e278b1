//go:build !linux

package upstream

import "net"

// gone cannot be told here before the write; a failed write still shows.
func gone(net.Conn) bool { return false }

// refused cannot be told here.
func refused(net.Conn) bool { return false }
