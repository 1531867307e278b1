package wirehttp

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/clock"
)

// stampFlags ask the kernel to note, in software, when what we send from now
// on leaves it and when what we read arrived. The notes on sending come back
// through the socket's error queue, without the data.
const stampFlags = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE |
	unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_TSONLY | unix.SOF_TIMESTAMPING_OPT_ID

// oobSize has room for a time stamp and an extended error.
const oobSize = 256

// A wallStamp is a kernel time stamp in nanoseconds of the wall clock; 0 for none.
type wallStamp int64

// A translation turns kernel stamps, which are of the wall clock, into
// offsets of the run. It holds for one burst: a step of the wall clock within
// it shows as stamps outside their bounds, which are then not used.
type translation struct{ base wallStamp }

// translate compares the two clocks a few times and keeps the closest look,
// as the thread may lose its processor between the two readings.
func translate(c clock.Clock) translation {
	const looks = 5
	best, tr := time.Duration(1<<62), translation{}
	for range looks {
		before := c.Now()
		wall := clock.Wall().UnixNano()
		if took := c.Now() - before; took < best {
			best, tr.base = took, wallStamp(wall-int64(before+took/2))
		}
	}
	return tr
}

// within gives the stamp as an offset if it lies within the bounds.
func (tr translation) within(s wallStamp, lo, hi time.Duration) (time.Duration, bool) {
	at := time.Duration(s - tr.base)
	return at, s != 0 && at >= lo && at <= hi
}

// askForStamps says whether the kernel stamps this socket. Without stamps the
// bounds that we know ourselves are used.
func askForStamps(fd int) bool {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stampFlags) == nil
}

// sendStamp gives the kernel's note on the first thing that was sent since
// the stamps were asked for; 0 when there is none.
func sendStamp(fd int) wallStamp {
	oob := make([]byte, oobSize)
	_, n, _, _, err := unix.Recvmsg(fd, nil, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return 0
	}
	return stampOf(oob[:n])
}

// stampOf finds the software stamp among control messages.
func stampOf(oob []byte) wallStamp {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return wallStamp(ts.Nano())
		}
	}
	return 0
}
