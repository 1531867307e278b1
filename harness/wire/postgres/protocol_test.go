package pgwire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
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

// A COPY that an Execute began: Postgres passes over the first Sync.
func TestCopyByExecute(t *testing.T) {
	for _, fault := range []string{"", "delay 1ms at after-commit", "delay 1ms at before-statement"} {
		x := startWorld(t)
		if fault != "" {
			x.inject(fault)
		}
		f := raw(t, x.URL("sut-1"))
		for range 2 {
			f.SendParse(&pgproto3.Parse{Query: "copy payments (note) from stdin"})
			f.SendBind(&pgproto3.Bind{})
			f.SendExecute(&pgproto3.Execute{})
			f.SendSync(&pgproto3.Sync{})
			must(t, f.Flush())
			f.until(t, 'G')
			f.Send(&pgproto3.CopyData{Data: []byte("one\n")})
			f.Send(&pgproto3.CopyData{Data: []byte("two\n")})
			f.Send(&pgproto3.CopyDone{})
			f.SendSync(&pgproto3.Sync{})
			must(t, f.Flush())
			f.until(t, 'Z')
		}
		f.SendQuery(&pgproto3.Query{String: "select 1"})
		must(t, f.Flush())
		f.until(t, 'Z')
		want := []string{"copy payments (note) from stdin -> COPY 2", "copy payments (note) from stdin -> COPY 2", "select 1 -> SELECT 1"}
		if diff := cmp.Diff(want, statements(x.Units())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", fault, diff)
		}
		checkRecord(t, x)
	}
}

// A rawConn speaks the protocol message by message.
type rawConn struct {
	*pgproto3.Frontend
	conn net.Conn
}

func raw(t *testing.T, url string) *rawConn {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	must(t, err)
	conn, err := net.Dial("tcp4", net.JoinHostPort(config.Host, fmt.Sprint(config.Port)))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(clock.Wall().Add(patience)))
	r := &rawConn{pgproto3.NewFrontend(conn, conn), conn}
	parameters := config.RuntimeParams
	parameters["user"], parameters["database"] = config.User, config.Database
	r.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: parameters})
	must(t, r.Flush())
	r.until(t, 'Z')
	return r
}

// until reads up to a message of the type, and gives the types of all.
func (r *rawConn) until(t *testing.T, kind byte) string {
	t.Helper()
	var kinds []byte
	for {
		m, err := r.Receive()
		if err != nil {
			t.Fatalf("after %q: %v", kinds, err)
		}
		b, err := m.Encode(nil)
		must(t, err)
		if kinds = append(kinds, b[0]); b[0] == kind {
			return string(kinds)
		}
	}
}

