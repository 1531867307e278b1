package pgwire_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// statements are those of the record, with what became of them.
func statements(units []harness.Unit) []string {
	var list []string
	for _, u := range units {
		for _, s := range u.Statements {
			text := s.SQL
			if s.Params != nil {
				text += " [" + strings.Join(s.Params, " ") + "]"
			}
			list = append(list, text+" -> "+s.Tag+s.Code)
		}
	}
	return list
}

func TestEveryModeOfPgx(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			x := startWorld(t)
			conn := x.dial(mode)
			for i := range 2 {
				exec(t, conn, insert, i+1, "m1")
			}
			tx, err := conn.Begin(limit(t))
			must(t, err)
			_, err = tx.Exec(limit(t), `update bookings set member = $1 where slot = $2`, "m2", 1)
			must(t, err)
			must(t, tx.Commit(limit(t)))
			if _, err := conn.Exec(limit(t), insert, 1, "m1"); code(err) != "23505" {
				t.Fatal(err)
			}
			want := []string{
				insert + " [1 m1] -> INSERT 0 1", insert + " [2 m1] -> INSERT 0 1", "begin -> BEGIN",
				"update bookings set member = $1 where slot = $2 [m2 1] -> UPDATE 1", "commit -> COMMIT", insert + " [1 m1] -> 23505",
			}
			got := statements(x.Units())
			if name == "simple_protocol" {
				for i, s := range want {
					s = strings.Replace(s, " [1 m1]", "", 1)
					s = strings.Replace(s, " [2 m1]", "", 1)
					s = strings.Replace(s, " [m2 1]", "", 1)
					want[i] = s[strings.LastIndex(s, "->"):]
					got[i] = got[i][strings.LastIndex(got[i], "->"):]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			var outcomes []string
			for _, tx := range harness.Transactions(x.Units()) {
				outcomes = append(outcomes, fmt.Sprintf("%s %v", tx.Outcome, tx.Implicit))
			}
			if diff := cmp.Diff([]string{"commit true", "commit true", "commit false", "rollback true"}, outcomes); diff != "" {
				t.Errorf("transactions (-want +got):\n%s", diff)
			}
			checkRecord(t, x)
		})
	}
}

func TestTransactionInOneUnit(t *testing.T) {
	for _, s := range shapes {
		if !strings.Contains(s.name, "with commit") {
			continue
		}
		x := startWorld(t)
		must(t, s.book(limit(t), x.dial(s.mode)))
		units := slices.DeleteFunc(x.Units(), func(u harness.Unit) bool { return !u.Step() })
		if len(units) != 1 || len(units[0].Statements) != 4 || !units[0].Committed || units[0].Before != "I" || units[0].After != "I" || units[0].Tx != 1 {
			t.Errorf("%s: %+v", s.name, units)
		}
	}
}

func TestCopyIsHeldAndFinished(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before-statement(copy)", "before-commit(copy)", "after-commit(copy)"} {
		x := startWorld(t)
		conn := x.dial(pgx.QueryExecModeExec)
		in := x.inject("hold at " + at)
		done := make(chan error, 1)
		go func() {
			_, err := conn.CopyFrom(limit(t), pgx.Identifier{"slots"}, []string{"id"}, pgx.CopyFromSlice(5000, func(i int) ([]any, error) { return []any{i + 1000}, nil }))
			done <- err
		}()
		if _, err := in.Await(limit(t), patience); err != nil {
			t.Fatal(err)
		}
		want := 20
		if strings.HasPrefix(at, "after") {
			want += 5000
		}
		if n := x.count("select count(*) from slots"); n != want {
			t.Errorf("%s: %d slots while it is held, want %d", at, n, want)
		}
		in.Heal()
		must(t, <-done)
		if n := x.count("select count(*) from slots"); n != 5020 {
			t.Errorf("%s: %d slots", at, n)
		}
		if u := x.unit("copy"); !u.Committed || u.Statements[0].Tag != "COPY 5000" {
			t.Errorf("unit %+v", u)
		}
	}
}

