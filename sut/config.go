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
		if !v.set(value) {
			faults = append(faults, fmt.Sprintf("%s=%q: want %s, e.g. %s=%s", v.name, value, v.want, v.name, v.example))
		}
	}
	return faults
}

func text(name, initial, want, example string, ok func(string) bool, at *string) variable {
	return variable{name, initial, want, example, func(value string) bool {
		*at = value
		return ok(value)
	}}
}

func count(name string, initial, least, most int, at *int) variable {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return variable{name, strconv.Itoa(initial), want, strconv.Itoa(initial), func(value string) bool {
		n, err := strconv.Atoi(value)
		*at = n
		return err == nil && n >= least && n <= most
	}}
}

func flag(name string, at *bool) variable {
	return variable{name, "false", "true or false", "true", func(value string) bool {
		b, err := strconv.ParseBool(value)
		*at = b
		return err == nil
	}}
}

// choice is a setting of two words, of which the second sets the flag.
func choice(name, no, yes string, at *bool) variable {
	return variable{name, no, no + " or " + yes, no, func(value string) bool {
		*at = value == yes
		return value == no || value == yes
	}}
}

func positive(name, initial string, at *time.Duration) variable {
	return span(name, initial, func(d time.Duration) bool { return d > 0 }, "a duration above zero", at)
}

func span(name, initial string, ok func(time.Duration) bool, want string, at *time.Duration) variable {
	return variable{name, initial, want, initial, func(value string) bool {
		d, err := time.ParseDuration(value)
		*at = d
		return err == nil && ok(d)
	}}
}

func zone(name, initial string, at **time.Location) variable {
	return variable{name, initial, "a time zone of the IANA database", initial, func(value string) bool {
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