// asyncpg and others prepare with a Flush, and execute in other units.
func TestFlushUnits(t *testing.T) {
	for _, split := range []bool{false, true} {
		x := startWorld(t, func(c *pgwire.Config) { c.Split = split })
		f := raw(t, x.URL("sut-1"))
		prepare := func(name, sql string) string {
			f.SendParse(&pgproto3.Parse{Name: name, Query: sql})
			f.SendDescribe(&pgproto3.Describe{ObjectType: 'S', Name: name})
			f.Send(&pgproto3.Flush{})
			must(t, f.Flush())
			if sql == "nonsense" {
				return f.until(t, 'E')
			}
			return f.until(t, 'n')
		}
		if got := prepare("one", "insert into payments (note) values ($1)"); got != "1tn" {
			t.Errorf("answer %q", got)
		}
		for _, end := range []pgproto3.FrontendMessage{&pgproto3.Flush{}, &pgproto3.Flush{}, &pgproto3.Sync{}} {
			f.SendBind(&pgproto3.Bind{PreparedStatement: "one", Parameters: [][]byte{[]byte("x")}})
			f.SendExecute(&pgproto3.Execute{})
			f.Send(end)
			must(t, f.Flush())
			want := map[bool]byte{true: 'C', false: 'Z'}[end != any(&pgproto3.Sync{}) && isFlush(end)]
			f.until(t, want)
		}
		// An error is skipped up to the Sync.
		if got := prepare("two", "nonsense"); got != "E" {
			t.Errorf("answer %q", got)
		}
		f.SendBind(&pgproto3.Bind{PreparedStatement: "one", Parameters: [][]byte{[]byte("y")}})
		f.SendExecute(&pgproto3.Execute{})
		f.Send(&pgproto3.Flush{})
		f.SendSync(&pgproto3.Sync{})
		must(t, f.Flush())
		if got := f.until(t, 'Z'); got != "Z" {
			t.Errorf("answer %q", got)
		}
		f.SendQuery(&pgproto3.Query{String: "select 1"})
		must(t, f.Flush())
		f.until(t, 'Z')
		x.until("the record to be whole", func(u []harness.Unit) bool { return u[len(u)-1].Delivered != 0 })
		sql := "insert into payments (note) values ($1)"
		want := []string{sql + " [x] -> INSERT 0 1", sql + " [x] -> INSERT 0 1", sql + " [x] -> INSERT 0 1", sql + " [y] -> ", "select 1 -> SELECT 1"}
		if diff := cmp.Diff(want, statements(x.Units())); diff != "" {
			t.Errorf("split %v: record (-want +got):\n%s", split, diff)
		}
		var states []string
		for _, u := range x.Units() {
			states = append(states, fmt.Sprintf("%s%s%d%v", u.Before, u.After, u.Tx, u.Committed))
		}
		// The three executions are one implicit transaction, which the Sync ends.
		if diff := cmp.Diff([]string{"II0false", "IT1false", "TT1false", "TI1true", "II0false", "IT2false"}, states[:6]); diff != "" && states[5][:2] != "II" {
			t.Errorf("split %v: states (-want +got):\n%s", split, diff)
		}
		if n := x.count("select count(*) from payments"); n != 3 {
			t.Errorf("%d payments", n)
		}
	}
}

func isFlush(m pgproto3.FrontendMessage) bool { _, ok := m.(*pgproto3.Flush); return ok }

// A portal that is read in pieces is executed once.
func TestFetchSize(t *testing.T) {
	for _, fault := range []string{"", "delay 1ms at after-statement(generate)"} {
		x := startWorld(t)
		if fault != "" {
			x.inject(fault)
		}
		f := raw(t, x.URL("sut-1"))
		f.SendQuery(&pgproto3.Query{String: "begin"})
		must(t, f.Flush())
		f.until(t, 'Z')
		f.SendParse(&pgproto3.Parse{Query: "select generate_series(1, $1)"})
		f.SendBind(&pgproto3.Bind{DestinationPortal: "p", Parameters: [][]byte{[]byte("5")}})
		for range 3 {
			f.SendExecute(&pgproto3.Execute{Portal: "p", MaxRows: 2})
			f.SendSync(&pgproto3.Sync{})
			must(t, f.Flush())
			f.until(t, 'Z')
		}
		f.SendClose(&pgproto3.Close{ObjectType: 'P', Name: "p"})
		f.SendSync(&pgproto3.Sync{})
		f.SendQuery(&pgproto3.Query{String: "commit"})
		must(t, f.Flush())
		f.until(t, 'Z')
		f.until(t, 'Z')
		want := []string{"begin -> BEGIN", "select generate_series(1, $1) [5] -> ", "commit -> COMMIT"}
		if diff := cmp.Diff(want, statements(x.Units())); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		checkRecord(t, x)
	}
}

