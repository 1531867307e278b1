package sut

import (
	"fmt"
	"strings"
)

// command is what the arguments ask for.
type command struct {
	migrate, help bool
}

// parseArgs reads the arguments after "sut".
func parseArgs(args []string) (command, error) {
	var cmd command
	design := ""
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
			design = value
		default:
			return cmd, fmt.Errorf("don't know %q", args[i])
		}
	}
	if cmd.help {
		return cmd, nil
	}
	if design != "library" {
		return cmd, fmt.Errorf("--design %q: want one of: library", design)
	}
	return cmd, nil
}

// usage is the text of --help.
func usage() string {
	var b strings.Builder
	b.WriteString(`The reference server: a real server with real flaws available on request.

Usage:
  overbook sut --design library            serve until SIGTERM
  overbook sut migrate --design library    bring the database's schema up to date

When it accepts connections it prints one line: listening on http://HOST:PORT
Logs go to standard error. Exit codes: 0 stopped on request, 1 failed while
serving, 4 bad configuration.

Environment (name, default, meaning):
`)
	for _, v := range variables() {
		fmt.Fprintf(&b, "  %-26s %-12s %s\n", v.name, v.initial, v.want)
	}
	b.WriteString("\nThe whole contract is in docs/reference-server.md.\n")
	return b.String()
}