func TestNotificationsPassAtOnce(t *testing.T) {
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeExec)
	exec(t, conn, "listen news")
	exec(t, x.dial(pgx.QueryExecModeExec), "notify news, 'hello'")
	n, err := conn.WaitForNotification(limit(t))
	if err != nil || n.Payload != "hello" {
		t.Fatalf("%+v, %v", n, err)
	}
	// Also to a session whose answer is held: then behind the answer.
	f := raw(t, x.URL("sut-1"))
	f.SendQuery(&pgproto3.Query{String: "listen more"})
	must(t, f.Flush())
	f.until(t, 'Z')
	more := x.inject("hold at after-commit(select 'more')")
	f.SendQuery(&pgproto3.Query{String: "select 'more'"})
	must(t, f.Flush())
	if _, err := more.Await(limit(t), patience); err != nil {
		t.Fatal(err)
	}
	exec(t, x.dial(pgx.QueryExecModeExec), "notify more")
	must(t, clock.Await(t.Context(), "the notification to be with the wire", patience, time.Millisecond, func(context.Context) (bool, string, error) {
		return x.count("select count(*) from pg_stat_activity where application_name = current_setting('application_name') and wait_event = 'ClientRead' and query like 'select ''more%'") == 1, "", nil
	}))
	more.Heal()
	if got := f.until(t, 'A'); got != "TDCZA" {
		t.Errorf("messages %q", got)
	}
	in := x.inject("hold at after-commit(payments)")
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(limit(t), "insert into payments (note) values ('x')")
		done <- err
	}()
	if _, err := in.Await(limit(t), patience); err != nil {
		t.Fatal(err)
	}
	exec(t, x.dial(pgx.QueryExecModeExec), "notify news, 'again'")
	in.Heal()
	must(t, <-done)
	if n, err = conn.WaitForNotification(limit(t)); err != nil || n.Payload != "again" {
		t.Fatalf("%+v, %v", n, err)
	}
}

func TestCancelByContext(t *testing.T) {
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeExec)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select pg_sleep(30)")
		done <- err
	}()
	x.until("the statement to be with Postgres", func(u []harness.Unit) bool { return len(u) > 0 && u[len(u)-1].Forwarded != 0 })
	must(t, clock.Await(t.Context(), "it to sleep", patience, time.Millisecond, func(context.Context) (bool, string, error) {
		return x.count("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and application_name = current_setting('application_name')") == 1, "", nil
	}))
	must(t, conn.PgConn().CancelRequest(limit(t)))
	if err := <-done; code(err) != "57014" {
		t.Errorf("err = %v", err)
	}
	exec(t, conn, "select 1")
	if u := x.unit("30"); u.Statements[0].Code != "57014" {
		t.Errorf("unit %+v", u)
	}
	// The usual way: the context ends, and the driver cancels and closes.
	ctx, cancel := context.WithCancel(context.Background())
	in := x.inject("hold at before-statement(pg_sleep)")
	go func() {
		if _, err := in.Await(limit(t), patience); err == nil {
			cancel()
		}
	}()
	if _, err := conn.Exec(ctx, "select pg_sleep(31)"); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	x.until("the held unit to be let go", func(u []harness.Unit) bool { return u[len(u)-1].Err != "" })
	if u := x.unit("31"); u.Forwarded != 0 || u.Answered != 0 {
		t.Errorf("unit %+v", u)
	}
}

func TestStartupThatFails(t *testing.T) {
	x := startWorld(t)
	config, err := pgx.ParseConfig(x.URL("sut-1"))
	must(t, err)
	config.Database = "not_there"
	if _, err := pgx.ConnectConfig(limit(t), config); err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Errorf("err = %v", err)
	}
	// Drivers that want encryption are told that there is none, and go on.
	url := strings.Replace(x.URL("sut-1"), "sslmode=disable", "sslmode=prefer", 1)
	conn := connect(t, url, pgx.QueryExecModeExec)
	exec(t, conn, "select 1")
	url = strings.Replace(x.URL("sut-1"), "sslmode=disable", "sslmode=require", 1)
	if _, err := pgx.Connect(limit(t), url); err == nil || !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("err = %v", err)
	}
	if err := x.Err(); err != nil {
		t.Error(err)
	}
}

func TestReplicationPassesBlindly(t *testing.T) {
	x := startWorld(t)
	url := x.URL("sut-1") + "&replication=database"
	conn, err := pgconn.Connect(limit(t), url)
	must(t, err)
	defer conn.Close(context.Background())
	results, err := conn.Exec(limit(t), "IDENTIFY_SYSTEM").ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		t.Errorf("%v, %v", results, err)
	}
	if n := len(x.Units()); n != 0 {
		t.Errorf("%d units", n)
	}
}

