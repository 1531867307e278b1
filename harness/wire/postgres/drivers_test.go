package pgwire_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/provision"
)

const (
	nodeDriver = "pg@8" // node-postgres
	jdbcDriver = "/usr/share/java/postgresql.jar"
)

// skipDrivers skips a test of another language's driver where it is not wanted.
func skipDrivers(t *testing.T) {
	t.Helper()
	if os.Getenv("OVERBOOK_TEST_DRIVERS") == "0" {
		t.Skip("OVERBOOK_TEST_DRIVERS=0")
	}
}

// nodeModules gives a folder with node-postgres in it, fetched once.
func nodeModules(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := osexec.LookPath(program); err != nil {
			t.Skipf("no %s here: install Node.js to try node-postgres through the wire", program)
		}
	}
	cache, err := provision.DefaultCacheDir()
	must(t, err)
	dir := filepath.Join(cache, "drivers", "node", nodeDriver)
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "pg", "package.json")); err == nil {
		return modules
	}
	must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "fetching-") //nolint:usetesting // it is renamed, so it must be in the same file system
	must(t, err)
	defer os.RemoveAll(fresh)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := osexec.CommandContext(ctx, "npm", "install", "--prefix", fresh, "--no-audit", "--no-fund", "--ignore-scripts", nodeDriver).CombinedOutput()
	if err != nil {
		t.Skipf("npm can't fetch %s (%v), so node-postgres is not tried: %s", nodeDriver, err, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, os.ErrExist) { // another run was faster
		must(t, err)
	}
	return modules
}

// drive runs a driver's program, with a commit that is held until it is seen
// not to be there, and one that fails the first time.
func drive(t *testing.T, x *world, fails, name string, args, env []string) string {
	t.Helper()
	held := x.inject("hold at before-commit(^insert into payments, 1)")
	again := x.inject("error 40001 at before-commit(" + fails + ")")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	command := osexec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), env...)
	var out, trouble bytes.Buffer
	command.Stdout, command.Stderr = &out, &trouble
	must(t, command.Start())
	_, err := held.Await(ctx, 50*time.Second)
	if n := x.count("select count(*) from payments"); n != 0 || err != nil {
		t.Errorf("%d payments before the commit, %v", n, err)
	}
	held.Heal()
	if err := command.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, &out, &trouble)
	}
	if n := len(again.Strikes()); n != 1 {
		t.Errorf("%d strikes", n)
	}
	if err := x.Err(); err != nil {
		t.Error(err)
	}
	for _, u := range x.Units() {
		if u.Err != "" || u.Answered == 0 {
			t.Errorf("unit %+v", u)
		}
	}
	for _, tx := range harness.Transactions(x.Units()) {
		if tx.Outcome != "commit" && tx.Outcome != "rollback" {
			t.Errorf("transaction %+v", tx)
		}
	}
	return strings.TrimSpace(out.String())
}

func TestNodePostgres(t *testing.T) {
	t.Parallel()
	skipDrivers(t)
	modules := nodeModules(t)
	for _, split := range []bool{false, true} {
		x := startWorld(t)
		if split {
			x.inject("delay 1ms at after-statement")
		}
		u, err := url.Parse(x.URL("sut-1"))
		must(t, err)
		query := u.Query()
		query.Set("options", "-c search_path="+query.Get("search_path"))
		query.Del("search_path")
		u.RawQuery = query.Encode()
		got := drive(t, x, "isolation level serializable, 1", "node", []string{"testdata/booking.js", u.String()}, []string{"NODE_PATH=" + modules})
		want := `[["simple",1],["twice","23505"],["several",2],["notification","hello"],["held","committed"],["failed","40001"],["attempts",2],["pool",190]]`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("split %v (-want +got):\n%s", split, diff)
		}
		book := slices.DeleteFunc(statements(x.Units()), func(s string) bool { return !strings.Contains(s, "returning") })
		sql := "insert into bookings (slot, member) values ($1, $2) returning slot"
		if diff := cmp.Diff([]string{sql + " [2 node] -> INSERT 0 1", sql + " [3 node] -> INSERT 0 1", sql + " [4 node] -> INSERT 0 1", sql + " [4 node] -> 23505"}, book); diff != "" {
			t.Errorf("the prepared ones (-want +got):\n%s", diff)
		}
	}
}

func TestJDBC(t *testing.T) {
	t.Parallel()
	skipDrivers(t)
	if _, err := os.Stat(jdbcDriver); err != nil {
		t.Skip("no " + jdbcDriver + ": install libpostgresql-jdbc-java to try pgjdbc through the wire")
	}
	if _, err := osexec.LookPath("java"); err != nil {
		t.Skip("no java here")
	}
	x := startWorld(t)
	u, err := url.Parse(x.URL("sut-1"))
	must(t, err)
	query := url.Values{"user": {u.User.Username()}, "sslmode": {"disable"}, "currentSchema": {u.Query().Get("search_path")}}
	got := drive(t, x, "^insert into payments, 3", "java", []string{"-cp", jdbcDriver, "testdata/Booking.java", "jdbc:postgresql://" + u.Host + u.Path + "?" + query.Encode()}, nil)
	want := "twice 23505; held committed; batch 50; failed 40001; attempts 2; fetched 100; copied 2; notified hello; valid true"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	inserts := 0
	for _, u := range x.Units() {
		for _, s := range u.Statements {
			if s.SQL == "insert into bookings (slot, member) values ($1, $2)" && s.Tag == "INSERT 0 1" && len(s.Params) == 2 && s.Params[1] == "java" {
				inserts++
			}
		}
	}
	if inserts != 8 {
		t.Errorf("%d of 8 inserts are in the record with their text, before and after they got a name\n%s", inserts, show(x.Units()))
	}
}
