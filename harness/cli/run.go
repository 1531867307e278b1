package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/mutant"
	"github.com/overbook/overbook/harness/run"
	"github.com/overbook/overbook/reports"
	"github.com/overbook/overbook/scenarios"
)

// runFlags are the flags of everything that runs scenarios.
type runFlags struct {
	plan                 planFlags
	parts                partFlags
	repeat               int
	out                  string
	json                 bool
	junit, html, md, gh  string
	strict, allowUnknown bool
	verbose              bool
	streamed             bool // each run's line was printed when it was done
	quiet                bool // no line per run: the command has a summary of its own
	mutant               string
}

const defaultOut = "runs"

func (f *runFlags) add(c *cobra.Command) {
	f.plan.add(c)
	f.parts.add(c)
	fs := c.Flags()
	fs.IntVar(&f.repeat, "repeat", 1, "run everything N times, each with a seed of its own made from --seed")
	fs.StringVar(&f.mutant, "mutant", "", "plant this bug in the reference server first (needs Go and the source tree)")
	fs.StringVar(&f.out, "out", defaultOut, "root of the run directories")
	fs.BoolVar(&f.json, "json", false, "standard output is one JSON document")
	fs.StringVar(&f.junit, "junit", "", "write JUnit XML to this file")
	fs.StringVar(&f.html, "html", "", "write one self-contained HTML report of all runs to this file")
	fs.StringVar(&f.md, "markdown", "", "write a Markdown summary to this file")
	fs.StringVar(&f.gh, "github", "", "write GitHub annotations to this file (/dev/stderr to show them)")
	fs.BoolVar(&f.strict, "strict", false, "UNKNOWN exits with 1")
	fs.BoolVar(&f.allowUnknown, "allow-unknown", false, "UNKNOWN exits with 0")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print every check, also of scenarios that passed")
	c.MarkFlagsMutuallyExclusive("strict", "allow-unknown")
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [NAME or glob...]",
		Short: "run scenarios and judge them (default: the race suite)",
		Long: `Brings up Postgres, WireMock and Redis (local binaries, else Docker, else what the URLs say), runs the scenarios, and judges
their invariants on stored rows, upstream counts and answers. Every run is kept in a directory of its own.`,
		Example: `  overbook run
  overbook run library/one-seat --seed 7f3a91c2 --users 50
  overbook run 'library/*' --repeat 20 --junit race.xml
  overbook run library/one-seat --set path=direct --set window=150ms     (overbooks the seat)
  overbook run library/one-seat --mutant L-M1`,
		ValidArgsFunction: a.completeNames,
		RunE:              func(c *cobra.Command, args []string) error { return a.run(c.Context(), f, args) },
	}
	f.add(c)
	return c
}

