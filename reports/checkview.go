package reports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A checkView is one check in the page.
type checkView struct {
	ID           string // anchor
	Verdict      markView
	Check        string
	Summary      string
	Reason       string
	Advice       string
	Evidence     []evidenceView
	More         string
	First        string // of which piece of evidence operations and interleaving are
	Operations   *tableView
	Interleaving []string
	Rule         string
	SQL          string
	Open         bool
}

// An evidenceView is a table where the text is one, else the text.
type evidenceView struct {
	Text  string
	Table *tableView
	Ops   string
}

func checkOf(id string, v harness.Verdict, rec harness.Record, have bool) checkView {
	status := checked(v)
	c := checkView{ID: id, Verdict: markOf(status), Check: v.ID, Summary: v.Summary, Rule: v.Rule}
	if rows, ok := rec.Rows[v.ID]; ok {
		c.SQL = strings.TrimSpace(rows.SQL)
	}
	if status == harness.Pass {
		return c
	}
	c.Open = true
	if status == harness.Unknown {
		c.Reason, c.Advice = cmp.Or(string(v.Reason), "no reason given"), adviceFor(v.Reason)
	}
	broken := rowsTable(rec, v.ID)
	for i, e := range v.Evidence {
		if i == evidenceShown {
			c.More = fmt.Sprintf("%d more pieces of evidence are in the run directory.", len(v.Evidence)-i)
			break
		}
		c.Evidence = append(c.Evidence, evidenceOf(e, &broken))
	}
	if broken != nil {
		c.Evidence = append(c.Evidence, evidenceView{Table: broken})
	}
	if ids, of := shownOps(v, rec); len(ids) > 0 || status == harness.Failed {
		if of > 1 {
			c.First = fmt.Sprintf("The first of %d crash points in the evidence:", of)
		}
		c.Operations = operationTable(rec, ids)
		c.Interleaving = interleavingLines(rec, have, ids)
	}
	return c
}

// evidenceOf shows a piece of evidence. A table printed as text is replaced by
// the stored rows it was printed from, where the record has them.
func evidenceOf(e harness.Evidence, broken **tableView) evidenceView {
	view := evidenceView{Ops: strings.Join(capped(once(e.Ops), evidenceShown), ", ")}
	if t := tabular(e.Text); t != nil {
		view.Table = t
		if *broken != nil {
			view.Table, *broken = *broken, nil
		}
		return view
	}
	view.Text = shortened(printable(strings.TrimRight(e.Text, "\n")), evidenceTextRunes)
	return view
}

// rowsTable is the rows that the check's own query found, or nil.
func rowsTable(rec harness.Record, check string) *tableView {
	rows, ok := rec.Find(check)
	if !ok || len(rows.Rows) == 0 {
		return nil
	}
	t := &tableView{Caption: fmt.Sprintf("Rows that broke the rule: %d", len(rows.Rows)), Head: rowColumns(rows.Rows)}
	for i, row := range rows.Rows {
		if i == tableRows {
			t.Note = fmt.Sprintf("%d more rows are in the run directory", len(rows.Rows)-i)
			break
		}
		cells := make([]string, len(t.Head))
		for j, name := range t.Head {
			cells[j] = cellText(row[name])
		}
		t.Rows = append(t.Rows, cells)
	}
	t.Numeric = numericColumns(t.Rows, len(t.Head))
	return t
}

// opsColumn is the column in which a query names the operations that its row
// is about: they are shown as operations, not as a cell.
const opsColumn = "ops"

// rowColumns is the columns of rows by name, without the one of the operations.
func rowColumns(rows []harness.Row) []string {
	columns := slices.Sorted(maps.Keys(rows[0]))
	return slices.DeleteFunc(columns, func(name string) bool { return name == opsColumn })
}

// cellText is a stored value as its query gave it: an id stays a whole number,
// although JSON knows only floats, and a document stays JSON.
func cellText(v any) string {
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case nil:
		return "null"
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case map[string]any, []any:
		if doc, err := json.Marshal(v); err == nil {
			text = string(doc)
		}
	}
	return shortened(printable(text), 200)
}

