package reports

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTabular(t *testing.T) {
	for _, c := range []struct {
		name, text string
		head       []string
		rows       [][]string
		note       string
	}{
		{
			name: "cells that do not line up", text: "seat   students      winners\nA-001  {a b,student}  2\n",
		},
		{
			name: "aligned", text: "seat   students       winners\nA-001  {a b,student}  2\nA-002                 13\nand 4 rows more",
			head: []string{"seat", "students", "winners"}, rows: [][]string{{"A-001", "{a b,student}", "2"}, {"A-002", "", "13"}}, note: "and 4 rows more",
		},
		{name: "short last cells", text: "a  b  c\n1\n22 3", rows: nil},
		{name: "one line", text: "seat  students"},
		{name: "a sentence", text: "POST /reserve for A-001: 100, at most 1\n  call 1 by sut-1"},
		{name: "one column", text: "seat\nA-001"},
		{name: "indented", text: "  a  b\n  1  2"},
		{name: "nothing", text: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tabular(c.text)
			if c.head == nil {
				if got != nil {
					t.Fatalf("read as a table: %+v", got)
				}
				return
			}
			if got == nil {
				t.Fatal("not read as a table")
			}
			if diff := cmp.Diff(c.rows, got.Rows); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.head, got.Head); diff != "" {
				t.Error(diff)
			}
			if got.Note != c.note {
				t.Errorf("note %q, want %q", got.Note, c.note)
			}
		})
	}
}

func TestCellText(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "null"},
		{"A-001", "A-001"},
		{float64(6139023), "6139023"},
		{float64(8659010), "8659010"},
		{2.5, "2.5"},
		{int64(6139023), "6139023"},
		{map[string]any{"slot_id": float64(6139023), "state": "active"}, `{"slot_id":6139023,"state":"active"}`},
		{[]any{"op-1", float64(2)}, `["op-1",2]`},
	} {
		if got := cellText(c.value); got != c.want {
			t.Errorf("%v is shown as %q, want %q", c.value, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{span(84 * time.Microsecond), "84 us"},
		{span(9871 * time.Microsecond), "9.871 ms"},
		{span(412300 * time.Microsecond), "412.3 ms"},
		{span(1503 * time.Millisecond), "1.50 s"},
		{millis(0.084), "84 us"},
		{offset(1204 * time.Microsecond), "+1.204 ms"},
		{offset(-3 * time.Microsecond), "-0.003 ms"},
		{micros(1203221 * time.Microsecond), "1\u202f203\u202f221"},
		{micros(-42 * time.Microsecond), "−42"},
		{tickSpan(1500 * time.Microsecond), "1.5 ms"},
		{printable("a\x1b[31mb\r\nc\xff\u202e"), `a\x1b[31mb` + "\n" + `c\xff\u202e`},
		{xmlText("a\x00b\uFFFEc\xffd"), "abc\uFFFDd"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestRankIsExact(t *testing.T) {
	for _, c := range []struct {
		p    float64
		n    int
		want int
	}{{0.5, 1, 0}, {0.5, 100, 49}, {0.95, 100, 94}, {0.99, 100, 98}, {0.95, 20, 18}, {0.95, 3, 2}, {0.5, 4, 1}} {
		if got := rank(c.p, c.n); got != c.want {
			t.Errorf("rank(%v, %d) = %d, want %d", c.p, c.n, got, c.want)
		}
	}
}