func (a *app) completeNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := make([]string, 0, len(a.Scenarios))
	for _, s := range a.Scenarios {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// run is `overbook run`.
func (a *app) run(ctx context.Context, f runFlags, patterns []string) error {
	tag := f.plan.tag
	if tag == "" {
		tag = scenarios.DefaultTag
	}
	chosen, err := scenarios.Select(a.Scenarios, patterns, tag)
	if err != nil {
		return usage(err, "")
	}
	seed, set, err := f.plan.parsed()
	if err != nil {
		return err
	}
	if f.repeat < 1 {
		return usage(fmt.Errorf("--repeat %d: want 1 or more", f.repeat), "")
	}
	todo, err := f.plan.plans(chosen, seed, set, f.repeat)
	if err != nil {
		return err
	}
	files, err := f.open()
	if err != nil {
		return err
	}
	defer files.close()
	fmt.Fprintf(a.err, "seed %s, %s of %s\n", seed, plural(len(todo), "run"), plural(len(chosen), "scenario"))
	f.streamed = true
	out, err := a.conduct(ctx, f, seed, todo)
	if err != nil {
		return err
	}
	return a.conclude(f, out, a.publish(f, files, out.suite, out.records))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// server is the program under test: this one, or one with a bug planted in it.
func (a *app) server(ctx context.Context, id string) (run.Server, error) {
	self, err := os.Executable()
	if err != nil {
		return run.Server{}, environment(fmt.Errorf("find our own program: %w", err), "")
	}
	if id == "" {
		return run.Server{Command: []string{self, "sut"}}, nil
	}
	wd, err := os.Getwd()
	if err != nil {
		return run.Server{}, environment(err, "")
	}
	root, err := mutant.Root(wd)
	if err != nil {
		return run.Server{}, usage(err, "")
	}
	m, err := mutant.Find(root, id)
	if err != nil {
		return run.Server{}, usage(err, "")
	}
	fmt.Fprintf(a.err, "planting %s: %s\n", m.ID, m.Title)
	program, err := m.Build(ctx, root, filepath.Join(root, "bin", "_mutants"))
	switch {
	case a.interrupted.Err() != nil:
		return run.Server{}, environment(errors.New("interrupted before anything was run"), "")
	case err != nil:
		return run.Server{}, environment(err, "")
	}
	return run.Server{Command: []string{program, "sut"}, Mutant: m.ID}, nil
}

// conductor brings up what the plans need.
func (a *app) conductor(f runFlags, p *progress, todo []planned) (*run.Conductor, error) {
	parts, err := f.parts.options()
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(f.out)
	if err == nil {
		err = os.MkdirAll(out, 0o755)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("--out: %w", err), "choose a place that can be written")
	}
	// The first Ctrl-C calls the start off: there is nothing to judge yet.
	c, err := run.New(a.interrupted, run.Config{
		Parts: parts, Out: out, Tool: "overbook", Version: version(), Mark: a.mark, Interrupted: a.interrupted, Progress: p.update,
	}, topologies(todo))
	if err != nil && a.interrupted.Err() != nil {
		return nil, environment(errors.New("interrupted before anything was run"), "")
	}
	if err != nil {
		return nil, environment(err, "overbook doctor says what is missing here and how to get it")
	}
	return c, nil
}

func topologies(todo []planned) []harness.Topology {
	list := make([]harness.Topology, 0, len(todo))
	for _, t := range todo {
		list = append(list, t.scenario.Topology(t.plan.Params))
	}
	return list
}

// A campaign is what came of running plans one after the other.
type campaign struct {
	suite   harness.Suite
	records map[string]harness.Record // by run directory
	kept    int                       // operations in them
	broken  error                     // what kept plans from being run, or parts from being taken down
}

// conduct runs the plans one after the other. What could not be run because
// of an interruption, a dead part or a full disk is named as skipped. The
// error says why nothing could be run at all.
func (a *app) conduct(ctx context.Context, f runFlags, seed harness.Seed, todo []planned) (out campaign, err error) {
	server, err := a.server(a.interrupted, f.mutant) //nolint:contextcheck // building gives up on the first Ctrl-C
	if err != nil {
		return out, err
	}
	p := a.progress()
	defer p.done()
	watch := clock.New()
	out = campaign{records: map[string]harness.Record{}, suite: harness.Suite{
		SchemaVersion: 1, Tool: "overbook", Version: version(), Seed: seed, Started: clock.Wall(), Host: host(), Scenarios: []harness.Result{},
	}}
	c, err := a.conductor(f, p, todo)
	if err != nil {
		return out, err
	}
	defer func() { out.broken = errors.Join(out.broken, c.Close()) }()
	c.Describe(&out.suite.Host)
	for _, t := range todo {
		if a.interrupted.Err() != nil || c.Dead() != "" || out.broken != nil {
			out.suite.Skipped = append(out.suite.Skipped, t.scenario.Name)
			continue
		}
		out.broken = a.one(ctx, f, p, c, t, server, &out)
	}
	if len(out.suite.Skipped) > 0 {
		p.line("not run: %s", strings.Join(slices.Compact(slices.Clone(out.suite.Skipped)), ", "))
	}
	if dead, n := c.Dead(), len(out.suite.Skipped); dead != "" && n > 0 {
		out.broken = errors.Join(out.broken, fmt.Errorf("%s died, so that %s could not be done", dead, plural(n, "run")))
	}
	out.suite.Verdict = worst(out.suite)
	out.suite.DurationMS = float64(watch.Now()) / float64(time.Millisecond)
	return out, nil
}

// one runs one plan, stores it with its reports, and shows its line. The
// error says that a run could not be stored.
func (a *app) one(ctx context.Context, f runFlags, p *progress, c *run.Conductor, t planned, server run.Server, out *campaign) error {
	result, record, err := c.Run(ctx, t.scenario, t.plan, server)
	if err != nil {
		out.suite.Skipped = append(out.suite.Skipped, t.scenario.Name)
		return fmt.Errorf("store the run of %s: %w", t.scenario.Name, err)
	}
	var unwritten error
	if result.Report, unwritten = writeReports(result, record, out.suite.Host); unwritten != nil {
		result.Report, unwritten = "", fmt.Errorf("write the reports of %s: %w", t.scenario.Name, unwritten)
	}
	out.suite.Scenarios = append(out.suite.Scenarios, result)
	out.keep(result, record)
	p.done()
	switch {
	case f.json:
		p.line("%s", reports.Line(result, reports.TextOptions{Color: a.terminal, Width: a.width}))
	case !f.quiet:
		fmt.Fprintln(a.out, reports.Line(result, reports.TextOptions{Color: a.color, Width: a.width}))
	}
	return unwritten
}

// conclude ends a command that ran something: with the code of what was seen,
// and with what went wrong beside it. A violation wins over everything.
func (a *app) conclude(f runFlags, out campaign, unpublished error) error {
	code := codeOf(out.suite, a.interrupted.Err() != nil, f.strict, f.allowUnknown)
	broken := errors.Join(out.broken, unpublished)
	if broken == nil {
		return ended(code)
	}
	if code == ExitPass || code == ExitUnknown {
		code = ExitEnvironment
	}
	hint := ""
	if errors.Is(broken, syscall.ENOSPC) {
		hint = "make room, or choose another place with --out"
	}
	return &codedError{code, hint, broken}
}

func worst(s harness.Suite) harness.Status {
	statuses := make([]harness.Status, 0, len(s.Scenarios)+1)
	for _, r := range s.Scenarios {
		statuses = append(statuses, r.Verdict)
	}
	if len(s.Skipped) > 0 {
		statuses = append(statuses, harness.Unknown)
	}
	return harness.Worst(statuses...)
}

// writeReports puts the reports of one run into its directory.
func writeReports(r harness.Result, rec harness.Record, h harness.Host) (string, error) {
	one := harness.Suite{
		SchemaVersion: 1, Tool: "overbook", Version: version(), Seed: r.Seed, Started: r.Started, DurationMS: r.DurationMS,
		Host: h, Verdict: r.Verdict, Scenarios: []harness.Result{r},
	}
	html := filepath.Join(r.RunDir, "report.html")
	page := reports.Page{Suite: one, Records: map[string]harness.Record{r.RunDir: rec}}
	return html, errors.Join(
		writeTo(html, func(w io.Writer) error { return reports.HTML(w, page) }),
		writeTo(filepath.Join(r.RunDir, "junit.xml"), func(w io.Writer) error { return reports.JUnit(w, one) }),
		writeTo(filepath.Join(r.RunDir, "summary.md"), func(w io.Writer) error { return reports.MarkdownPage(w, page) }),
	)
}

func writeTo(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// outFiles are the files that the flags name; nil where none is wanted.
type outFiles struct{ junit, html, md, gh *os.File }

func (f *runFlags) open() (o outFiles, err error) {
	for _, x := range []struct {
		flag, name string
		to         **os.File
	}{{"junit", f.junit, &o.junit}, {"html", f.html, &o.html}, {"markdown", f.md, &o.md}, {"github", f.gh, &o.gh}} {
		if *x.to, err = outFile(x.flag, x.name); err != nil {
			o.close()
			return o, err
		}
	}
	if err := o.distinct(); err != nil {
		o.close()
		return o, err
	}
	return o, nil
}

// distinct refuses to write two reports into one file.
func (o *outFiles) distinct() error {
	var seen []os.FileInfo
	for _, f := range []*os.File{o.junit, o.html, o.md, o.gh} {
		if f == nil {
			continue
		}
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		for _, other := range seen {
			if os.SameFile(info, other) {
				return usage(fmt.Errorf("two reports would be written into one file, %s", f.Name()), "give each its own")
			}
		}
		seen = append(seen, info)
	}
	return nil
}

func (o *outFiles) close() {
	for _, f := range []*os.File{o.junit, o.html, o.md, o.gh} {
		if f != nil {
			_ = f.Close() // its writer reported any error
		}
	}
}

// publish writes the suite to standard output and to the files.
func (a *app) publish(f runFlags, o outFiles, s harness.Suite, records map[string]harness.Record) error {
	var errs []error
	to := func(file *os.File, write func(io.Writer) error) {
		if file != nil {
			errs = append(errs, write(file))
		}
	}
	to(o.junit, func(w io.Writer) error { return reports.JUnit(w, s) })
	page := reports.Page{Suite: s, Records: records}
	to(o.md, func(w io.Writer) error { return reports.MarkdownPage(w, page) })
	to(o.gh, func(w io.Writer) error { return reports.GitHubPage(w, page) })
	to(o.html, func(w io.Writer) error { return reports.HTML(w, page) })
	if f.json {
		return errors.Join(append(errs, reports.JSON(a.out, s))...)
	}
	return errors.Join(append(errs, reports.Text(a.out, s, reports.TextOptions{Color: a.color, Verbose: f.verbose, Records: records, Streamed: f.streamed}))...)
}
