package check

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// evidenceRows bounds how many violating rows are printed; the rest stay in
// rows.jsonl of the run directory.
const evidenceRows = 10

// evidenceOps bounds the operations that are shown for a violated query; two
// are a race, a few more show its width.
const evidenceOps = 4

// SQL makes a check of the query in the file: it holds when the query returns
// no row. The first line of the file is a comment; it is the sentence printed
// when the invariant is violated. A file without it is a programming error
// and panics, as the files are embedded.
//
// where is the folder of the files in the repository, for the reader.
func SQL(id string, files fs.FS, name, where string) harness.Check {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(fmt.Sprintf("invariant %s: %v", id, err))
	}
	first, query, _ := strings.Cut(string(text), "\n")
	sentence, ok := strings.CutPrefix(first, "-- ")
	if !ok || strings.TrimSpace(sentence) == "" || strings.TrimSpace(query) == "" {
		panic(fmt.Sprintf("invariant %s: %s must start with a comment line that says the rule, then the query", id, name))
	}
	return harness.Check{
		ID: id, Doc: sentence, Rule: path.Join(where, name), SQL: string(text), NeedsSettled: true,
		Judge: func(rec harness.Record) harness.Verdict { return noRows(id, sentence, string(text), rec) },
	}
}

// Instant is for an invariant that every committed state keeps, not only the
// last one: it is judged in a run that did not settle, too. A violation is one
// whatever came after it.
func Instant(c harness.Check) harness.Check {
	c.NeedsSettled = false
	return c
}

func noRows(id, sentence, sql string, rec harness.Record) harness.Verdict {
	rows, ok := rec.Find(id)
	if !ok {
		why := rec.Rows[id].Error
		if why == "" {
			why = "it was not asked"
		}
		return harness.Undecided(harness.ReasonEnvironment, "the query could not be answered: %s", why)
	}
	if rows.SQL != sql {
		return harness.Undecided(harness.ReasonAssumption, "the stored rows answer another version of the query; run the scenario again")
	}
	if len(rows.Rows) == 0 {
		return harness.Passed("%s", sentence)
	}
	plain, ops := takeOps(rows.Rows)
	evidence := []harness.Evidence{{Text: Table(plain, evidenceRows), Ops: ops}}
	return harness.Violated(evidence, "violated by %s: %s", plural(len(rows.Rows), "row"), sentence)
}

// opsColumn is the column in which a query may name the operations that its
// row is about, as a list with commas: reports then show them and the order in
// which the wires saw them.
const opsColumn = "ops"

// takeOps separates the operations that the printed rows name from the rows.
func takeOps(rows []harness.Row) (plain []harness.Row, ops []string) {
	for i, r := range rows {
		list, _ := r[opsColumn].(string)
		for op := range strings.SplitSeq(list, ",") {
			if op = strings.TrimSpace(op); op != "" && i < evidenceRows && len(ops) < evidenceOps {
				ops = append(ops, op)
			}
		}
		r = maps.Clone(r)
		delete(r, opsColumn)
		plain = append(plain, r)
	}
	return plain, ops
}

// Table prints rows as aligned columns in the order of their names, at most
// limit of them.
func Table(rows []harness.Row, limit int) string {
	if len(rows) == 0 {
		return ""
	}
	names := map[string]bool{}
	for _, r := range rows {
		for c := range r {
			names[c] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	lines := [][]string{columns}
	for _, r := range rows[:min(limit, len(rows))] {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(r[c])
		}
		lines = append(lines, cells)
	}
	widths := make([]int, len(columns))
	for _, l := range lines {
		for i, c := range l {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		for i, c := range l {
			if i < len(l)-1 {
				c = fmt.Sprintf("%-*s  ", widths[i], c)
			}
			b.WriteString(c)
		}
		b.WriteByte('\n')
	}
	if left := len(rows) - limit; left > 0 {
		fmt.Fprintf(&b, "and %s more\n", plural(left, "row"))
	}
	return strings.TrimRight(b.String(), "\n")
}

// cell prints one value on one line, cut at 80 characters: numbers whole,
// documents as JSON.
func cell(v any) string {
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case map[string]any, []any, harness.Row:
		if doc, err := json.Marshal(v); err == nil {
			text = string(doc)
		}
	}
	s := strings.Join(strings.Fields(text), " ")
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}
