package sut

import (
	"fmt"
	"strings"
)

// command is what the arguments ask for.
type command struct {
	design        string
	migrate, help bool
}

// parseArgs reads the arguments after "sut".
func parseArgs(args []string) (command, error) {
	var cmd command
	for i := 0; i < len(args); i++ {
		arg, value, given := strings.Cut(args[i], "=")
		switch {
		case arg == "-h" || arg == "--help" || arg == "help":
			cmd.help = true
		case arg == "migrate" && !given && !cmd.migrate:
			cmd.migrate = true
		case arg == "--design":
			if !given {
				if i++; i >= len(args) {
					return cmd, fmt.Errorf("--design wants a name: --design library")
				}
				value = args[i]
			}
			cmd.design = value
		default:
			return cmd, fmt.Errorf("don't know %q", args[i])
		}
	}
	if _, known := designNamed(cmd.design); !known && (!cmd.help || cmd.design != "") {
		return cmd, fmt.Errorf("--design %q: want one of: %s", cmd.design, designNames())
	}
	return cmd, nil
}

// usage is the text of --help, about one design or, with "", all of them.
func usage(only string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `The reference server: a real server with real flaws available on request.

Usage:
  overbook sut --design DESIGN            serve until SIGTERM
  overbook sut migrate --design DESIGN    bring the database's schema up to date

DESIGN is one of: %s. With --design, --help tells of that one alone.

When it accepts connections it prints one line: listening on http://HOST:PORT
Logs go to standard error. Exit codes: 0 stopped on request, 1 failed while
serving, 4 bad configuration.

Environment (name, default, meaning):
`, designNames())
	list(&b, new(commonConfig).variables())
	for _, d := range designs() {
		if only == "" || only == d.name {
			fmt.Fprintf(&b, "\nOf the design %s:\n", d.name)
			list(&b, d.variables)
		}
	}
	b.WriteString("\nThe whole contract is in docs/reference-server.md.\n")
	return b.String()
}

func list(b *strings.Builder, variables []variable) {
	for _, v := range variables {
		fmt.Fprintf(b, "  %-29s %-16s %s\n", v.name, v.initial, v.want)
	}
}
