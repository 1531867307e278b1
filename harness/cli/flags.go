package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/provision"
)

// partFlags say where Postgres, WireMock and Redis come from.
type partFlags struct{ provision.Options }

func (f *partFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.PostgresURL, "postgres", "", "use this Postgres (a URL of a role that may create databases) instead of starting one")
	fs.StringVar(&f.WireMockURL, "wiremock", "", "use this WireMock (base URL) instead of starting one")
	fs.StringVar(&f.RedisURL, "redis", "", "use this Redis (URL) instead of starting one")
	fs.StringVar(&f.Prefer, "parts", "", "where the parts come from: local or docker (default: local, then docker)")
	fs.BoolVar(&f.Durable, "durable", false, "let Postgres wait for the disk at COMMIT; slower, and races have wider windows")
	fs.StringVar(&f.CacheDir, "cache", "", "where the WireMock jar and the database seed are kept (default: the user's cache directory)")
}

func (f *partFlags) options() (provision.Options, error) {
	if !slices.Contains([]string{"", "local", "docker"}, f.Prefer) {
		return f.Options, usage(fmt.Errorf("--parts %s: want local or docker", f.Prefer), "")
	}
	return f.Options, nil
}

// planFlags say which runs are meant.
type planFlags struct {
	seed            string
	set             []string
	users, replicas int
	tag             string
	given           func(flag string) bool // also with its default value
}

func (f *planFlags) add(c *cobra.Command) {
	fs := c.Flags()
	f.given = fs.Changed
	fs.StringVar(&f.seed, "seed", "", "eight hex digits; the same seed makes the same plan (default: random, printed)")
	fs.StringArrayVar(&f.set, "set", nil, "set a parameter, `name=value` (repeatable); overbook list -v shows which there are")
	fs.IntVar(&f.users, "users", 0, "short for --set users=N, where a scenario has it")
	fs.IntVar(&f.replicas, "replicas", 0, "short for --set replicas=N, where a scenario has it")
	fs.StringVar(&f.tag, "tag", "", "only scenarios with this tag")
}

// parsed gives the seed and the explicit parameters.
func (f *planFlags) parsed() (harness.Seed, harness.Params, error) {
	seed := randomSeed()
	if f.seed != "" {
		var err error
		if seed, err = harness.ParseSeed(f.seed); err != nil {
			return 0, nil, usage(err, "")
		}
	}
	set := harness.Params{}
	for _, s := range f.set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return 0, nil, usage(fmt.Errorf("--set %s: want name=value", s), "overbook list -v shows every scenario's parameters")
		}
		set[name] = value
	}
	return seed, set, nil
}

// planned is a scenario with its plan.
type planned struct {
	scenario harness.Scenario
	plan     harness.Plan
}

// plans makes the plan of every scenario and repeat. --users and --replicas
// go to the scenarios that have them; if none has, that is a mistake.
func (f *planFlags) plans(chosen []harness.Scenario, seed harness.Seed, set harness.Params, repeat int) ([]planned, error) {
	short := map[string]int{"users": f.users, "replicas": f.replicas}
	used := map[string]bool{}
	var list []planned
	for i := range repeat {
		s := seed
		if i > 0 {
			s = harness.Seed(seed.Rand("repeat " + strconv.Itoa(i)).Uint32())
		}
		for _, scenario := range chosen {
			params := harness.Params{}
			maps.Copy(params, set)
			for name, n := range short {
				if f.given(name) && slices.ContainsFunc(scenario.Params, func(p harness.Param) bool { return p.Name == name }) {
					params[name], used[name] = strconv.Itoa(n), true
				}
			}
			plan, err := scenario.MakePlan(s, params)
			if err != nil {
				return nil, usage(err, "overbook list -v shows every scenario's parameters")
			}
			list = append(list, planned{scenario, plan})
		}
	}
	for name, n := range short {
		if f.given(name) && !used[name] {
			return nil, usage(fmt.Errorf("--%s %d: none of the chosen scenarios has that parameter", name, n), "overbook list -v shows every scenario's parameters")
		}
	}
	return list, nil
}

// outFile opens a file for writing before anything is run, so that an
// unwritable place is noticed first. What an earlier run left there goes at
// once: it must not be taken for this run's when this one comes to nothing.
func outFile(flag, name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(filepath.Clean(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, usage(fmt.Errorf("--%s: %w", flag, err), "choose a place that can be written")
	}
	return f, nil
}
