package pgwire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPiecesOfAQuery(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		" ; ;; -- nothing\n /* no /* thing */ */ ;": nil,
		"select 1":  {"select 1"},
		"select 1;": {"select 1"},
		"begin;\n insert into a values (1) ;commit":                                                              {"begin", "insert into a values (1)", "commit"},
		"select ';', \";\", $$;$$, $a$;$$;$a$; x":                                                                {"select ';', \";\", $$;$$, $a$;$$;$a$", "x"},
		`select 'it''s; so', e'\';', ';\'; x`:                                                                    {`select 'it''s; so', e'\';', ';\'`, "x"},
		"select $1;select a$b$;select $b$":                                                                       {"select $1", "select a$b$", "select $b$"},
		"/* ; */ select 1 -- ;\n + 1; select 2":                                                                  {"/* ; */ select 1 -- ;\n + 1", "select 2"},
		"create rule r as on insert to a do (select 1; select 2); x":                                             {"create rule r as on insert to a do (select 1; select 2)", "x"},
		"create function f() returns int begin atomic select 1; select case when true then 2 end; end; select 3": {"create function f() returns int begin atomic select 1; select case when true then 2 end; end", "select 3"},
		"create or replace procedure p() language sql BEGIN ATOMIC insert into a values (1); END; commit; begin; select atomic; end": {"create or replace procedure p() language sql BEGIN ATOMIC insert into a values (1); END", "commit", "begin", "select atomic", "end"},
		"select 'never ends; select 2": {"select 'never ends; select 2"},
		"select $a$ never ends; x":     {"select $a$ never ends; x"},
	} {
		var got []string
		for _, p := range pieces(text, false) {
			got = append(got, p.text)
			if !strings.HasPrefix(strings.TrimLeft(text[p.offset:], blanks), p.text) {
				t.Errorf("%q: %q is not at %d", text, p.text, p.offset)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	if got := pieces(`select '\'; x'; y`, true); len(got) != 2 {
		t.Errorf("with backslashes: %d pieces", len(got))
	}
}

func TestWhatAStatementDoes(t *testing.T) {
	for text, want := range map[string]string{
		"BEGIN": "begin", "begin isolation level serializable": "begin", "start transaction read only": "begin", "start something": "",
		"COMMIT": "commit plain", "commit work": "commit plain", "End Transaction": "commit plain", "commit and chain": "commit chain plain", "commit and no chain": "commit plain", "commit nonsense": "commit", "commit prepared 'x'": "",
		"/* why */ commit": "commit", "-- why\ncommit": "commit", "(select 1)": "plain",
		"rollback": "rollback", "ABORT": "rollback", "rollback to savepoint a": "", "rollback work to a": "", "rollback prepared 'x'": "", "rollback and chain": "rollback chain",
		"prepare transaction 'x'": "rollback", "prepare x as select 1": "names x for select 1", "PREPARE x(int) AS select $1": "names x for select $1",
		"deallocate x": "forgets x", "deallocate prepare \"X\"": "forgets X", "deallocate all": "forgets all", "discard all": "forgets all", "discard plans": "",
		"select 1": "plain", "insert into a select 1": "plain", "with a as (select 1) delete from a": "plain", "vacuum": "", "create table a ()": "",
		"set local x = 1": "", "lock table a": "", "call p()": "", "do $$ begin perform 1; end $$": "plain", "do $$ begin commit; end $$": "",
		"copy a from stdin": "copy in", "copy a (b, c) FROM STDIN with (format binary)": "copy in", "copy a to stdout": "plain", "copy a from '/stdin'": "plain",
		"copy (select * from stdin) to stdout": "plain", `copy "a" from stdin binary`: "copy in", "": "blank", " /* x */ ": "blank",
	} {
		s := newStatement(text, false)
		got := map[control]string{controlNone: "", controlBegin: "begin", controlCommit: "commit", controlRollback: "rollback"}[s.control]
		for _, also := range []struct {
			is   bool
			word string
		}{{s.chain, "chain"}, {s.copyIn, "copy in"}, {s.plain, "plain"}, {s.blank, "blank"}, {s.forgets, "forgets " + s.name}, {s.prepares != "", "names " + s.name + " for " + s.prepares}} {
			if also.is {
				got = strings.TrimSpace(got + " " + also.word)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLongStatements(t *testing.T) {
	long := "select  '" + strings.Repeat("é", 100_000) + "'"
	s := newStatement(long, false)
	if len(s.text) > recordedSQL || len(s.match) > matchedSQL || !strings.HasPrefix(s.match, "select 'é") {
		t.Errorf("%d bytes in the record, %d to match", len(s.text), len(s.match))
	}
	u := &unit{executions: []execution{{statement: s}}}
	if line := u.line(0); len(line) > lineSQL || strings.Contains(line, "\uFFFD") {
		t.Errorf("line %q", line)
	}
}

// FuzzPieces tries that a query can be taken apart at each of its statements:
// the two parts have the statements that the whole has.
func FuzzPieces(f *testing.F) {
	for _, s := range []string{"begin; select ';'; commit", "create function f() begin atomic select 1; end; x", "$a$;$a$", "e'\\';", "/*/* ; */"} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, backslash bool) {
		whole := texts(pieces(text, backslash))
		for i, p := range pieces(text, backslash) {
			parts := append(texts(pieces(text[:p.offset], backslash)), texts(pieces(text[p.offset:], backslash))...)
			if diff := cmp.Diff(whole, parts); diff != "" {
				t.Fatalf("%q taken apart before statement %d:\n%s", text, i, diff)
			}
		}
	})
}

func texts(list []*statement) []string {
	var texts []string
	for _, s := range list {
		texts = append(texts, s.text)
	}
	return texts
}

// A driven transaction, without Postgres: what is worked out from statements
// and tags alone.
func TestStatusOfATransaction(t *testing.T) {
	type step struct {
		sql, tag string
		ready    byte // 0: behind a Flush
	}
	for name, c := range map[string]struct {
		steps []step
		want  string // status, number and whether it committed, after each
	}{
		"autocommit":       {[]step{{"insert", "INSERT 0 1", 'I'}, {"insert", "", 'I'}}, "I1c I2"},
		"transaction":      {[]step{{"begin", "BEGIN", 'T'}, {"insert", "INSERT 0 1", 'T'}, {"commit", "COMMIT", 'I'}}, "T1 T1 I1c"},
		"failed":           {[]step{{"begin", "BEGIN", 'T'}, {"insert", "", 'E'}, {"commit", "ROLLBACK", 'I'}}, "T1 E1 I1"},
		"chain":            {[]step{{"begin", "BEGIN", 'T'}, {"commit and chain", "COMMIT", 'T'}, {"rollback", "ROLLBACK", 'I'}}, "T1 T1c I2"},
		"by flush":         {[]step{{"insert", "INSERT 0 1", 0}, {"insert", "INSERT 0 1", 0}, {"", "", 'I'}}, "T1 T1 I1c"},
		"by flush, failed": {[]step{{"insert", "INSERT 0 1", 0}, {"insert", "", 0}, {"", "", 'I'}}, "T1 E1 I1"},
		"begin by flush":   {[]step{{"begin", "BEGIN", 0}, {"", "", 'T'}, {"commit", "COMMIT", 0}, {"", "", 'I'}}, "T1 T1 I1c I0"},
		"prepare, failed":  {[]step{{"begin", "BEGIN", 'T'}, {"", "failed", 0}, {"", "", 'E'}}, "T1 E1 E1"},
		"savepoint":        {[]step{{"begin", "BEGIN", 'T'}, {"rollback to a", "ROLLBACK", 'T'}, {"prepare transaction 'x'", "PREPARE TRANSACTION", 'I'}}, "T1 T1 I1"},
	} {
		tx, numbers := transaction{status: 'I'}, 0
		number := func() int { numbers++; return numbers }
		var got []string
		for _, s := range c.steps {
			u := &unit{failed: s.tag == "failed"}
			if s.sql != "" {
				x := execution{statement: newStatement(s.sql, false), done: s.tag != "", tag: s.tag}
				if s.tag == "" {
					x.code, u.failed = "XX000", true
				}
				u.executions = []execution{x}
			}
			tx.join(u, number)
			n := tx.number
			text := fmt.Sprintf("%d", n)
			if tx.leave(u, s.ready, number) {
				text += "c"
			}
			got = append(got, string(tx.status)+text)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
