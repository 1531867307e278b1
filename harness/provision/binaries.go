package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pgPlaces are where distributions put Postgres's server binaries.
var pgPlaces = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/pgsql-*/bin",                  // Red Hat
	"/usr/libexec/postgresql*",          // Alpine
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// PostgresBinaries finds the directory with postgres and initdb:
// $OVERBOOK_PG_BIN, else the one that PATH leads to, else the newest of the
// usual places.
func PostgresBinaries() (dir string, err error) {
	if dir := os.Getenv("OVERBOOK_PG_BIN"); dir != "" {
		if !hasPostgres(dir) {
			return "", &Problem{What: "find PostgreSQL", Where: "OVERBOOK_PG_BIN=" + dir, Why: "there is no postgres and initdb in it", Fix: "name the directory that holds both, e.g. /usr/lib/postgresql/15/bin"}
		}
		return dir, nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link may stand alone; initdb is beside the file it leads to.
		if file, err := filepath.EvalSymlinks(path); err == nil && hasPostgres(filepath.Dir(file)) {
			return filepath.Dir(file), nil
		}
	}
	var dirs []string
	for _, place := range pgPlaces {
		found, _ := filepath.Glob(place)
		dirs = append(dirs, found...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(majorIn(b), majorIn(a)) })
	for _, dir := range dirs {
		if hasPostgres(dir) {
			return dir, nil
		}
	}
	return "", absent("no postgres and initdb in PATH or the usual places")
}

func hasPostgres(dir string) bool {
	return isExecutable(filepath.Join(dir, "postgres")) && isExecutable(filepath.Join(dir, "initdb"))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

var digits = regexp.MustCompile(`\d+`)

// majorIn reads the first number of a path, 0 when it has none.
func majorIn(path string) int {
	n, _ := strconv.Atoi(digits.FindString(path))
	return n
}

// Java finds the Java launcher: $OVERBOOK_JAVA, $JAVA_HOME/bin/java, PATH.
func Java() (path string, err error) {
	if path := os.Getenv("OVERBOOK_JAVA"); path != "" {
		if !isExecutable(path) {
			return "", &Problem{What: "find Java", Where: "OVERBOOK_JAVA=" + path, Why: "it is not a program", Fix: "name the java binary itself, e.g. /usr/bin/java"}
		}
		return path, nil
	}
	if home := os.Getenv("JAVA_HOME"); home != "" && isExecutable(filepath.Join(home, "bin", "java")) {
		return filepath.Join(home, "bin", "java"), nil
	}
	path, err = exec.LookPath("java")
	if err != nil {
		return "", absent("no java in JAVA_HOME or PATH")
	}
	return path, nil
}

// RedisBinary finds redis-server (or valkey-server): $OVERBOOK_REDIS_BIN, PATH.
func RedisBinary() (path string, err error) {
	if path := os.Getenv("OVERBOOK_REDIS_BIN"); path != "" {
		if !isExecutable(path) {
			return "", &Problem{What: "find Redis", Where: "OVERBOOK_REDIS_BIN=" + path, Why: "it is not a program", Fix: "name the redis-server binary itself, e.g. /usr/bin/redis-server"}
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server", "/opt/homebrew/bin/redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", absent("no redis-server in PATH")
}

const versionTimeout = 20 * time.Second

// VersionOf runs the program with the arguments and gives the first line it
// prints, on either stream.
func VersionOf(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, line)
	}
	return line, nil
}

// versionNumber takes the first dotted number out of a version line.
func versionNumber(line string) (string, error) {
	if v := dotted.FindString(line); v != "" {
		return v, nil
	}
	return "", errors.New("no version number in " + strconv.Quote(line))
}

var dotted = regexp.MustCompile(`\d+(\.\d+)+`)
