package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/stats"
	"github.com/overbook/overbook/reports"
	"github.com/overbook/overbook/scenarios"
)

// resamples of the bootstrap; more change the interval in the third digit only.
const resamples = 2000

func (a *app) amplifyCommand() *cobra.Command {
	var f runFlags
	var rounds int
	c := &cobra.Command{
		Use: "amplify", Short: "the write-amplification table: upstream writes and confirm latency, paths side by side",
		Long: `Runs the burst on one seat over the direct and over the intent path, alternating, with the same upstream latency model and the
same seeds, and compares: reserve POSTs (by both observers), outcomes, confirm percentiles and their ratio. One round of each
path goes before and is judged, but not measured.

The upstream gets a small check-then-act window, as real ones have. The direct path may therefore give a seat twice: it is the
baseline and does not promise otherwise. The verdict is about the intent path's invariants and about the counts of both paths.`,
		Example: "  overbook amplify\n  overbook amplify --rounds 50 --json\n  overbook amplify --users 20 --set latency=50ms",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.amplify(c.Context(), f, rounds) },
	}
	f.add(c)
	c.Flags().IntVar(&rounds, "rounds", 20, "bursts of each path, each on a seat of its own")
	without(c, "it compares two paths and has its own table", "repeat", "tag", "junit", "html", "github", "verbose")
	return c
}

// batches is how the rounds of each path are split, so that both paths meet
// the same state of the machine, and neither is always the one that finds it
// warm: direct, intent, intent, direct, ...
const batches = 4

func (a *app) amplify(ctx context.Context, f runFlags, rounds int) error {
	if rounds < 1 {
		return usage(fmt.Errorf("--rounds %d: want 1 or more", rounds), "")
	}
	seed, set, err := f.plan.parsed()
	if err != nil {
		return err
	}
	for _, name := range []string{"path", "rounds", "latency_skip", "postgres_wire"} {
		if _, ok := set[name]; ok {
			return usage(fmt.Errorf("--set %s: amplify sets that itself", name), "both paths are run; --rounds says how often")
		}
	}
	base, err := a.scenario("library/one-seat")
	if err != nil {
		return err
	}
	if _, ok := set["window"]; !ok {
		set["window"] = amplifyWindow
	}
	todo, err := f.amplifyPlans(base, seed, set, rounds)
	if err != nil {
		return err
	}
	files, err := f.open()
	if err != nil {
		return err
	}
	defer files.close()
	fmt.Fprintf(a.err, "seed %s, %s of each path, after one to warm up\n", seed, plural(rounds, "round"))
	f.quiet = true
	out, err := a.conduct(ctx, f, seed, todo)
	if err != nil {
		return err
	}
	table := a.amplification(out.suite, out.records)
	if table.Rounds < rounds {
		fmt.Fprintf(a.err, "measured: %d of %s of each path\n", table.Rounds, plural(rounds, "round"))
	}
	return a.conclude(f, out, a.amplified(f, files, out.suite, table))
}

// warmups are the runs before the measured ones: one round of each path. The
// first burst that meets a fresh WireMock takes twice as long as the next, and
// that is no property of the path that happens to make it.
const warmups = 2

// amplifyPlans gives the warm-ups and deals the rounds of both paths to
// batches. All have the same seed, and each goes on in the seed's sequence of upstream latencies where the
// last of its path stopped, so that each path meets the whole distribution.
func (f *runFlags) amplifyPlans(base harness.Scenario, seed harness.Seed, set harness.Params, rounds int) ([]planned, error) {
	var todo []planned
	for _, path := range []string{"direct", "intent"} {
		params := maps.Clone(set)
		params["path"], params["rounds"], params["postgres_wire"] = path, "1", "off"
		warmup, err := f.plan.plans([]harness.Scenario{measuredOnly(base, path)}, seed, params, 1)
		if err != nil {
			return nil, err
		}
		todo = append(todo, warmup...)
	}
	done := 0
	for b := range min(batches, rounds) {
		n := rounds/min(batches, rounds) + btoi(b < rounds%min(batches, rounds))
		paths := []string{"direct", "intent"}
		if b%2 == 1 {
			slices.Reverse(paths)
		}
		for _, path := range paths {
			params := maps.Clone(set)
			params["path"], params["rounds"], params["postgres_wire"] = path, strconv.Itoa(n), "off"
			plan := func() ([]planned, error) {
				return f.plan.plans([]harness.Scenario{measuredOnly(base, path)}, seed, params, 1)
			}
			batch, err := plan()
			if err != nil {
				return nil, err
			}
			calls := done // of this path so far: one a round, or one for each user
			if path == "direct" {
				calls *= batch[0].plan.Params.Int("users")
			}
			params["latency_skip"] = strconv.Itoa(calls)
			if batch, err = plan(); err != nil {
				return nil, err
			}
			todo = append(todo, batch...)
		}
		done += n
	}
	return todo, nil
}

// amplifyWindow is the upstream's check-then-act window in the comparison.
const amplifyWindow = "3ms"

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// measuredOnly takes from the direct path the checks that it does not promise:
// that a seat with a check-then-act upstream has one winner. The winners are
// counted in the table instead; everybody must have an answer, though, as a
// percentile of those alone who got one would flatter it.
func measuredOnly(s harness.Scenario, path string) harness.Scenario {
	if path == "intent" {
		return s
	}
	return scenarios.Measured(s)
}

