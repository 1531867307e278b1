package sut

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/sut/library"
)

// processConfig is what the process is told, beside the design's own settings.
type processConfig struct {
	listen      string
	clockOffset time.Duration
	grace       time.Duration
	library     library.Config // Clock and Log are filled in later
}

// A variable is one setting: where it goes and what it must be like.
type variable struct {
	name, initial, want, example string
	set                          func(*processConfig, string) bool
}

// variables are all settings, in the order in which they are documented.
func variables() []variable {
	lib := func(c *processConfig) *library.Config { return &c.library }
	v := []variable{
		text("DATABASE_URL", "", "a Postgres URL (required)", "postgres://overbook@127.0.0.1:5432/overbook", postgresURL, func(c *processConfig) *string { return &lib(c).DatabaseURL }),
		text("REDIS_URL", "", "a Redis URL, or nothing for no seat lock", "redis://127.0.0.1:6379/0", optional(schemes("redis", "rediss")), func(c *processConfig) *string { return &lib(c).RedisURL }),
		text("REDIS_PREFIX", "overbook:", "the beginning of every Redis key", "overbook:", anything, func(c *processConfig) *string { return &lib(c).RedisPrefix }),
		text("PYXIS_URL", "", "the HTTP address of pyxis (required)", "http://127.0.0.1:8090", schemes("http", "https"), func(c *processConfig) *string { return &lib(c).PyxisURL }),
		text("LISTEN", "127.0.0.1:0", "host:port", "127.0.0.1:8080", hostPort, func(c *processConfig) *string { return &c.listen }),
		text("REPLICA", "sut-1", "a short name without spaces", "sut-2", shortName, func(c *processConfig) *string { return &lib(c).Replica }),
		count("POOL_SIZE", 30, 4, 500, func(c *processConfig) *int { return &lib(c).PoolSize }),
		flag("TEST_MODE", func(c *processConfig) *bool { return &lib(c).TestMode }),
		span("CLOCK_OFFSET", "0s", func(time.Duration) bool { return true }, "a duration, also a negative one", func(c *processConfig) *time.Duration { return &c.clockOffset }),
		positive("SHUTDOWN_GRACE", "10s", func(c *processConfig) *time.Duration { return &c.grace }),
		text("LIBRARY_PATH", "intent", "direct or intent", "intent", oneOf("direct", "intent"), func(c *processConfig) *string { return &lib(c).Path }),
		choice("LIBRARY_WAKE", "commit", "tick", func(c *processConfig) *bool { return &lib(c).WakeByTick }),
	}
	return append(v, libraryVariables(lib)...)
}

func libraryVariables(lib func(*processConfig) *library.Config) []variable {
	return []variable{
		positive("LIBRARY_TICK", "250ms", func(c *processConfig) *time.Duration { return &lib(c).Tick }),
		positive("LIBRARY_ACTION_TTL", "2m", func(c *processConfig) *time.Duration { return &lib(c).ActionTTL }),
		positive("LIBRARY_CONFIRM_WAIT", "10s", func(c *processConfig) *time.Duration { return &lib(c).ConfirmWait }),
		positive("LIBRARY_UPSTREAM_TIMEOUT", "5s", func(c *processConfig) *time.Duration { return &lib(c).UpstreamTimeout }),
		positive("LIBRARY_LEASE", "15s", func(c *processConfig) *time.Duration { return &lib(c).Lease }),
		positive("LIBRARY_REAPER_INTERVAL", "500ms", func(c *processConfig) *time.Duration { return &lib(c).ReaperInterval }),
		positive("LIBRARY_WAIT_BACKOFF", "1s", func(c *processConfig) *time.Duration { return &lib(c).WaitBackoff }),
		positive("LIBRARY_SEAT_LOCK_TTL", "10s", func(c *processConfig) *time.Duration { return &lib(c).SeatLockTTL }),
		count("LIBRARY_WORKERS", 8, 1, 1000, func(c *processConfig) *int { return &lib(c).Workers }),
		positive("LIBRARY_CACHE_TTL", "500ms", func(c *processConfig) *time.Duration { return &lib(c).CacheTTL }),
		count("LIBRARY_BREAKER_FAILURES", 5, 1, 1_000_000, func(c *processConfig) *int { return &lib(c).BreakerFailures }),
		positive("LIBRARY_BREAKER_OPEN", "5s", func(c *processConfig) *time.Duration { return &lib(c).BreakerOpen }),
		count("LIBRARY_BREAKER_PROBES", 1, 1, 1000, func(c *processConfig) *int { return &lib(c).BreakerProbes }),
	}
}

// readConfig reads the environment ("NAME=value" lines; the last of a name
// counts). It gives every fault, each with the name, the value, what is wanted
// and an example.
func readConfig(env []string) (processConfig, []string) {
	given := map[string]string{}
	for _, line := range env {
		if name, value, ok := strings.Cut(line, "="); ok {
			given[name] = value
		}
	}
	var c processConfig
	var faults []string
	for _, v := range variables() {
		value, ok := given[v.name]
		if !ok || value == "" {
			value = v.initial
		}
		if !v.set(&c, value) {
			faults = append(faults, fmt.Sprintf("%s=%q: want %s, e.g. %s=%s", v.name, value, v.want, v.name, v.example))
		}
	}
	if len(faults) == 0 && c.library.Lease <= c.library.UpstreamTimeout && !c.library.TestMode {
		faults = append(faults, fmt.Sprintf("LIBRARY_LEASE=%q: want more than LIBRARY_UPSTREAM_TIMEOUT (%v), so that a lease is never decided while its call is under way, e.g. LIBRARY_LEASE=%v (TEST_MODE=true allows less)",
			c.library.Lease, c.library.UpstreamTimeout, 3*c.library.UpstreamTimeout))
	}
	return c, faults
}

func text(name, initial, want, example string, ok func(string) bool, at func(*processConfig) *string) variable {
	return variable{name, initial, want, example, func(c *processConfig, value string) bool {
		*at(c) = value
		return ok(value)
	}}
}

func count(name string, initial, least, most int, at func(*processConfig) *int) variable {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	return variable{name, strconv.Itoa(initial), want, strconv.Itoa(initial), func(c *processConfig, value string) bool {
		n, err := strconv.Atoi(value)
		*at(c) = n
		return err == nil && n >= least && n <= most
	}}
}

func flag(name string, at func(*processConfig) *bool) variable {
	return variable{name, "false", "true or false", "true", func(c *processConfig, value string) bool {
		b, err := strconv.ParseBool(value)
		*at(c) = b
		return err == nil
	}}
}

// choice is a setting of two words, of which the second sets the flag.
func choice(name, no, yes string, at func(*processConfig) *bool) variable {
	return variable{name, no, no + " or " + yes, no, func(c *processConfig, value string) bool {
		*at(c) = value == yes
		return value == no || value == yes
	}}
}

func positive(name, initial string, at func(*processConfig) *time.Duration) variable {
	return span(name, initial, func(d time.Duration) bool { return d > 0 }, "a duration above zero", at)
}

func span(name, initial string, ok func(time.Duration) bool, want string, at func(*processConfig) *time.Duration) variable {
	return variable{name, initial, want, initial, func(c *processConfig, value string) bool {
		d, err := time.ParseDuration(value)
		*at(c) = d
		return err == nil && ok(d)
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
