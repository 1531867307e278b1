package calendar_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/stubs/calendar"
)

// let asks for an event that is not there with an access token: 404 is let in.
func (d *desk) let(tb testing.TB, name, access string) string {
	tb.Helper()
	w := d.send(tb, "GET", "/events/event-0?calendar="+name, access, "", "")
	if w.Code == 404 {
		return "in"
	}
	return fmt.Sprintf("%d %s", w.Code, w.Body)
}

func (d *desk) wantLet(t *testing.T, name, access, want string) {
	t.Helper()
	if got := d.let(t, name, access); got != want {
		t.Errorf("%s with %s: %s, want %s", name, access, got, want)
	}
}

func (d *desk) wantToken(t *testing.T, name, refresh, key string, status int, want string) {
	t.Helper()
	if got, answer := d.token(t, name, refresh, key); got != status || answer != want {
		t.Errorf("token for %s with %s under %s: %d %s, want %d %s", name, refresh, key, got, answer, status, want)
	}
}

const (
	expired = `401 {"error":"token_expired"}`
	unknown = `401 {"error":"unauthorized"}`
)

func TestTokensRotateAndAreOfTheirCalendar(t *testing.T) {
	d := newDesk(t)
	d.wantLet(t, "cal-1", "", unknown)
	d.wantLet(t, "cal-1", "made-up", unknown)
	first := d.refresh(t, "cal-1", "whatever", "key-1") // the first one is accepted
	d.wantLet(t, "cal-1", first.Access, "in")
	d.wantLet(t, "cal-2", first.Access, unknown)
	d.wantToken(t, "cal-1", "whatever", "key-2", 400, refused("invalid_grant")) // it has rotated
	d.wantToken(t, "cal-1", "anything", "key-3", 400, refused("invalid_grant"))
	d.wantLet(t, "cal-1", first.Access, "in") // a refusal ends nothing
	second := d.refresh(t, "cal-1", first.Refresh, "key-2")
	d.wantLet(t, "cal-1", first.Access, expired)
	d.wantLet(t, "cal-1", second.Access, "in")
	if again := d.refresh(t, "cal-1", first.Refresh, "key-2"); again != second {
		t.Errorf("repeated under its key: %+v, want %+v", again, second)
	}
	d.wantToken(t, "cal-1", second.Refresh, "key-2", 422, refused("key_reused"))
	d.refresh(t, "cal-2", "whatever", "key-2") // keys are the calendar's
	d.wantLet(t, "cal-1", second.Access, "in")
	seen := map[string]bool{}
	for _, token := range []string{first.Access, first.Refresh, second.Access, second.Refresh, d.access["cal-2"]} {
		seen[token] = true
	}
	if len(seen) != 5 {
		t.Errorf("tokens repeat: %v", seen)
	}
	l := d.ledger(t)
	if c := l.Calendars[0]; c.Refreshes != 2 || c.Refused != 2 {
		t.Errorf("calendar: %+v", c)
	}
	want := []string{"token  issued", "token  invalid_grant", "token  invalid_grant", "token  issued", "token  repeated", "token  key_reused"}
	if diff := cmp.Diff(want, rows(l.Of("cal-1"))); diff != "" {
		t.Error(diff)
	}
}

func TestTokensThatAreEnded(t *testing.T) {
	d := newDesk(t)
	one, two := d.refresh(t, "cal-1", "r-0", "key-1"), d.refresh(t, "cal-2", "r-0", "key-1")
	d.configure(t, calendar.Config{ExpireTokens: []string{"cal-1"}})
	d.wantLet(t, "cal-1", one.Access, expired)
	d.wantLet(t, "cal-2", two.Access, "in")
	one = d.refresh(t, "cal-1", one.Refresh, "key-2") // the refresh token is still valid
	d.configure(t, calendar.Config{ExpireTokens: []string{calendar.All}})
	d.wantLet(t, "cal-1", one.Access, expired)
	d.wantLet(t, "cal-2", two.Access, expired)
	one = d.refresh(t, "cal-1", one.Refresh, "key-3")

	d.configure(t, calendar.Config{Revoke: []string{"cal-1"}})
	d.wantLet(t, "cal-1", one.Access, unknown)
	d.wantToken(t, "cal-1", one.Refresh, "key-4", 400, refused("invalid_grant"))
	d.wantToken(t, "cal-1", "r-0", "key-3", 400, refused("invalid_grant")) // nor under a key from before
	d.configure(t, calendar.Config{Grant: []calendar.Grant{{Calendar: "cal-1", RefreshToken: "r-9"}}})
	d.wantToken(t, "cal-1", one.Refresh, "key-5", 400, refused("invalid_grant"))
	nine := d.refresh(t, "cal-1", "r-9", "key-6")
	d.wantLet(t, "cal-1", nine.Access, "in")
	if nine.Access == one.Access || nine.Refresh == one.Refresh {
		t.Errorf("the same tokens after a revocation: %+v", nine)
	}
	d.wantToken(t, "cal-1", "r-9", "key-7", 400, refused("invalid_grant"))
	d.refresh(t, "cal-1", nine.Refresh, "key-7")
	d.refresh(t, "cal-2", two.Refresh, "key-2")
}

func TestGrantsBesideTheLastToken(t *testing.T) {
	d := newDesk(t)
	d.configure(t, calendar.Config{Grant: []calendar.Grant{{Calendar: "cal-1", RefreshToken: "r-1"}}})
	d.wantToken(t, "cal-1", "whatever", "key-1", 400, refused("invalid_grant")) // granted explicitly: nothing else will do
	one := d.refresh(t, "cal-1", "r-1", "key-1")
	d.configure(t, calendar.Config{Revoke: []string{"cal-2"}, Grant: []calendar.Grant{{Calendar: "cal-1", RefreshToken: "r-2"}}})
	one = d.refresh(t, "cal-1", one.Refresh, "key-2")
	two := d.refresh(t, "cal-1", "r-2", "key-3")
	d.wantToken(t, "cal-1", one.Refresh, "key-4", 400, refused("invalid_grant"))
	d.wantLet(t, "cal-1", one.Access, expired)
	d.wantLet(t, "cal-1", two.Access, "in")
	d.wantToken(t, "cal-2", "whatever", "key-1", 400, refused("invalid_grant")) // revoked before its first
}

// Of many refreshes at once with one token, one gets a pair, and under one key
// all get the same one.
func TestTokensAtOnce(t *testing.T) {
	const n = 50
	at := func(d *desk, key func(int) string) map[string]int {
		var mu sync.Mutex
		var all sync.WaitGroup
		got := map[string]int{}
		for i := range n {
			all.Go(func() {
				status, answer := d.token(t, "cal-1", "r-0", key(i))
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprintf("%d %s", status, answer)]++
			})
		}
		all.Wait()
		return got
	}
	d := newDesk(t)
	got := at(d, func(i int) string { return fmt.Sprintf("key-%d", i) })
	if len(got) != 2 || got[`400 {"error":"invalid_grant"}`] != n-1 {
		t.Errorf("under a key each: %v", got)
	}
	if c := d.ledger(t).Calendars[0]; c.Refreshes != 1 || c.Refused != n-1 {
		t.Errorf("calendar: %+v", c)
	}
	d = newDesk(t)
	if got := at(d, func(int) string { return "key" }); len(got) != 1 {
		t.Errorf("under one key: %v", got)
	}
	if c := d.ledger(t).Calendars[0]; c.Refreshes != 1 || c.Refused != 0 {
		t.Errorf("calendar: %+v", c)
	}
}
