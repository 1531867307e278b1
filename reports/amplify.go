package reports

import (
	_ "embed"
	"io"
	"time"

	"github.com/overbook/overbook/harness"
)

// AmplifySchema is the JSON Schema (draft 2020-12) of an [Amplification].
//
//go:embed schema/amplify.schema.json
var AmplifySchema string

// An Amplification compares the two paths of the library design: how many
// upstream writes one burst on one seat costs, and what the protection does
// to the time of a confirm. It marshals to the document of 'overbook amplify --json'.
type Amplification struct {
	SchemaVersion int             `json:"schema_version"` // 1
	Users         int             `json:"users"`          // requests of each burst
	Rounds        int             `json:"rounds"`         // bursts of each path
	Upstream      AmplifyUpstream `json:"upstream"`
	Paths         AmplifyPaths    `json:"paths"`
	Ratio         AmplifyRatio    `json:"ratio"`
	Verdict       harness.Status  `json:"verdict"`
	Seed          harness.Seed    `json:"seed"`
	Command       string          `json:"command"` // that made it
	Host          harness.Host    `json:"host"`
	Started       time.Time       `json:"started"`
	RunDirs       []string        `json:"run_dirs"`
	_             struct{}
}

// AmplifyUpstream says how the double behaved, the same for both paths.
type AmplifyUpstream struct {
	LatencyModel string `json:"latency_model"` // "lognormal, median 150 ms, sigma 0.4"
	_            struct{}
}

// AmplifyPaths are the two paths.
type AmplifyPaths struct {
	Direct AmplifyPath `json:"direct"`
	Intent AmplifyPath `json:"intent"`
	_      struct{}
}

// An AmplifyPath is what all rounds of one path gave.
type AmplifyPath struct {
	ReservePosts harness.CountPair `json:"reserve_posts"` // the most seen in a round
	Outcomes     map[string]int    `json:"outcomes"`      // of all rounds together
	ConfirmMS    harness.Latency   `json:"confirm_ms"`    // of all rounds together, exact ranks
	PerRound     []AmplifyRound    `json:"per_round"`
	_            struct{}
}

// An AmplifyRound is one burst.
type AmplifyRound struct {
	Round        int               `json:"round"` // from 1
	ReservePosts harness.CountPair `json:"reserve_posts"`
	Outcomes     map[string]int    `json:"outcomes"`
	ConfirmMS    harness.Latency   `json:"confirm_ms"`
	_            struct{}
}

// An AmplifyRatio compares the paths. A ratio that can't be computed is 0.
type AmplifyRatio struct {
	ReservePosts       float64    `json:"reserve_posts"`        // direct over intent: 100 means a hundred to one
	ConfirmP95         float64    `json:"confirm_p95"`          // intent over direct: below 1 the protection is faster
	ConfirmP95Interval [2]float64 `json:"confirm_p95_interval"` // 95 %, lowest and highest
	_                  struct{}
}

// AmplifyJSON writes the comparison as one document with a trailing newline.
func AmplifyJSON(w io.Writer, a Amplification) error { return document(w, a.settled()) }

// settled has no nil where a reader expects a list or an object.
func (a Amplification) settled() Amplification {
	if a.SchemaVersion == 0 {
		a.SchemaVersion = 1
	}
	a.Verdict = harness.Worst(a.Verdict)
	a.RunDirs = append([]string{}, a.RunDirs...)
	for _, p := range []*AmplifyPath{&a.Paths.Direct, &a.Paths.Intent} {
		p.Outcomes = filled(p.Outcomes)
		p.PerRound = append([]AmplifyRound{}, p.PerRound...)
		for i := range p.PerRound {
			p.PerRound[i].Outcomes = filled(p.PerRound[i].Outcomes)
		}
	}
	return a
}

// twice counts the rounds of the path in which the one seat was given to more
// than one student, and how many such students were too many.
func (p AmplifyPath) twice() (rounds, extra int) {
	for _, r := range p.PerRound {
		if won := r.Outcomes["SUCCEEDED"]; won > 1 {
			rounds++
			extra += won - 1
		}
	}
	return rounds, extra
}