// amplification makes the table of the runs. Its rounds are those that took
// place on both paths, and only these are compared: with a round more, one path
// would have met other latencies of the upstream. The ratio is left out where
// one round alone gives no interval.
func (a *app) amplification(s harness.Suite, records map[string]harness.Record) reports.Amplification {
	t := reports.Amplification{
		SchemaVersion: 1, Verdict: s.Verdict, Seed: s.Seed, Host: s.Host, Started: s.Started,
		Command: "overbook " + strings.Join(os.Args[1:], " "),
	}
	times := map[string][][]time.Duration{}
	for _, r := range s.Scenarios[min(warmups, len(s.Scenarios)):] {
		path := &t.Paths.Intent
		if r.Params.Text("path") == "direct" {
			path = &t.Paths.Direct
		}
		t.Users = r.Params.Int("users")
		t.Upstream.LatencyModel = fmt.Sprintf("lognormal, median %s, sigma %.2f; check-then-act window %s",
			r.Params.Text("latency"), float64(r.Params.Int("sigma_percent"))/100, r.Params.Text("window"))
		t.RunDirs = append(t.RunDirs, r.RunDir)
		perRound, samples := amplifyRounds(r, records[r.RunDir], len(path.PerRound))
		path.PerRound = append(path.PerRound, perRound...)
		times[r.Params.Text("path")] = append(times[r.Params.Text("path")], samples...)
	}
	summarisePath(&t.Paths.Direct, times["direct"])
	summarisePath(&t.Paths.Intent, times["intent"])
	if n := t.Paths.Intent.ReservePosts.Ledger; n > 0 {
		t.Ratio.ReservePosts = float64(t.Paths.Direct.ReservePosts.Ledger) / float64(n)
	}
	t.Rounds = min(len(times["direct"]), len(times["intent"]))
	if t.Rounds > 1 {
		ratio, lo, hi := stats.RatioInterval(s.Seed.Rand("bootstrap"), times["intent"][:t.Rounds], times["direct"][:t.Rounds], stats.P95, resamples)
		if !math.IsNaN(ratio + lo + hi) {
			t.Ratio.ConfirmP95, t.Ratio.ConfirmP95Interval = ratio, [2]float64{lo, hi}
		}
	}
	return t
}

// amplifyRounds takes a run apart into its bursts.
func amplifyRounds(r harness.Result, rec harness.Record, from int) (rounds []reports.AmplifyRound, times [][]time.Duration) {
	var c struct {
		Seats []string `json:"seats"`
	}
	if rec.Plan.Decode(&c) != nil {
		return nil, nil
	}
	for i, b := range r.Bursts {
		if i >= len(c.Seats) {
			break
		}
		round := reports.AmplifyRound{Round: from + i + 1, Outcomes: map[string]int{}}
		var samples []time.Duration
		for _, op := range rec.History.OfKind("confirm") {
			if op.Burst == b.Name && op.ResponseTime() > 0 {
				samples = append(samples, op.ResponseTime())
			}
		}
		round.ReservePosts = scenarios.ReservePosts(rec, c.Seats[i])
		rows, _ := rec.Find("table:library_reservation_intents")
		for _, row := range rows.Rows {
			if row["seat"] == c.Seats[i] {
				round.Outcomes[fmt.Sprint(row["state"])]++
			}
		}
		if l := stats.Summarise(samples); l != nil {
			round.ConfirmMS = *l
		}
		rounds, times = append(rounds, round), append(times, samples)
	}
	return rounds, times
}

func summarisePath(p *reports.AmplifyPath, times [][]time.Duration) {
	p.Outcomes = map[string]int{}
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	if l := stats.Summarise(all); l != nil {
		p.ConfirmMS = *l
	}
	unread := len(p.PerRound) == 0
	for _, r := range p.PerRound {
		p.ReservePosts.Ledger = max(p.ReservePosts.Ledger, r.ReservePosts.Ledger)
		p.ReservePosts.WireMock = max(p.ReservePosts.WireMock, r.ReservePosts.WireMock)
		unread = unread || r.ReservePosts.WireMock < 0
		for state, n := range r.Outcomes {
			p.Outcomes[state] += n
		}
	}
	if unread { // the most that was read is not the most there was
		p.ReservePosts.WireMock = -1
	}
}

// amplified prints the table, or the document, and what did not hold.
func (a *app) amplified(f runFlags, o outFiles, s harness.Suite, t reports.Amplification) error {
	var err error
	if f.json {
		err = reports.AmplifyJSON(a.out, t)
	} else {
		err = reports.AmplifyText(a.out, t, reports.TextOptions{Color: a.color})
	}
	if o.md != nil {
		err = errors.Join(err, reports.AmplifyMarkdown(o.md, t))
	}
	for _, r := range s.Scenarios {
		if r.Verdict != harness.Pass {
			fmt.Fprintf(a.err, "%s %s (path %s): %s\n  replay  %s\n  report  %s\n", r.Verdict, r.Name, r.Params.Text("path"), r.Summary, r.Replay, r.Report)
		}
	}
	return err
}