// Who authenticates by a password does so through the wire as without it.
func TestPasswords(t *testing.T) {
	x := startWorld(t)
	admin := connect(t, x.direct, pgx.QueryExecModeExec)
	run := fmt.Sprintf("_%d", made.Add(1)) // roles are the cluster's
	for method, name := range map[string]string{"scram-sha-256": "wire_scram" + run, "password": "wire_password" + run, "md5": "wire_md5" + run} {
		exec(t, admin, fmt.Sprintf("set password_encryption = '%s'", strings.Replace(method, "password", "scram-sha-256", 1)))
		exec(t, admin, fmt.Sprintf("create role %s login password 'secret'", name))
	}
	var file string
	must(t, admin.QueryRow(limit(t), "show hba_file").Scan(&file))
	exec(t, admin, `create table hba (line text)`)
	exec(t, admin, fmt.Sprintf(`copy hba from '%s' with (format csv, delimiter e'\x01', quote e'\x02')`, file))
	defer func() {
		exec(t, admin, fmt.Sprintf(`copy (select line from hba) to '%s' with (format csv, delimiter e'\x01', quote e'\x02')`, file))
		exec(t, admin, "select pg_reload_conf()")
	}()
	exec(t, admin, fmt.Sprintf(`copy (select 'host all wire_scram%[2]s all scram-sha-256' union all select 'host all wire_password%[2]s all password' union all select 'host all wire_md5%[2]s all md5' union all select line from hba) to '%[1]s' with (format csv, delimiter e'\x01', quote e'\x02')`, file, run))
	exec(t, admin, "select pg_reload_conf()")
	for _, name := range []string{"wire_scram" + run, "wire_password" + run, "wire_md5" + run} {
		for password, want := range map[string]string{"secret": "", "wrong": "28P01"} {
			config, err := pgx.ParseConfig(x.URL("sut-1"))
			must(t, err)
			config.User, config.Password = name, password
			must(t, clock.Await(t.Context(), "the new rules to count", patience, 5*time.Millisecond, func(ctx context.Context) (bool, string, error) {
				conn, err := pgx.ConnectConfig(ctx, config)
				got := ""
				if err == nil {
					_, err = conn.Exec(ctx, "select 1")
					_ = conn.Close(ctx)
				}
				if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
					got = pg.Code
				}
				return got == want && (err == nil) == (want == ""), fmt.Sprintf("%s with %q: %v", name, password, err), nil
			}))
		}
	}
}

func TestParametersInTheRecord(t *testing.T) {
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeCacheStatement)
	at := time.Date(2026, 11, 29, 8, 7, 6, 123456000, time.UTC)
	id := "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
	_, err := conn.Exec(limit(t), `select $1::int2, $2::int4, $3::int8, $4::bool, $5::uuid, $6::text, $7::varchar, $8::float8, $9::timestamptz, $10::json, $11::jsonb, $12::bytea, $13::text[], $14::uuid[], $15::int8[], $16::text, $17::float4, $18::date, $19::timestamp, $20::inet, $21::text[]`,
		int16(-2), int32(-4), int64(-8), true, id, "text", "varchar", 1.5, at, `{"a": 1}`, `{"b": 2}`, []byte{1, 2}, []string{"a", "b c", `d"e`, ""}, []string{id}, []int64{1, -2}, nil, float32(0.25), at, at, netip.MustParseAddr("10.0.0.1"), strings.Split(strings.Repeat("long,", 200), ","))
	must(t, err)
	got := x.unit("int2").Statements[0].Params
	want := []string{
		"-2", "-4", "-8", "t", id, "text", "varchar", "1.5", "2026-11-29 08:07:06.123456+00", `{"a": 1}`, `{"b": 2}`, `\x0102`,
		`{a,"b c","d\"e",""}`, "{" + id + "}", "{1,-2}", "NULL", "0.25", "2026-11-29", "2026-11-29 08:07:06.123456", `\x022000040a000001`,
	}
	if diff := cmp.Diff(want, got[:20]); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if len(got[20]) != 256 || !strings.HasPrefix(got[20], "{long,long,") {
		t.Errorf("%d bytes of %q", len(got[20]), got[20])
	}
	long := strings.Repeat("é", 5000)
	exec(t, conn, "select '"+long+"'")
	if s := x.unit("é").Statements[0].SQL; len(s) > 4096 || len(s) < 4090 || strings.Contains(s, "\uFFFD") {
		t.Errorf("%d bytes of SQL", len(s))
	}
}
