package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A pointRow is one crash point as a reader asks for it: where, what was done,
// was it there before the retry, what did the client and its retry get.
type pointRow struct {
	Number, Of int
	Request    string // "booking"
	Action     string // "kill"
	At         string // "after COMMIT"
	There      string // "yes" or "no"
	First      string // "no answer", "503"
	Retry      string // "201"
}

// pointRows reads the crash points of a record, by request and number.
func pointRows(rec harness.Record) []pointRow {
	var rows []pointRow
	for _, e := range rec.History.Events {
		if e.Kind != harness.EventPoint {
			continue
		}
		a := e.Attrs
		number, _ := strconv.Atoi(a["number"]) // what is no number is shown as 0
		of, _ := strconv.Atoi(a["of"])
		there := "no"
		if a["done"] == "true" {
			there = "yes"
		}
		rows = append(rows, pointRow{
			Number: number, Of: of, Request: oneLine(e.Subject), Action: oneLine(a["action"]), At: oneLine(a["label"]),
			There: there, First: oneLine(a["first"]), Retry: oneLine(a["retry"]),
		})
	}
	slices.SortStableFunc(rows, func(a, b pointRow) int {
		return cmp.Or(strings.Compare(a.Request, b.Request), a.Number-b.Number)
	})
	return rows
}

// pointLines is the table of crash points under a scenario, or nothing.
func pointLines(rec harness.Record) []string {
	rows := pointRows(rec)
	if len(rows) == 0 {
		return nil
	}
	tried := map[string]int{}
	var requests []string
	for _, r := range rows {
		if tried[r.Request] == 0 {
			requests = append(requests, r.Request)
		}
		tried[r.Request]++
	}
	var lines []string
	for _, name := range requests {
		i := slices.IndexFunc(rows, func(r pointRow) bool { return r.Request == name })
		lines = append(lines, fmt.Sprintf("crash points of a %s: %d of %d", name, tried[name], rows[i].Of),
			fmt.Sprintf("  %3s  %-5s %-5s %-9s %-5s  %s", "", "fault", "there", "first", "retry", "at"))
		for _, r := range rows {
			if r.Request == name {
				lines = append(lines, fmt.Sprintf("  %3d  %-5s %-5s %-9s %-5s  %s", r.Number, r.Action, r.There, r.First, r.Retry, shortened(r.At, 90)))
			}
		}
	}
	return lines
}