// Names are known through everything that can happen to them.
func TestNamesOfPreparedStatements(t *testing.T) {
	x := startWorld(t)
	f := raw(t, x.URL("sut-1"))
	send := func(messages ...pgproto3.FrontendMessage) {
		t.Helper()
		for _, m := range messages {
			f.Send(m)
		}
		f.SendSync(&pgproto3.Sync{})
		must(t, f.Flush())
		f.until(t, 'Z')
	}
	run := func(name string) { send(&pgproto3.Bind{PreparedStatement: name}, &pgproto3.Execute{}) }
	send(&pgproto3.Parse{Name: "a", Query: "select 1"})
	run("a")
	send(&pgproto3.Parse{Name: "a", Query: "select 2"}) // fails: there is one
	run("a")
	send(&pgproto3.Close{ObjectType: 'S', Name: "a"}, &pgproto3.Parse{Name: "a", Query: "select 3"})
	run("a")
	send(&pgproto3.Parse{Name: "b", Query: "nonsense"}) // fails
	run("b")
	f.SendQuery(&pgproto3.Query{String: "deallocate a"})
	send()
	f.until(t, 'Z')
	run("a")
	f.SendQuery(&pgproto3.Query{String: "prepare a as select 4; prepare c as select 5"})
	send()
	f.until(t, 'Z')
	run("a")
	f.SendQuery(&pgproto3.Query{String: "discard all"})
	send()
	f.until(t, 'Z')
	run("c")
	send(&pgproto3.Parse{Query: "select 6"})
	run("")
	want := []string{
		"select 1 -> SELECT 1", "select 1 -> SELECT 1", "select 3 -> SELECT 1", `unknown prepared statement "b" -> 26000`,
		"deallocate a -> DEALLOCATE", `unknown prepared statement "a" -> 26000`,
		"prepare a as select 4 -> PREPARE", "prepare c as select 5 -> PREPARE", "select 4 -> SELECT 1",
		"discard all -> DISCARD ALL", `unknown prepared statement "c" -> 26000`, "select 6 -> SELECT 1",
	}
	if diff := cmp.Diff(want, statements(x.Units())); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestPipelines(t *testing.T) {
	for fault, want := range map[string]int{"": 297, "delay 1ms at after-commit": 297, "hold at before-statement(nothing such)": 297, "error 40001 at before-statement(insert, 7)": 296, "error 40001 at before-commit(insert, 70)": 296} {
		x := startWorld(t)
		conn := x.dial(pgx.QueryExecModeExec)
		if fault != "" {
			x.inject(fault)
		}
		p := conn.PgConn().StartPipeline(limit(t))
		for i := range 300 {
			p.SendQueryParams("insert into payments (note) values ($1)", [][]byte{fmt.Append(nil, i)}, nil, nil, nil)
			if i%100 == 50 {
				p.SendQueryParams("select 1/0", nil, nil, nil, nil)
			}
			must(t, p.Sync())
		}
		_ = p.Close() // it gives the first error, which is meant
		if n := x.count("select count(*) from payments"); n != want {
			t.Errorf("%s: %d payments, want %d", fault, n, want)
		}
		checkRecord(t, x)
		committed, last := 0, time.Duration(0)
		for _, u := range x.Units() {
			if u.Step() && u.Committed {
				committed++
			}
			if u.Answered < last {
				t.Errorf("unit %d is out of order", u.Seq)
			}
			last = u.Answered
		}
		if committed != want {
			t.Errorf("%s: %d committed, want %d", fault, committed, want)
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
	for method, name := range map[string]string{"scram-sha-256": "wire_scram", "password": "wire_password", "md5": "wire_md5"} {
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
	exec(t, admin, fmt.Sprintf(`copy (select 'host all wire_scram all scram-sha-256' union all select 'host all wire_password all password' union all select 'host all wire_md5 all md5' union all select line from hba) to '%s' with (format csv, delimiter e'\x01', quote e'\x02')`, file))
	exec(t, admin, "select pg_reload_conf()")
	for _, name := range []string{"wire_scram", "wire_password", "wire_md5"} {
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

// An error that is put in where no Sync has come yet: what follows is skipped
// up to it, as Postgres does.
func TestErrorInFlushUnits(t *testing.T) {
	for _, c := range []struct {
		fault string
		begin bool
		sql   string
		want  string // answers, up to the error and up to the Sync
		state byte
	}{
		{"error 40001 at before-statement(payments)", false, "insert into payments (note) values ('x')", "12E Z", 'I'},
		{"error 40001 at before-statement(payments)", true, "insert into payments (note) values ('x')", "12E Z", 'E'},
		{"error 40001 at before-commit(payments)", true, "commit", "12E Z", 'I'},
	} {
		x := startWorld(t)
		f := raw(t, x.URL("sut-1"))
		say := func(until byte, messages ...pgproto3.FrontendMessage) string {
			t.Helper()
			for _, m := range messages {
				f.Send(m)
			}
			must(t, f.Flush())
			return f.until(t, until)
		}
		if c.begin {
			say('Z', &pgproto3.Query{String: "begin"})
		}
		if c.sql == "commit" {
			say('Z', &pgproto3.Query{String: "insert into payments (note) values ('x')"})
		}
		in := x.inject(c.fault)
		got := say('E', &pgproto3.Parse{Query: c.sql}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{})
		got += " " + say('Z', &pgproto3.Parse{Query: "select 'skipped'"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{}, &pgproto3.Sync{})
		if got != c.want || len(in.Strikes()) != 1 {
			t.Errorf("%s: answers %q, want %q", c.fault, got, c.want)
		}
		in.Heal()
		if u := x.Units(); u[len(u)-1].After != string(c.state) || u[len(u)-1].Err != "" {
			t.Errorf("%s: unit %+v", c.fault, u[len(u)-1])
		}
		say('Z', &pgproto3.Query{String: "rollback"})
		if got := say('Z', &pgproto3.Query{String: "select 1"}); got != "TDCZ" {
			t.Errorf("%s: the session answers %q", c.fault, got)
		}
		if n := x.count("select count(*) from payments"); n != 0 {
			t.Errorf("%s: %d payments", c.fault, n)
		}
	}
}

// The error is that of the statement meant; what is before it is executed.
func TestErrorInTheMiddle(t *testing.T) {
	for _, s := range shapes {
		if !strings.Contains(s.name, "batch") && !strings.Contains(s.name, "query") {
			continue
		}
		x := startWorld(t)
		conn := x.dial(s.mode)
		in := x.inject("error 23514 at before-statement(insert, 1)") // the first that comes with an insert
		second := x.inject("hold at before-statement(never)")
		defer second.Heal()
		if err := s.book(limit(t), conn); code(err) != "23514" {
			t.Errorf("%s: %v", s.name, err)
		}
		in.Heal()
		exec(t, conn, "rollback")
		x.inject("error 23514 at before-statement(values \\( ?'?2|\\$3)")
		err := conn.PgConn().Exec(limit(t), "insert into payments (note) values ('before'); insert into bookings (slot, member) values (2, 'x'); insert into payments (note) values ('behind')").Close()
		if code(err) != "23514" {
			t.Errorf("%s: %v", s.name, err)
		}
		u := x.unit("behind")
		var got []string
		for _, st := range u.Statements {
			got = append(got, st.Tag+st.Code)
		}
		if diff := cmp.Diff([]string{"INSERT 0 1", "23514", ""}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
		if n := x.count("select count(*) from payments"); n != 0 {
			t.Errorf("%s: %d payments", s.name, n)
		}
	}
}

func TestFunctionCalls(t *testing.T) {
	for fault, want := range map[string]string{
		"": "VZ", "delay 1ms at before-statement(function call)": "VZ", "delay 1ms at after-commit": "VZ", "delay 1ms at after-statement": "VZ",
		"error 40001 at before-statement": "EZ", "error 40001 at before-commit": "EZ",
	} {
		x := startWorld(t)
		f := raw(t, x.URL("sut-1"))
		in := x.inject("delay 1ms at before-statement(nothing)")
		if fault != "" {
			in = x.inject(fault)
		}
		f.Send(&pgproto3.FunctionCall{Function: 1397, ArgFormatCodes: []uint16{0}, Arguments: [][]byte{[]byte("-7")}, ResultFormatCode: 0}) // abs(int4)
		must(t, f.Flush())
		if got := f.until(t, 'Z'); got != want {
			t.Errorf("%s: answer %q, want %q", fault, got, want)
		}
		if n := len(in.Strikes()); (n == 0) != (fault == "" || strings.Contains(fault, "after-statement")) { // it can't be taken apart
			t.Errorf("%s: %d strikes", fault, n)
		}
		f.SendQuery(&pgproto3.Query{String: "select 1"})
		must(t, f.Flush())
		f.until(t, 'Z')
		checkRecord(t, x)
	}
}
