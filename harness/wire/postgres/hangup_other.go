//go:build !linux

package pgwire

import "net"

// hungUp can't be told here without reading; the session's reader notices.
func hungUp(net.Conn) bool { return false }
