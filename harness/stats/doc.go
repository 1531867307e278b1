// Package stats owns the arithmetic of measurements: exact percentiles of raw
// samples, histograms of long runs, and intervals that say how far a figure
// can be trusted.
//
// It must not measure anything: it reads no clock, and every random draw comes
// from a generator that the caller seeded. Percentiles are never averaged;
// histograms are merged instead.
package stats
