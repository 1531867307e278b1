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
	for _, name := range []string{"repeat", "tag", "mutant", "set", "replicas", "users", "strict", "allow-unknown"} {
		_ = c.Flags().MarkHidden(name)
	}
	return c
}

// demoWindow is wide enough that some of a hundred requests meet in it.
const demoWindow = "30ms"

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
	suite, records, err := a.conduct(ctx, f, seed, todo)
	if err != nil {
		return err
	}
	if err := a.publish(f, files, suite, records); err != nil {
		return environment(err, "")
	}
	if len(suite.Scenarios) != 2 {
		return ended(codeOf(suite, a.interrupted.Err() != nil, true, false))
	}
	red, green := suite.Scenarios[0], suite.Scenarios[1]
	if !f.json {
		fmt.Fprintf(a.err, "\nwithout the worker: %s. %s\n  report  %s\nwith it:            %s. %s\n  report  %s\n",
			red.Verdict, red.Summary, red.Report, green.Verdict, green.Summary, green.Report)
	}
	if red.Verdict == harness.Failed && green.Verdict == harness.Pass {
		return nil
	}
	return &codedError{ExitUnknown, "run it again; what was seen is in the reports named above",
		fmt.Errorf("the demo wants one red and one green run, and got %s and %s", red.Verdict, green.Verdict)}
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
