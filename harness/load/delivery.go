package load

import (
	"fmt"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A Delivery says what became of planned requests. It is never hidden that
// some were not sent: load that was not sent as planned proves nothing.
type Delivery struct {
	Planned    int `json:"planned"`
	Ready      int `json:"ready"`       // at the barrier; as Planned where there is none
	Sent       int `json:"sent"`        // whole requests handed to the kernel
	Answered   int `json:"answered"`    // whole answers
	TimedOut   int `json:"timed_out"`   // sent, no whole answer before the deadline
	Broken     int `json:"broken"`      // sent, and the connection or the answer broke
	NotSent    int `json:"not_sent"`    // never sent whole
	ClientSide int `json:"client_side"` // of all these, the ones that our own machine spoilt
	_          struct{}
}

// Account sorts the operations of planned requests, of which ready were
// connected and waiting at the release. Planned requests that have no
// operation count as not sent.
func Account(planned, ready int, ops []harness.Operation) Delivery {
	d := Delivery{Planned: planned, Ready: ready, NotSent: max(planned-len(ops), 0)}
	for _, op := range ops {
		class := ClassOf(op.Err)
		if class.ClientSide() {
			d.ClientSide++
		}
		if op.Sent == 0 {
			d.NotSent++
			continue
		}
		d.Sent++
		switch {
		case op.Answered != 0:
			d.Answered++
		case class == ClassTimeout:
			d.TimedOut++
		default:
			d.Broken++
		}
	}
	return d
}

// AsPlanned reports whether every planned request was ready and sent. No
// request at all is not as planned. What the server made of the requests is
// another question.
func (d Delivery) AsPlanned() bool {
	return d.Planned > 0 && d.Ready == d.Planned && d.Sent == d.Planned && d.NotSent == 0
}

// String gives all the figures in one line.
func (d Delivery) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d planned, %d ready, %d sent, %d answered", d.Planned, d.Ready, d.Sent, d.Answered)
	for _, part := range []struct {
		n    int
		text string
	}{{d.TimedOut, "timed out"}, {d.Broken, "broken off"}, {d.NotSent, "not sent"}, {d.ClientSide, "spoilt by this machine"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.text)
		}
	}
	return b.String()
}
