package harness

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// A Scenario is one named experiment, written in Go (or compiled from a
// configuration). It is a plain value; nothing registers itself.
type Scenario struct {
	Name    string   // "library/one-seat"; a variant adds "@": "library/one-seat@direct"
	Title   string   // one line, no full stop
	Doc     string   // what it does to try to break the system, and how to read the outcome
	Sources []string // ids of what it examines: "L-I3", "L-M1"
	Tags    []string // "race" is the default suite; "demo", "slow", ...

	Params   []Param
	Topology func(Params) Topology

	// Choose makes every random choice of the run. What it gives is stored in
	// the plan as JSON; it must depend on rng and the parameters alone.
	Choose func(rng *rand.Rand, p Params) (any, error)

	// Drive does what the scenario is about. Its error is trouble of the
	// environment (Unknown), never a violation: violations are for Checks.
	Drive func(ctx context.Context, env Env) error

	Settle Settle
	Tables []string // dumped into the record after settling, for reading and for checks
	Checks func(Params) []Check

	// Rounds says how many rounds the parameters ask for; nil means one.
	Rounds func(Params) int

	// Outcomes tallies a record in the design's own words (SUCCEEDED: 1). Optional.
	Outcomes func(Record) map[string]int

	// Latency names the kind of operation whose response time is reported.
	Latency string

	// Latencies names further kinds whose response times are reported, each by
	// itself and with its n.
	Latencies []string
	_         struct{}
}

// HasTag reports whether the scenario carries the tag.
func (s Scenario) HasTag(tag string) bool { return slices.Contains(s.Tags, tag) }

// A Settle says when the system under test is quiescent.
type Settle struct {
	Doc      string        // what is waited for, for the message when it does not come
	SQL      string        // settled when this query returns no row
	Deadline time.Duration // then the run is Unknown (timeout)
	_        struct{}
}

// A Topology is what has to be up for a scenario.
type Topology struct {
	Design   string            // the reference server's design: "library"
	Replicas int               // server processes, at least 1
	Redis    bool              // a Redis server, through the Redis wire
	Doubles  []Double          // upstream systems
	Server   map[string]string // the server's environment, beside addresses and URLs
	Delayed  []int             // replicas (from 0) that Drive starts itself, later

	PostgresWire bool         // the servers reach Postgres through our proxy
	Clusters     ClusterKinds // "" for the cluster that all runs share
	_            struct{}
}

// ClusterKinds says on which Postgres a scenario runs.
type ClusterKinds string

// A pair is two clusters of the run's own, with durability on; it has the Postgres wire.
const (
	SharedCluster ClusterKinds = ""
	SyncPair      ClusterKinds = "sync-pair"  // a commit waits for the standby
	AsyncPair     ClusterKinds = "async-pair" // a commit does not
)

// A Double is our stand-in for an upstream system: WireMock mappings that
// everybody calls, and the stateful handler that they proxy to.
type Double struct {
	Name     string                         // "pyxis"; the server gets PYXIS_URL
	New      func(seed uint64) http.Handler // fresh state; also answers POST/GET /__double/config and GET /__double/ledger
	Mappings fs.FS                          // *.json; ${double.url} and ${prefix} are filled in
	Count    []string                       // "POST /reserve": what both observers must agree on
	CountBy  map[string]string              // "POST /reserve" -> "seat": a field of the JSON body that is counted by, too
	_        struct{}
}
