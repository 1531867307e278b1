// Package lease is the holder's own view of a lease that is written in a
// database row: until when, under which fence, and whether enough of it is
// left to begin something that must be over before it ends.
//
// The row is the truth; a lease here only ever says "no" earlier than the row
// would. What must not happen here: touching the database, renewing.
package lease

import (
	"fmt"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// A Lease is temporary ownership of one row. The zero Lease has run out.
type Lease struct {
	Fence int64     // number of the claim; a write under an older number is refused
	Until time.Time // server time, as stored

	clock   *clock.Clock
	monoEnd time.Duration
}

// Take notes a lease that was asked for at asked ([clock.Mono], read before
// the row was written, so that the time the write took is not counted as
// ours), lasts d and is stored as until.
func Take(c *clock.Clock, fence int64, until time.Time, asked, d time.Duration) Lease {
	return Lease{Fence: fence, Until: until, clock: c, monoEnd: asked + d}
}

// Left is how long the lease still lasts: the shorter of what the server's
// clock says and what the machine's monotonic time says, so that neither a
// clock that was turned nor a process that was stopped makes it longer.
func (l Lease) Left() time.Duration {
	if l.clock == nil {
		return 0
	}
	return min(l.Until.Sub(l.clock.Now()), l.monoEnd-clock.Mono())
}

// An ExpiredError says that a lease has not enough left.
type ExpiredError struct {
	Left, Need time.Duration
}

// Error says how much is left and how much is needed.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("lease has %v left, needs %v", e.Left.Round(time.Millisecond), e.Need)
}

// Require gives an [ExpiredError] unless at least need is left.
func (l Lease) Require(need time.Duration) error {
	if left := l.Left(); left < need || left <= 0 {
		return &ExpiredError{Left: left, Need: need}
	}
	return nil
}
