package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios"
)

func (a *app) demoCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "demo", Short: "one red and one green run in a minute",
		Long: `The same hundred people on the same seat, twice. First the server writes upstream on each request, and the upstream looks before
it takes the seat: the seat is overbooked, and you see how that is shown. Then a worker writes for all of them: it is not.
Exits with 0 when the red run is red and the green run is green.`,
		Example: "  overbook demo", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context(), f) },
	}
	f.add(c)
	without(c, "what it shows is fixed", "repeat", "tag", "mutant", "set", "replicas", "users", "strict", "allow-unknown")
	return c
}

// demoWindow is so wide that some of a hundred requests meet in it on any
// machine, also on one that is busy with other things.
const demoWindow = "150ms"

func (a *app) demo(ctx context.Context, f runFlags) error {
	seed, _, err := f.plan.parsed()
	if err != nil {
		return err
	}
	base, err := a.scenario("library/one-seat")
	if err != nil {
		return err
	}
	var todo []planned
	for _, path := range []string{"direct", "intent"} {
		plan, err := base.MakePlan(seed, harness.Params{"path": path, "window": demoWindow})
		if err != nil {
			return err
		}
		todo = append(todo, planned{base, plan})
	}
	files, err := f.open()
	if err != nil {
		return err
	}
	defer files.close()
	fmt.Fprintf(a.err, "seed %s; 100 people, one seat: first each request writes upstream, then a worker does\n", seed)
	f.streamed = true
	out, err := a.conduct(ctx, f, seed, todo)
	if err != nil {
		return err
	}
	unpublished := a.publish(f, files, out.suite, out.records)
	if len(out.suite.Scenarios) != 2 || a.interrupted.Err() != nil || unpublished != nil || out.broken != nil {
		return a.conclude(f, out, unpublished)
	}
	return a.compared(f, out)
}

// compared says what the two runs show. Green when it should be red is a demo
// that came to nothing; red when it should be green is a violation.
func (a *app) compared(f runFlags, out campaign) error {
	red, green := out.suite.Scenarios[0], out.suite.Scenarios[1]
	if !f.json {
		fmt.Fprintf(a.err, "\nwithout the worker: %s. %s\n  report  %s\nwith it:            %s. %s\n  report  %s\n",
			red.Verdict, red.Summary, red.Report, green.Verdict, green.Summary, green.Report)
	}
	if red.Verdict == harness.Failed && green.Verdict == harness.Pass {
		return nil
	}
	out.suite.Scenarios = []harness.Result{green}
	if red.Verdict == harness.Unknown {
		out.suite.Scenarios = append(out.suite.Scenarios, red)
	}
	code := codeOf(out.suite, false, false, false)
	if code == ExitPass {
		code = ExitUnknown
	}
	return &codedError{
		code, "run it again; what was seen is in the reports named above",
		fmt.Errorf("the demo wants one red and one green run, and got %s and %s", red.Verdict, green.Verdict),
	}
}

// onePlan is the plan of exactly one scenario.
func (a *app) onePlan(f *runFlags, name string) (planned, error) {
	chosen, err := scenarios.Select(a.Scenarios, []string{name}, "")
	if err != nil {
		return planned{}, usage(err, "")
	}
	seed, set, err := f.plan.parsed()
	if err != nil {
		return planned{}, err
	}
	todo, err := f.plan.plans(chosen[:1], seed, set, 1)
	if err != nil {
		return planned{}, err
	}
	return todo[0], nil
}
