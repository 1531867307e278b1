package harness

import "time"

// A Result is one scenario's outcome: what was judged, what was measured,
// where it is kept and how to do it again. The JSON report is this.
type Result struct {
	Name         string                          `json:"name"`
	Title        string                          `json:"title"`
	Verdict      Status                          `json:"verdict"`
	Reason       Reason                          `json:"reason,omitempty"`
	Summary      string                          `json:"summary"` // one sentence
	Seed         Seed                            `json:"seed"`
	Mutant       string                          `json:"mutant,omitempty"`
	Rounds       int                             `json:"rounds"`
	Params       Params                          `json:"params"`
	Started      time.Time                       `json:"started"`
	DurationMS   float64                         `json:"duration_ms"`
	PhasesMS     map[string]float64              `json:"phases_ms"`              // up, drive, settle, collect, check, down
	Responses    map[string]int                  `json:"responses"`              // by HTTP status of the latency kind; "none" without an answer
	Outcomes     map[string]int                  `json:"outcomes"`               // by the design's own states: SUCCEEDED, FAILED_RACE
	Upstream     map[string]map[string]CountPair `json:"upstream"`               // "pyxis" -> "POST /reserve"
	Latency      *Latency                        `json:"latency_ms,omitempty"`   // response time of the latency kind
	Latencies    map[string]*Latency             `json:"latencies_ms,omitempty"` // by kind, of the further kinds that the scenario names
	Bursts       []BurstReport                   `json:"bursts"`
	Loads        []OpenLoopReport                `json:"loads,omitempty"` // open loops
	Witness      []Witness                       `json:"witness"`
	Checks       []Verdict                       `json:"checks"`
	Measurements map[string]float64              `json:"measurements"`
	RunDir       string                          `json:"run_dir"`
	Replay       string                          `json:"replay"` // one command line
	Report       string                          `json:"report,omitempty"`
	_            struct{}
}

// A CountPair is what the two observers counted.
type CountPair struct {
	Ledger   int `json:"ledger"`
	WireMock int `json:"wiremock"` // -1: could not be read
	_        struct{}
}

// Latency summarises response times in milliseconds. Percentiles are exact
// ranks of raw samples. P99 is absent under 100 samples.
type Latency struct {
	N   int      `json:"n"`
	P50 float64  `json:"p50"`
	P95 float64  `json:"p95"`
	P99 *float64 `json:"p99,omitempty"`
	Max float64  `json:"max"`
	_   struct{}
}

// A Suite is the outcome of one invocation: the document of --json.
type Suite struct {
	SchemaVersion int       `json:"schema_version"`
	Tool          string    `json:"tool"`
	Version       string    `json:"version"`
	Seed          Seed      `json:"seed"`
	Started       time.Time `json:"started"`
	DurationMS    float64   `json:"duration_ms"`
	Host          Host      `json:"host"`
	Verdict       Status    `json:"verdict"`
	Scenarios     []Result  `json:"scenarios"`
	Skipped       []string  `json:"skipped,omitempty"` // names of scenarios that were not run: interrupted, or a part had died
	_             struct{}
}

// Host says on what the figures were measured.
type Host struct {
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Cores    int    `json:"cores"`
	Go       string `json:"go"`
	Postgres string `json:"postgres,omitempty"` // version, where from, durability
	WireMock string `json:"wiremock,omitempty"`
	Redis    string `json:"redis,omitempty"`
	_        struct{}
}
