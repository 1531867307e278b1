package doctor

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable:\s+(\d+) kB`)

func availableMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	m := memAvailable.FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no MemAvailable in /proc/meminfo")
	}
	kb, err := strconv.ParseUint(string(m[1]), 10, 64)
	return kb << 10, err
}

func portRange() (low, high int, err error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(string(text), &low, &high)
	return low, high, err
}

// ringAllowed makes the smallest ring and closes it.
func ringAllowed() error {
	var params [120]byte // struct io_uring_params, all zero: defaults
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}
