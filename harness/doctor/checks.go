package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/overbook/overbook/harness/provision"
)

const fixCommand = "overbook doctor --fix"

// Checks gives the checks of this machine for these options: needed parts
// first. A part that is given by URL is asked at its URL; one that is missing
// here is fine when Docker has its image.
func Checks(o provision.Options) []Check {
	cache, err := cacheDir(o)
	checks := []Check{cacheCheck(cache, err)}
	checks = append(checks, wiremockChecks(o, cache)...)
	if o.PostgresURL != "" {
		given := provision.Options{PostgresURL: o.PostgresURL, Need: provision.Need{Postgres: true}}
		checks = append(checks, givenCheck("PostgreSQL", given))
	} else {
		checks = append(checks, orDocker(o, "postgres", postgresCheck()), postgresUserCheck())
	}
	checks = append(checks, standbyCheck())
	if o.RedisURL != "" {
		given := provision.Options{RedisURL: o.RedisURL, Need: provision.Need{Redis: true}}
		checks = append(checks, givenCheck("Redis", given))
	} else {
		checks = append(checks, orDocker(o, "redis", redisCheck()))
	}
	return append(checks, filesCheck(), portsCheck(), dockerCheck(), coresCheck(), memoryCheck(), ringCheck(), goCheck())
}

func wiremockChecks(o provision.Options, cache string) []Check {
	if o.WireMockURL != "" {
		given := provision.Options{WireMockURL: o.WireMockURL, Need: provision.Need{WireMock: true}}
		return []Check{givenCheck("WireMock", given)}
	}
	return []Check{orDocker(o, "wiremock", javaCheck()), orDocker(o, "wiremock", jarCheck(cache)), archiveCheck(cache)}
}

func cacheDir(o provision.Options) (string, error) {
	if o.CacheDir != "" {
		return filepath.Abs(o.CacheDir)
	}
	return provision.DefaultCacheDir()
}

func javaCheck() Check {
	return Check{
		Name: "Java", FixText: provision.InstallCommand("java"),
		Run: func(ctx context.Context) (string, error) {
			path, err := provision.Java()
			if err != nil {
				return "", err
			}
			line, err := provision.VersionOf(ctx, path, "-version")
			if err != nil {
				return "", err
			}
			if major := javaMajor(line); major < oldestJava {
				return "", fmt.Errorf("%s is %s; WireMock needs Java %d or newer", path, line, oldestJava)
			}
			return line + ", " + path, nil
		},
		Fix: install("java"),
	}
}

const oldestJava = 11

var javaVersion = regexp.MustCompile(`version "(\d+)(?:\.(\d+))?`)

// javaMajor reads 17 from 17.0.15 and 8 from 1.8.0; 0 when there is none.
func javaMajor(line string) int {
	m := javaVersion.FindStringSubmatch(line)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(m[1])
	if major == 1 {
		major, _ = strconv.Atoi(m[2])
	}
	return major
}

func install(part string) func(context.Context, func(string)) error {
	return func(ctx context.Context, progress func(string)) error { return provision.Install(ctx, part, progress) }
}

func jarCheck(cache string) Check {
	return Check{
		Name: "WireMock jar", FixText: fixCommand,
		Run: func(context.Context) (string, error) {
			jar, err := provision.FindJar(cache)
			if err != nil {
				return "", err
			}
			if !jar.Pinned {
				return jar.Path + ", not " + provision.WireMockVersion + " (named by OVERBOOK_WIREMOCK_JAR)", nil
			}
			return provision.WireMockVersion + ", checksum right, " + jar.Path, nil
		},
		Fix: func(ctx context.Context, progress func(string)) error {
			return provision.FetchWireMock(ctx, cache, progress)
		},
	}
}

func archiveCheck(cache string) Check {
	return Check{
		Name: "WireMock start-up archive", FixText: fixCommand, Optional: true,
		Run: func(context.Context) (string, error) { return provision.FindArchive(cache) },
		Fix: func(ctx context.Context, progress func(string)) error {
			return provision.BuildArchive(ctx, cache, progress)
		},
	}
}

func postgresCheck() Check {
	return Check{
		Name: "PostgreSQL", FixText: provision.InstallCommand("postgres"),
		Run: func(ctx context.Context) (string, error) {
			dir, err := provision.PostgresBinaries()
			if err != nil {
				return "", err
			}
			line, err := provision.VersionOf(ctx, filepath.Join(dir, "postgres"), "--version")
			if err != nil {
				return "", err
			}
			return line + ", " + dir, nil
		},
		Fix: install("postgres"),
	}
}

// standbyCheck looks for what a second cluster is made with: failover scenarios
// have two of their own, from local binaries, whatever the others run on.
func standbyCheck() Check {
	return Check{
		Name: "standby (failover)", Optional: true,
		FixText: "needed for failover scenarios alone, which are UNKNOWN without it: " + provision.InstallCommand("postgres"),
		Run: func(ctx context.Context) (string, error) {
			dir, err := provision.PostgresBinaries()
			if err != nil {
				return "", err
			}
			return provision.VersionOf(ctx, filepath.Join(dir, "pg_basebackup"), "--version")
		},
	}
}

func redisCheck() Check {
	return Check{
		Name: "Redis", FixText: provision.InstallCommand("redis"),
		Run: func(ctx context.Context) (string, error) {
			path, err := provision.RedisBinary()
			if err != nil {
				return "", err
			}
			line, err := provision.VersionOf(ctx, path, "--version")
			if err != nil {
				return "", err
			}
			return line + ", " + path, nil
		},
		Fix: install("redis"),
	}
}
