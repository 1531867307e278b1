package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/doctor"
	"github.com/overbook/overbook/harness/run"
)

func (a *app) doctorCommand() *cobra.Command {
	var parts partFlags
	var fix, quiet bool
	c := &cobra.Command{
		Use: "doctor", Short: "what this machine has, what is missing, and how to get it",
		Long: `Lists each need with ✓ or ✗ and its fix. --fix does what it can: fetches the pinned WireMock jar and checks its checksum, installs
PostgreSQL, Redis, a Java runtime (and npm, for the jar, where there is no Maven either) through apt when run as root, and prepares
WireMock's start-up archive.`,
		Example: "  overbook doctor\n  overbook doctor --fix", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			options, err := parts.options()
			if err != nil {
				return err
			}
			findings := doctor.Diagnose(c.Context(), doctor.Checks(options))
			if fix {
				findings, _ = doctor.Repair(c.Context(), findings, func(text string) { fmt.Fprintln(a.err, text) }) // the list says what could not be fixed
			}
			if !quiet || !doctor.Healthy(findings) {
				fmt.Fprint(a.out, findingsText(findings))
			}
			return missing(findings, fix)
		},
	}
	parts.add(c)
	c.Flags().BoolVar(&fix, "fix", false, "install and prepare what is missing")
	c.Flags().BoolVar(&quiet, "quiet", false, "print nothing when all is well")
	return c
}

// missing is the error about what the list marks with ✗, nil when there is none.
func missing(findings []doctor.Finding, fixed bool) error {
	var names []string
	for _, f := range findings {
		if f.State == doctor.Missing || f.State == doctor.Skipped {
			names = append(names, f.Check.Name)
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case fixed:
		return environment(fmt.Errorf("still missing: %s", strings.Join(names, ", ")), "do what stands at \"fix\" above, then run this again")
	}
	return environment(fmt.Errorf("missing: %s", strings.Join(names, ", ")), "overbook doctor --fix does what it can")
}

func findingsText(findings []doctor.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		mark := map[doctor.State]string{doctor.Fine: "✓", doctor.Warning: "!", doctor.Missing: "✗", doctor.Skipped: "?"}[f.State]
		note := ""
		if f.Fixed {
			note = " (just fixed)"
		}
		detail, next, _ := strings.Cut(f.Detail, "\n  next: ") // of a problem that was met while fixing
		fmt.Fprintf(&b, "%s %-24s %s%s\n", mark, f.Check.Name, detail, note)
		if fix := cmp.Or(next, f.Check.FixText); f.State != doctor.Fine && fix != "" {
			fmt.Fprintf(&b, "  %-24s fix: %s\n", "", fix)
		}
	}
	return b.String()
}

func (a *app) upCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "up [SCENARIO]", Short: "bring everything up and stay, printing where it is",
		Long: `Brings up the topology of a scenario (default library/one-seat): Postgres, WireMock with the double, the wires and the server
under test, for poking by hand. Ctrl-C takes everything down.`,
		Example: "  overbook up\n  overbook up library/redis-down --set users=2", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeNames,
		RunE: func(c *cobra.Command, args []string) error {
			name := "library/one-seat"
			if len(args) == 1 {
				name = args[0]
			}
			todo, err := a.onePlan(&f, name)
			if err != nil {
				return err
			}
			return a.up(c.Context(), f, todo)
		},
	}
	f.plan.add(c)
	f.parts.add(c)
	c.Flags().StringVar(&f.out, "out", defaultOut, "where the processes' logs go while it is up")
	c.Flags().StringVar(&f.mutant, "mutant", "", "plant this bug in the reference server first")
	return c
}

// up keeps the topology up until Ctrl-C, which is how it is meant to end.
func (a *app) up(ctx context.Context, f runFlags, todo planned) error {
	server, err := a.server(a.interrupted, f.mutant) //nolint:contextcheck // building gives up on the first Ctrl-C
	if err != nil {
		return err
	}
	p := a.progress()
	defer p.done()
	conductor, err := a.conductor(f, p, []planned{todo})
	if err != nil {
		return err
	}
	err = conductor.Stay(ctx, todo.scenario, todo.plan, server, func(list []run.Address) {
		p.done()
		fmt.Fprintf(a.out, "up since %s; Ctrl-C takes everything down\n", clock.Wall().Format("15:04:05"))
		for _, x := range list {
			fmt.Fprintf(a.out, "  %-14s %s   %s\n", x.Name, x.URL, x.Note)
		}
	})
	return environment(errors.Join(err, conductor.Close()), "")
}
