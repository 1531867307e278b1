package sut

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overbook/overbook/sut/clock"
)

// commonConfig is what the process is told whatever its design.
type commonConfig struct {
	databaseURL string
	listen      string
	replica     string
	poolSize    int
	testMode    bool
	clockOffset time.Duration
	grace       time.Duration

	clock *clock.Clock // not settings: filled in before a design starts
	log   *slog.Logger
}

// A variable is one setting: what it must be like, and how it is set. set
// reports whether the value will do.
type variable struct {
	name, initial, want, example string
	set                          func(string) bool
	secret                       bool // its value is never shown
}

// variables are the settings that every design has, in the order in which they
// are documented.
func (c *commonConfig) variables() []variable {
	return []variable{
		c.database(),
		text("LISTEN", "127.0.0.1:0", "host:port", "127.0.0.1:8080", hostPort, &c.listen),
		text("REPLICA", "sut-1", "a short name without spaces", "sut-2", shortName, &c.replica),
		count("POOL_SIZE", 30, 4, 500, &c.poolSize),
		flag("TEST_MODE", &c.testMode),
		span("CLOCK_OFFSET", "0s", func(time.Duration) bool { return true }, "a duration, also a negative one", &c.clockOffset),
		positive("SHUTDOWN_GRACE", "10s", &c.grace),
	}
}

// database is the one setting that a migration needs, too.
func (c *commonConfig) database() variable {
	return text("DATABASE_URL", "", "a Postgres URL (required)", "postgres://overbook@127.0.0.1:5432/overbook", postgresURL, &c.databaseURL)
}

// environment reads "NAME=value" lines; the last of a name counts.
func environment(env []string) map[string]string {
	given := map[string]string{}
	for _, line := range env {
		if name, value, ok := strings.Cut(line, "="); ok {
			given[name] = value
		}
	}
	return given
}

// read sets the variables from the environment. It gives every fault, each
// with the name, the value, what is wanted and an example.
func read(given map[string]string, variables []variable) []string {
	var faults []string
	for _, v := range variables {
		value := given[v.name]
		if value == "" {
			value = v.initial
		}
		if v.set(value) {
			continue
		}
		shown := fmt.Sprintf("%s=%q", v.name, value)
		if v.secret && value != "" {
			shown = fmt.Sprintf("%s (%d characters, not shown)", v.name, utf8.RuneCountInString(value))
		}
		faults = append(faults, fmt.Sprintf("%s: want %s, e.g. %s=%s", shown, v.want, v.name, v.example))
	}
	return faults
}

func text(name, initial, want, example string, ok func(string) bool, at *string) variable {
	return variable{name: name, initial: initial, want: want, example: example, set: func(value string) bool {
		*at = value
		return ok(value)
	}}
}

// secret is a text of at least so many characters that is shown to nobody.
func secret(name string, least int, at *string) variable {
	ok := func(value string) bool { return utf8.RuneCountInString(value) >= least }
	v := text(name, "", fmt.Sprintf("a secret of at least %d characters (required)", least), strings.Repeat("x", least), ok, at)
	v.secret = true
	return v
}

func count(name string, initial, least, most int, at *int) variable {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return variable{name: name, initial: strconv.Itoa(initial), want: want, example: strconv.Itoa(initial), set: func(value string) bool {
		n, err := strconv.Atoi(value)
		*at = n
		return err == nil && n >= least && n <= most
	}}
}

func flag(name string, at *bool) variable {
	return variable{name: name, initial: "false", want: "true or false", example: "true", set: func(value string) bool {
		b, err := strconv.ParseBool(value)
		*at = b
		return err == nil
	}}
}

// choice is a setting of two words, of which the second sets the flag.
func choice(name, no, yes string, at *bool) variable {
	return variable{name: name, initial: no, want: no + " or " + yes, example: no, set: func(value string) bool {
		*at = value == yes
		return value == no || value == yes
	}}
}

func positive(name, initial string, at *time.Duration) variable {
	return span(name, initial, func(d time.Duration) bool { return d > 0 }, "a duration above zero", at)
}

func span(name, initial string, ok func(time.Duration) bool, want string, at *time.Duration) variable {
	return variable{name: name, initial: initial, want: want, example: initial, set: func(value string) bool {
		d, err := time.ParseDuration(value)
		*at = d
		return err == nil && ok(d)
	}}
}

func zone(name, initial string, at **time.Location) variable {
	return variable{name: name, initial: initial, want: "a time zone of the IANA database", example: initial, set: func(value string) bool {
		var err error
		*at, err = time.LoadLocation(value)
		return err == nil && value != "Local" // which is another one on another machine
	}}
}

func anything(string) bool { return true }

func optional(ok func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || ok(s) }
}

func oneOf(words ...string) func(string) bool {
	return func(s string) bool { return slices.Contains(words, s) }
}

func schemes(allowed ...string) func(string) bool {
	return func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && u.Host != "" && oneOf(allowed...)(u.Scheme)
	}
}

// postgresURL also takes libpq's "host=... dbname=..." form.
func postgresURL(s string) bool {
	u, err := url.Parse(s)
	return (err == nil && oneOf("postgres", "postgresql")(u.Scheme)) || strings.Contains(s, "host=")
}

func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n <= 65535
}

func shortName(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsAny(s, " \t\n/")
}
