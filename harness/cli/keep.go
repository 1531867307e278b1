package cli

import "github.com/overbook/overbook/harness"

// Bounds of what is kept in memory for the report on all runs. The report of
// each run is written from its record at once, and the others' records can be
// read again from their directories.
const (
	keepRecords    = 40      // that pass
	keepOperations = 200_000 // of all records, where there is more than one: a large load has 40,000
)

// keep keeps the record of a run, if there is room for it.
func (c *campaign) keep(result harness.Result, record harness.Record) {
	n := len(record.History.Operations)
	switch {
	case len(c.records) > 0 && c.kept+n > keepOperations:
	case result.Verdict != harness.Pass || len(c.records) < keepRecords:
		c.records[result.RunDir] = record
		c.kept += n
	}
}