// operationTable is the operations that the evidence names, or nil.
func operationTable(rec harness.Record, ids []string) *tableView {
	from := originOf(ids, rec)
	t := &tableView{
		Caption: operationsCaption(rec, from),
		Head:    []string{"op", "client", "call", "answer", "outcome", "sent", "answered"},
		Numeric: []bool{false, true, false, false, false, true, true},
	}
	released := releases(rec)
	found, among := 0, setOf(ids)
	for _, op := range rec.History.Operations {
		if !among[op.ID] {
			continue
		}
		if found++; found > operationsShown {
			continue
		}
		zero := zeroOf(op, released, from)
		sent, answered := "not sent", "no whole answer"
		if op.Sent != 0 {
			sent = micros(op.Sent - zero)
		}
		if op.Answered != 0 {
			answered = micros(op.Answered - zero)
		}
		t.Rows = append(t.Rows, []string{
			op.ID, fmt.Sprint(op.Process), strings.TrimSpace(op.Method + " " + op.Path + inputText(op)),
			answerText(op), op.Outcome.String(), sent, answered,
		})
	}
	if found > operationsShown {
		t.Note = fmt.Sprintf("%d more operations are in the run directory", found-operationsShown)
	}
	if found == 0 {
		return nil
	}
	return t
}

func operationsCaption(rec harness.Record, from origin) string {
	if len(rec.History.Bursts) > 0 {
		return "Operations, in µs since the release of their burst"
	}
	return fmt.Sprintf("Operations, in µs since %s at %s of the run", cmp.Or(from.what, "the start"), offset(from.at))
}

// answerText is the status and the body, on one line.
func answerText(op harness.Operation) string {
	text := "none"
	if op.Status != 0 {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", op.Status, shortened(oneLine(op.Output), 120)))
	}
	if op.Err != "" {
		text += " (" + shortened(oneLine(op.Err), 120) + ")"
	}
	return text
}

// tabular reads text that is a table of aligned columns (two or more spaces
// between them, names on the first line), or gives nil.
func tabular(text string) *tableView {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	note := ""
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "and ") && strings.HasSuffix(last, " more") {
		note, lines = last, lines[:len(lines)-1]
	}
	if len(lines) < 2 {
		return nil
	}
	starts := columnStarts(lines[0])
	if len(starts) < 2 {
		return nil
	}
	t := &tableView{Note: note}
	for n, line := range lines {
		cells, ok := cut([]rune(line), starts)
		if !ok {
			return nil
		}
		if n == 0 {
			t.Head = cells
			continue
		}
		t.Rows = append(t.Rows, cells)
	}
	t.Numeric = numericColumns(t.Rows, len(t.Head))
	return t
}

// columnStarts finds where the names of a head line begin; nil when the line
// is not names alone.
func columnStarts(head string) []int {
	var starts []int
	runes := []rune(head)
	for i, r := range runes {
		if r == ' ' {
			continue
		}
		switch {
		case i == 0 || i >= 2 && runes[i-1] == ' ' && runes[i-2] == ' ':
			starts = append(starts, i)
		case runes[i-1] == ' ':
			return nil // one space: a sentence, or a column that touches the next
		}
	}
	if len(starts) > 0 && starts[0] != 0 {
		return nil
	}
	return starts
}

// cut slices a line at the columns; false when it does not fit into them.
func cut(line []rune, starts []int) ([]string, bool) {
	cells := make([]string, len(starts))
	for i, from := range starts {
		to := len(line)
		if i+1 < len(starts) {
			to = min(to, starts[i+1])
		}
		if from > len(line) {
			continue
		}
		if i > 0 && len(line) >= from && strings.TrimSpace(string(line[from-2:from])) != "" {
			return nil, false
		}
		cells[i] = strings.TrimSpace(string(line[from:to]))
	}
	return cells, true
}

// numericColumns says which columns hold numbers alone.
func numericColumns(rows [][]string, columns int) []bool {
	numeric := make([]bool, columns)
	for c := range numeric {
		numeric[c] = len(rows) > 0
		for _, r := range rows {
			if r[c] == "" || strings.Trim(r[c], "-+.0123456789") != "" {
				numeric[c] = false
			}
		}
	}
	return numeric
}
