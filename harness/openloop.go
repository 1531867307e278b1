package harness

import (
	"context"
	"fmt"
	"time"
)

// An OpenLoop is clients who arrive by a schedule, whatever the server does:
// when it is slow there are more of them, and they are not spared for it.
type OpenLoop struct {
	Name string

	// Arrivals is when each client (by its index) comes: offsets from the
	// start of the load, not falling. It is a choice, so Scenario.Choose makes it.
	Arrivals []time.Duration

	// Client is one client's conversation. It returns when the client leaves.
	// Once the load is over (ctx has ended), no call of the Visitor gets
	// anything any more, and Client must return. It runs in a goroutine of its
	// own, beside those of the other clients.
	Client func(ctx context.Context, c Visitor)

	// Connections is the most connections at once, over all servers. A call
	// that waits for one goes on waiting, which counts in its response time.
	Connections int

	// Deadline is for the whole load, from its start. Clients that are still
	// there are cut off and counted.
	Deadline time.Duration

	// Slack is how late 1 in 100 clients may be started at most for the load to
	// count as sent as planned. 0 takes a hundredth of the schedule's length,
	// but at least 100 ms.
	Slack time.Duration
	_     struct{}
}

// A Visitor is one client of an open loop. Its calls go one after the other.
type Visitor interface {
	// N is the index of the client, from 0.
	N() int

	// Do makes one call on a connection that may have been used before, and
	// records it: one attempt, never a second. Intended is the client's arrival
	// for its first call, and for a later one the moment at which it was asked
	// for. The request's timeout counts from when it has a connection, or may
	// open one. ctx is the one that Client got, or made from it; the request's
	// Process is the scenario's to choose, as with [Env].
	Do(ctx context.Context, r Request) Operation

	// Pause is time to think. The error says that ctx ended meanwhile.
	Pause(ctx context.Context, d time.Duration) error
}

// An OpenLoopReport says how an open loop really went. Stamps are offsets from
// the run's epoch.
//
//	Planned = Arrived + clients that the end of the load kept from arriving
//	Arrived = Left + CutOff
//	Calls   = Sent + Refused + Unsent
//	Sent    = Answered + TimedOut + Broken
type OpenLoopReport struct {
	Name    string `json:"name"`
	Planned int    `json:"planned"` // clients
	Arrived int    `json:"arrived"` // were started
	Left    int    `json:"left"`    // went through their whole conversation
	CutOff  int    `json:"cut_off"` // were still there when the load ended, by its deadline or an interruption

	Started           time.Duration `json:"started_ns"`         // offset zero of the schedule
	Ended             time.Duration `json:"ended_ns"`           // the last client was gone
	Schedule          time.Duration `json:"schedule_ns"`        // the last planned arrival, from Started
	MaxPresent        int           `json:"max_present"`        // most clients there at once
	LateP50           time.Duration `json:"late_p50_ns"`        // how far behind its schedule the generator started clients
	LateP99           time.Duration `json:"late_p99_ns"`        // of fewer than 100 clients the maximum
	LateMax           time.Duration `json:"late_max_ns"`        // of the one that was started latest
	Slack             time.Duration `json:"late_slack_ns"`      // what LateP99 may be at most
	ThinkLate         time.Duration `json:"think_late_ns"`      // the most by which a pause lasted longer than it should have
	Calls             int           `json:"calls"`              // that clients asked for
	Sent              int           `json:"sent"`               // whole requests handed to the kernel
	Answered          int           `json:"answered"`           // whole answers
	TimedOut          int           `json:"timed_out"`          // sent, no whole answer in time
	Broken            int           `json:"broken"`             // sent, and the connection or the answer broke
	Refused           int           `json:"refused"`            // never sent whole, as the server took no connection or broke it
	Unsent            int           `json:"unsent"`             // never sent whole, for a reason on our side
	Waited            int           `json:"waited"`             // calls that had to wait for a connection of the pool
	WaitMax           time.Duration `json:"wait_max_ns"`        // the longest such wait
	InFlight          int           `json:"max_in_flight"`      // most requests sent and not yet answered at one instant
	Stale             int           `json:"stale"`              // reused connections that died before the answer; among Broken and Refused
	Connections       int           `json:"connections"`        // most connections at once that were allowed
	ConnectionsOpened int           `json:"connections_opened"` // connections opened over the whole load
	ConnectionsMost   int           `json:"connections_most"`   // most of them at once
	_                 struct{}
}

// Validate says what is wrong with the load, which is the scenario's mistake.
func (l OpenLoop) Validate() error {
	last := time.Duration(0)
	for i, at := range l.Arrivals {
		if at < last {
			return fmt.Errorf("open loop %s: client %d arrives at %s, before the client ahead of it (%s) or before the start", l.Name, i, at, last)
		}
		last = at
	}
	switch {
	case l.Name == "":
		return fmt.Errorf("an open loop needs a name")
	case len(l.Arrivals) == 0:
		return fmt.Errorf("open loop %s: nobody arrives", l.Name)
	case l.Client == nil:
		return fmt.Errorf("open loop %s: clients have nothing to do", l.Name)
	case l.Connections < 1:
		return fmt.Errorf("open loop %s: %d connections, want at least 1", l.Name, l.Connections)
	case l.Deadline <= last:
		return fmt.Errorf("open loop %s: its deadline, %s, is not after the last arrival, %s", l.Name, l.Deadline, last)
	}
	return nil
}

// LateAllowed is Slack, or what it is when it is not set.
func (l OpenLoop) LateAllowed() time.Duration {
	if l.Slack > 0 || len(l.Arrivals) == 0 {
		return l.Slack
	}
	return max(100*time.Millisecond, l.Arrivals[len(l.Arrivals)-1]/100)
}
