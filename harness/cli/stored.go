package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/run"
	"github.com/overbook/overbook/harness/rundir"
	"github.com/overbook/overbook/reports"
)

// scenario finds a built-in scenario by its whole name.
func (a *app) scenario(name string) (harness.Scenario, error) {
	i := slices.IndexFunc(a.Scenarios, func(s harness.Scenario) bool { return s.Name == name })
	if i < 0 {
		return harness.Scenario{}, usage(fmt.Errorf("the run is of scenario %q, which this program does not have", name), "use the version that made the run")
	}
	return a.Scenarios[i], nil
}

// rejudge reads a stored run and judges it again with today's checks.
func (a *app) rejudge(root, arg string) (harness.Suite, harness.Record, error) {
	dir, err := rundir.Resolve(root, arg)
	if err != nil {
		return harness.Suite{}, harness.Record{}, usage(err, "")
	}
	rec, stored, err := rundir.Read(dir)
	if err != nil {
		return harness.Suite{}, rec, usage(err, "the directory is not a whole run; run it again")
	}
	s, err := a.scenario(rec.Plan.Scenario)
	if err != nil {
		return harness.Suite{}, rec, err
	}
	r := run.Summarise(s, rec, check.Judge(s, rec))
	r.Started, r.DurationMS, r.PhasesMS = stored.Started, stored.DurationMS, stored.PhasesMS
	r.RunDir, r.Replay = dir, stored.Replay
	return harness.Suite{
		SchemaVersion: 1, Tool: "overbook", Version: version(), Seed: r.Seed, Started: r.Started, DurationMS: r.DurationMS,
		Host: host(), Verdict: r.Verdict, Scenarios: []harness.Result{r},
	}, rec, nil
}

func (a *app) checkCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "check RUN", Short: "judge a stored run again",
		Long:    `Reads a run directory (or the latest run of a scenario) and judges it with today's checks. Nothing is started.`,
		Example: "  overbook check runs/library/one-seat/latest\n  overbook check library/one-seat -v",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			suite, rec, err := a.rejudge(f.out, args[0])
			if err != nil {
				return err
			}
			if err := a.publish(f, outFiles{}, suite, map[string]harness.Record{suite.Scenarios[0].RunDir: rec}); err != nil {
				return environment(err, "")
			}
			return ended(codeOf(suite, false, f.strict, f.allowUnknown))
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.out, "out", defaultOut, "root of the run directories")
	fs.BoolVar(&f.json, "json", false, "standard output is one JSON document")
	fs.BoolVar(&f.strict, "strict", false, "UNKNOWN exits with 1")
	fs.BoolVar(&f.allowUnknown, "allow-unknown", false, "UNKNOWN exits with 0")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print every check")
	c.MarkFlagsMutuallyExclusive("strict", "allow-unknown")
	return c
}

func (a *app) reportCommand() *cobra.Command {
	var root, format string
	c := &cobra.Command{
		Use: "report RUN", Short: "render a stored run: text, html, junit, markdown, github or json",
		Example: "  overbook report library/one-seat --format html > report.html\n  overbook report runs/library/one-seat/latest --format junit",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			render := map[string]func(io.Writer, harness.Suite, harness.Record) error{
				"text": func(w io.Writer, s harness.Suite, rec harness.Record) error {
					return reports.Text(w, s, reports.TextOptions{Color: a.color, Verbose: true, Records: map[string]harness.Record{s.Scenarios[0].RunDir: rec}})
				},
				"html":  func(w io.Writer, s harness.Suite, rec harness.Record) error { return reports.HTML(w, pageOf(s, rec)) },
				"junit": func(w io.Writer, s harness.Suite, _ harness.Record) error { return reports.JUnit(w, s) },
				"markdown": func(w io.Writer, s harness.Suite, rec harness.Record) error {
					return reports.MarkdownPage(w, pageOf(s, rec))
				},
				"github": func(w io.Writer, s harness.Suite, rec harness.Record) error {
					return reports.GitHubPage(w, pageOf(s, rec))
				},
				"json": func(w io.Writer, s harness.Suite, _ harness.Record) error { return reports.JSON(w, s) },
			}[format]
			if render == nil {
				return usage(fmt.Errorf("--format %s: want text, html, junit, markdown, github or json", format), "")
			}
			suite, rec, err := a.rejudge(root, args[0])
			if err != nil {
				return err
			}
			return environment(render(a.out, suite, rec), "")
		},
	}
	c.Flags().StringVar(&root, "out", defaultOut, "root of the run directories")
	c.Flags().StringVar(&format, "format", "text", "text, html, junit, markdown, github or json")
	return c
}

func (a *app) replayCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "replay RUN", Short: "run a stored run's plan again: same scenario, seed, parameters and mutant",
		Long: `Makes the same plan again and runs it. A burst is not deterministic: the seed fixes every choice of ours, not the order in which
the machine lets requests through. Use --repeat to see how often the outcome comes back.`,
		Example: "  overbook replay library/one-seat\n  overbook replay runs/library/one-seat/latest --repeat 10",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := rundir.Resolve(f.out, args[0])
			if err != nil {
				return usage(err, "")
			}
			rec, _, err := rundir.Read(dir)
			if err != nil {
				return usage(err, "")
			}
			if _, err := a.scenario(rec.Plan.Scenario); err != nil {
				return err
			}
			f.plan.seed, f.mutant = rec.Plan.Seed.String(), rec.Plan.Mutant
			for name, value := range rec.Plan.Params {
				f.plan.set = append(f.plan.set, name+"="+value)
			}
			return a.run(c.Context(), f, []string{rec.Plan.Scenario})
		},
	}
	f.add(c)
	without(c, "it comes from the stored run", "seed", "set", "users", "replicas", "tag", "mutant")
	return c
}

// pageOf is one stored run as a page.
func pageOf(s harness.Suite, rec harness.Record) reports.Page {
	return reports.Page{Suite: s, Records: map[string]harness.Record{s.Scenarios[0].RunDir: rec}}
}
