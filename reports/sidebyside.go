package reports

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/overbook/overbook/harness"
)

// sided splits the name of a measurement that is one of several to be set side
// by side: "refunds@release" is the row refunds in the column release.
func sided(name string) (row, column string, is bool) {
	i := strings.LastIndex(name, "@")
	if i <= 0 || i == len(name)-1 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// sideBySide is the table of a scenario's measurements that stand side by side:
// a row for each name, a column for what stands behind its last @. A
// measurement that only one column has leaves the others empty. nil without any.
func sideBySide(r harness.Result) *tableView {
	columns := map[string]bool{}
	rows := map[string]map[string]string{}
	for name, v := range r.Measurements {
		row, column, is := sided(name)
		if !is {
			continue
		}
		columns[column] = true
		if rows[row] == nil {
			rows[row] = map[string]string{}
		}
		rows[row][column] = strconv.FormatFloat(v, 'f', -1, 64)
	}
	if len(rows) == 0 {
		return nil
	}
	t := &tableView{Head: append([]string{"measured"}, slices.Sorted(maps.Keys(columns))...)}
	t.Numeric = append(make([]bool, 1), slices.Repeat([]bool{true}, len(columns))...)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		cells := []string{row}
		for _, column := range t.Head[1:] {
			cells = append(cells, rows[row][column])
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// writeSideBySide writes that table for a terminal, its numbers under each other.
func writeSideBySide(b *strings.Builder, r harness.Result) {
	t := sideBySide(r)
	if t == nil {
		return
	}
	lines := append([][]string{t.Head}, t.Rows...)
	widths := make([]int, len(t.Head))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(oneLine(cell)))
		}
	}
	for _, line := range lines {
		fmt.Fprintf(b, "    %-*s", widths[0], oneLine(line[0]))
		for i, cell := range line[1:] {
			fmt.Fprintf(b, "  %*s", widths[i+1], oneLine(cell))
		}
		b.WriteString("\n")
	}
}

// mdSideBySide writes that table, with the scenario's name above it.
func mdSideBySide(b *strings.Builder, r harness.Result) {
	t := sideBySide(r)
	if t == nil {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n|", mdText(r.Name))
	for _, head := range t.Head {
		fmt.Fprintf(b, " %s |", mdText(head))
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(t.Head)-1) + "\n")
	for _, row := range t.Rows {
		b.WriteString("|")
		for _, cell := range row {
			fmt.Fprintf(b, " %s |", mdText(cell))
		}
		b.WriteString("\n")
	}
}
