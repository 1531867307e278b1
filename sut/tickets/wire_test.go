package tickets

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/overbook/overbook/sut/internal/pgtest"
)

var logLine = regexp.MustCompile(`(?m)^\S+ \S+ \S+ \[(\d+)\] (LOG|DETAIL):  (.*)$`)

// Whoever watches the wire finds the operation of a request's transaction in
// the first statement behind its BEGIN. Postgres' own log is such a watcher.
func TestFirstStatementOfATransactionNamesTheOperation(t *testing.T) {
	if os.Getenv(pgtest.EnvURL) != "" {
		t.Skip("the log of a Postgres of somebody else's is not ours to read")
	}
	s := newShop(t, 3, func(c *Config) { c.DatabaseURL += "&log_statement=all" })
	hold := s.held("member-1", "A-1")
	wants(t, s.charge("member-1", hold), "201")
	other := wants(t, s.best("member-2"), "201").str("hold_id")
	wants(t, s.release("member-2", other), "200")
	body := event("e1", eventCaptured, "pay_9", "of-its-own", hold, 4500)
	wants(t, s.send("POST", "/tickets/provider-callbacks", call{body: body, signature: s.signature(body, 0), op: "callback-1"}), "200")
	wants(t, s.send("POST", "/tickets/shows", call{who: "staff-1", op: "show-2", body: `{"show_id":2,"on_sale_at":"2026-01-01T00:00:00Z","price":1,"currency":"EUR","seats":["B"]}`}), "201")
	giveBack := s.lock("select from seats where show_id = 1 and state = 'FREE' for update")
	done := make(chan answer, 1)
	go func() {
		done <- s.send("POST", "/tickets/shows/1/holds", call{who: "member-4", body: `{"best_available":true}`, op: "patient-1"})
	}()
	s.awaitWaiting(1)
	giveBack()
	wants(t, <-done, "201")

	pids := s.lines("select pid::text from pg_stat_activity where application_name = 'sut-1' and datname = current_database()")
	log := scan[string](s, "select pg_read_file(current_setting('data_directory') || '/../log')")
	var seen []string
	for pid, lines := range linesOf(log, pids) {
		for i, line := range lines {
			if !strings.HasSuffix(line, ": begin") || i+2 >= len(lines) {
				continue
			}
			first := lines[i+1] + lines[i+2] // the statement, and its parameters
			at := slices.IndexFunc(operations, func(op string) bool { return strings.Contains(first, "'"+op+"'") })
			if at < 0 {
				t.Errorf("session %s: after begin comes %s", pid, first)
				continue
			}
			seen = append(seen, operations[at])
		}
	}
	for _, op := range operations {
		if !slices.Contains(seen, op) {
			t.Errorf("no transaction of %s was seen, only %q", op, seen)
		}
	}
}

var operations = []string{"claim-member-1", "charge-member-1", "best-member-2", "release-member-2", "callback-1", "show-1", "show-2", "patient-1"}

// linesOf gives what Postgres' log says of some sessions.
func linesOf(log string, pids []string) map[string][]string {
	out := map[string][]string{}
	for _, m := range logLine.FindAllStringSubmatch(log, -1) {
		if slices.Contains(pids, m[1]) {
			out[m[1]] = append(out[m[1]], m[3])
		}
	}
	return out
}
