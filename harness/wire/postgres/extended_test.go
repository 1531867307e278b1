package pgwire_test

import (
	"fmt"
	"net"
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

// A COPY that an Execute began: Postgres passes over the first Sync.
func TestCopyByExecute(t *testing.T) {
	t.Parallel()
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
			f.until(t, map[bool]byte{true: 'C', false: 'Z'}[isFlush(end)])
			if n := len(x.OpenTransactions("")); n != 0 {
				t.Errorf("%d open transactions, where there is only an implicit one", n)
			}
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
	send(&pgproto3.Parse{Query: "select $1, $2", ParameterOIDs: []uint32{23, 23}})
	send(&pgproto3.Bind{DestinationPortal: "p", ParameterFormatCodes: []int16{1}, Parameters: [][]byte{{0, 0, 0, 7}, {0, 0, 0, 8}}}, &pgproto3.Execute{Portal: "p"})
	send(&pgproto3.Execute{Portal: "p"}) // it ended with the transaction
	f.SendQuery(&pgproto3.Query{String: `set standard_conforming_strings = off`})
	must(t, f.Flush())
	f.until(t, 'Z')
	f.SendQuery(&pgproto3.Query{String: `select '\'; x'; select 8`})
	send()
	f.until(t, 'Z')
	want := []string{
		"select 1 -> SELECT 1", "select 1 -> SELECT 1", "select 3 -> SELECT 1", `unknown prepared statement "b" -> 26000`,
		"deallocate a -> DEALLOCATE", `unknown prepared statement "a" -> 26000`,
		"prepare a as select 4 -> PREPARE", "prepare c as select 5 -> PREPARE", "select 4 -> SELECT 1",
		"discard all -> DISCARD ALL", `unknown prepared statement "c" -> 26000`, "select 6 -> SELECT 1",
		"select $1, $2 [7 8] -> SELECT 1", `unknown portal "p" -> 34000`, "set standard_conforming_strings = off -> SET", `select '\'; x' -> SELECT 1`, "select 8 -> SELECT 1",
	}
	if diff := cmp.Diff(want, statements(x.Units())); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestPipelines(t *testing.T) {
	t.Parallel()
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

// A unit that waits for something comes behind what was sent before it.
func TestGuidedUnitsWaitForTheirTurn(t *testing.T) {
	for _, fault := range []string{"delay 1ms at after-commit(payments)", "delay 1ms at after-statement(payments)", "error 40001 at before-statement(payments)"} {
		x := startWorld(t)
		x.inject(fault)
		f := raw(t, x.URL("sut-1"))
		f.SendQuery(&pgproto3.Query{String: "select pg_sleep(0.03)"})
		f.SendQuery(&pgproto3.Query{String: "insert into payments (note) values ('x')"})
		f.SendQuery(&pgproto3.Query{String: "begin"})
		must(t, f.Flush())
		got := f.until(t, 'Z') + f.until(t, 'Z') + f.until(t, 'Z')
		if want := map[bool]string{true: "TDCZEZCZ", false: "TDCZCZCZ"}[strings.HasPrefix(fault, "error")]; got != want {
			t.Errorf("%s: %q, want %q", fault, got, want)
		}
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
	t.Parallel()
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
	t.Parallel()
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
