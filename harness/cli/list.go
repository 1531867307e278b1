package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/mutant"
	"github.com/overbook/overbook/scenarios"
)

func (a *app) listCommand() *cobra.Command {
	var verbose, asJSON bool
	var tag string
	c := &cobra.Command{
		Use: "list [NAME or glob...]", Short: "the scenarios there are",
		Example: "  overbook list\n  overbook list -v library/one-seat\n  overbook list --json",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && tag == "" {
				args = []string{"*/*"}
			}
			chosen, err := scenarios.Select(a.Scenarios, args, tag)
			if err != nil {
				return usage(err, "")
			}
			if asJSON {
				return a.listJSON(chosen)
			}
			return a.listText(chosen, verbose)
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "what each does, its checks and its parameters")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	c.Flags().StringVar(&tag, "tag", "", "only scenarios with this tag")
	return c
}

func (a *app) listText(chosen []harness.Scenario, verbose bool) error {
	var b strings.Builder
	width := 0
	for _, s := range chosen {
		width = max(width, len(s.Name))
	}
	for _, s := range chosen {
		if !verbose {
			fmt.Fprintf(&b, "%-*s  %s\n", width, s.Name, s.Title)
			continue
		}
		fmt.Fprintf(&b, "%s\n  %s\n\n", s.Name, s.Title)
		for line := range strings.Lines(s.Doc) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(line))
		}
		fmt.Fprintf(&b, "\n  examines  %s\n  tags      %s\n  checks\n", strings.Join(s.Sources, " "), strings.Join(s.Tags, " "))
		for _, c := range s.Checks(s.Defaults()) {
			fmt.Fprintf(&b, "    %-14s %s\n", c.ID, c.Doc)
		}
		b.WriteString("  parameters\n")
		for _, p := range s.Params {
			fmt.Fprintf(&b, "    %-14s %s (default %s)%s\n", p.Name, p.Doc, p.Default, choicesText(p))
		}
		fmt.Fprintf(&b, "  run       overbook run %s\n\n", s.Name)
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func choicesText(p harness.Param) string {
	if len(p.Values) == 0 {
		return ""
	}
	return ": " + strings.Join(p.Values, " | ")
}

func (a *app) listJSON(chosen []harness.Scenario) error {
	type item struct {
		Name    string          `json:"name"`
		Title   string          `json:"title"`
		Doc     string          `json:"doc"`
		Sources []string        `json:"sources"`
		Tags    []string        `json:"tags"`
		Params  []harness.Param `json:"params"`
		Checks  []string        `json:"checks"`
	}
	items := make([]item, 0, len(chosen))
	for _, s := range chosen {
		i := item{s.Name, s.Title, s.Doc, s.Sources, s.Tags, s.Params, []string{}}
		for _, c := range s.Checks(s.Defaults()) {
			i.Checks = append(i.Checks, c.ID)
		}
		items = append(items, i)
	}
	return a.json(map[string]any{"schema_version": 1, "scenarios": items})
}

// json writes one indented document to standard output.
func (a *app) json(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use: "plan NAME...", Short: "what a run would do, decided by the seed",
		Example: "  overbook plan library/one-seat --seed 7f3a91c2\n  overbook plan library/many-seats --set seats=5 --seed 1",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			chosen, err := scenarios.Select(a.Scenarios, args, f.tag)
			if err != nil {
				return usage(err, "")
			}
			seed, set, err := f.parsed()
			if err != nil {
				return err
			}
			todo, err := f.plans(chosen, seed, set, 1)
			if err != nil {
				return err
			}
			plans := make([]harness.Plan, 0, len(todo))
			for _, t := range todo {
				plans = append(plans, t.plan)
			}
			return a.json(map[string]any{"schema_version": 1, "plans": plans})
		},
	}
	f.add(c)
	return c
}

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "check the suite without running anything",
		Long: `Checks that every scenario can be planned with its defaults, says what it examines, has checks with ids of their own, and, in a
source tree, that every mutant's patch still applies and names a scenario and a check that exist.`,
		Example: "  overbook validate", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			problems := Validate(a.Scenarios)
			mutants, err := a.validateMutants()
			if err := errors.Join(append(problems, err)...); err != nil {
				return usage(err, "")
			}
			fmt.Fprintf(a.out, "%d scenarios and %d mutants are in order\n", len(a.Scenarios), mutants)
			return nil
		},
	}
}

// Validate gives what is wrong with the scenarios as they are written.
func Validate(all []harness.Scenario) []error {
	var problems []error
	wrong := func(s harness.Scenario, format string, args ...any) {
		problems = append(problems, fmt.Errorf("scenario %s: %w", s.Name, fmt.Errorf(format, args...)))
	}
	names := map[string]bool{}
	for _, s := range all {
		if names[s.Name] {
			wrong(s, "the name is used twice")
		}
		names[s.Name] = true
		if s.Title == "" || s.Doc == "" || len(s.Sources) == 0 || len(s.Tags) == 0 || s.Latency == "" || s.Drive == nil {
			wrong(s, "title, doc, sources, tags, latency and drive must all be given")
		}
		plan, err := s.MakePlan(1, nil)
		if err != nil {
			wrong(s, "%w", err)
			continue
		}
		if t := s.Topology(plan.Params); t.Replicas < 1 || t.Design == "" {
			wrong(s, "its topology needs a design and at least one replica")
		}
		for _, p := range s.Params {
			if err := p.Check(p.Default); err != nil {
				wrong(s, "default of %w", err)
			}
		}
		problems = append(problems, validateChecks(s, plan.Params)...)
	}
	return problems
}

func validateChecks(s harness.Scenario, p harness.Params) []error {
	var problems []error
	ids := map[string]bool{}
	for _, c := range s.Checks(p) {
		if c.ID == "" || ids[c.ID] || c.Doc == "" || c.Judge == nil {
			problems = append(problems, fmt.Errorf("scenario %s: check %q needs an id of its own, a sentence and a judge", s.Name, c.ID))
		}
		ids[c.ID] = true
	}
	if len(ids) == 0 {
		problems = append(problems, fmt.Errorf("scenario %s: has no check", s.Name))
	}
	return problems
}

// validateMutants checks the patches; outside a source tree there are none.
func (a *app) validateMutants() (int, error) {
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	root, err := mutant.Root(wd)
	if err != nil {
		return 0, nil //nolint:nilerr // not in a source tree: there are none to check
	}
	all, err := mutant.All(root)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, m := range all {
		_, err := m.Apply(root)
		problems = append(problems, err)
		for _, k := range m.Killers {
			problems = append(problems, a.killerExists(m, k))
		}
	}
	return len(all), errors.Join(problems...)
}

func (a *app) killerExists(m mutant.Mutant, k mutant.Killer) error {
	for _, s := range a.Scenarios {
		if s.Name != k.Scenario {
			continue
		}
		for _, c := range s.Checks(s.Defaults()) {
			if c.ID == k.Check {
				return nil
			}
		}
		return fmt.Errorf("%s: scenario %s has no check %q", m.File, k.Scenario, k.Check)
	}
	return fmt.Errorf("%s: there is no scenario %q; the nearest is %q", m.File, k.Scenario, scenarios.Nearest(a.Scenarios, k.Scenario))
}
