package cli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/overbook/overbook/harness"
)

// An App is what main puts together.
type App struct {
	Scenarios []harness.Scenario

	// Sut is the reference server's own command line: `overbook sut ...`.
	Sut func(ctx context.Context, args, env []string, stdout, stderr io.Writer) int
	_   struct{}
}

// app is the program while it runs.
type app struct {
	App
	out, err    io.Writer
	color       bool // on out
	width       int  // of a line about a run; the whole text is in the block below
	terminal    bool // err is a terminal: a status line is possible
	interrupted context.Context
	mark        string
}

// Main runs the command line and gives the exit code. A panic is a bug in the
// harness and says so.
func Main(a App, args []string, stdout, stderr *os.File) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "error: bug in overbook: %v\n%s\nhint: nothing was judged; please report this with the command you ran\n", p, debug.Stack())
			code = ExitBug
		}
	}()
	if len(args) > 0 && args[0] == "sut" { // its own process: its own signals and flags
		return a.Sut(context.Background(), args[1:], os.Environ(), stdout, stderr)
	}
	hard, soft, stop := signals(stderr)
	defer stop()
	run := &app{
		App: a, out: stdout, err: stderr, interrupted: soft, mark: fmt.Sprintf("%08x", randomSeed()),
		color:    term.IsTerminal(int(stdout.Fd())) && os.Getenv("NO_COLOR") == "",
		terminal: term.IsTerminal(int(stderr.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
	run.width = fileWidth
	if columns, _, err := term.GetSize(int(stdout.Fd())); err == nil && columns > 0 {
		run.width = columns
	}
	root := run.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(hard)
	return report(stderr, err, soft.Err() != nil)
}

// fileWidth is how wide a line about a run gets where there is no terminal.
const fileWidth = 200

// signals gives a context that the second signal ends and one that the first ends.
func signals(stderr io.Writer) (hard, soft context.Context, stop func()) {
	hard, endHard := context.WithCancelCause(context.Background())
	soft, endSoft := context.WithCancel(hard)
	caught := make(chan os.Signal, 2) // a third signal finds us dying already
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-caught:
		case <-hard.Done():
			return
		}
		fmt.Fprintln(stderr, "interrupted: ending in order, judging what there is; once more to end at once")
		endSoft()
		select {
		case <-caught:
			endHard(fmt.Errorf("interrupted twice"))
		case <-hard.Done():
		}
	}()
	return hard, soft, func() {
		signal.Stop(caught)
		endHard(nil)
		endSoft()
		<-done
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "overbook",
		Short: "Try to overbook a reservation server before its users do",
		Long: `Overbook fires barrier-synchronised bursts at a reservation server, counts what its upstream systems saw, and judges
invariants on the rows that it stored. What was not observed is UNKNOWN, never PASS.`,
		Example: `  overbook demo                          one red and one green run, in a minute
  overbook run                           the race suite
  overbook run library/one-seat --seed 7f3a91c2
  overbook amplify                       the write-amplification table
  overbook doctor                        what is missing here, and how to get it`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.AddCommand(a.demoCommand(), a.runCommand(), a.listCommand(), a.planCommand(), a.validateCommand(), a.amplifyCommand(),
		a.checkCommand(), a.reportCommand(), a.replayCommand(), a.upCommand(), a.stubCommand(), a.sutCommand(), a.doctorCommand(), a.versionCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	finish(root)
	return root
}

// finish gives the command and all below it what every one of them has: the
// exit codes in its help, examples, and errors that say which command it is.
func finish(c *cobra.Command) {
	if c.Long == "" {
		c.Long = c.Short
	}
	c.Long += "\n" + exitHelp
	if c.Example == "" {
		c.Example = "  " + c.CommandPath() + map[string]string{"help": " run", "completion": " bash"}[c.Name()]
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%s: %w", c.CommandPath(), err), c.CommandPath()+" --help shows its flags")
	})
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage(fmt.Errorf("%s: %w", c.CommandPath(), err), "it is used as: "+c.UseLine())
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		finish(below)
	}
}

// without takes away flags that make no sense for the command. Naming one is
// an error: a flag must not be ignored silently.
func without(c *cobra.Command, why string, names ...string) {
	for _, name := range names {
		_ = c.Flags().MarkHidden(name) // fails for an unknown name only, and then nothing is lost
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		for _, name := range names {
			if c.Flags().Changed(name) {
				return usage(fmt.Errorf("%s does not take --%s: %s", c.CommandPath(), name, why), "overbook run takes every flag")
			}
		}
		return nil
	}
}

// sutCommand only describes; Main hands `overbook sut` over before cobra sees it.
func (a *app) sutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "sut [migrate]", Short: "the reference server alone", DisableFlagParsing: true,
		Example: "  overbook sut --help\n  DATABASE_URL=... PYXIS_URL=... overbook sut --design library",
		RunE: func(c *cobra.Command, args []string) error {
			return ended(a.Sut(c.Context(), args, os.Environ(), a.out, a.err))
		},
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "version, Go and platform", Args: cobra.NoArgs,
		Example: "  overbook version",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "overbook %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return info.Main.Version
}

// randomSeed is the one place where chance comes in; it is printed at once.
func randomSeed() harness.Seed {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return harness.Seed(binary.BigEndian.Uint32(b[:]))
}

func host() harness.Host {
	return harness.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
}
