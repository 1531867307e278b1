// Package cli is the command line. It is the only package that prints, reads
// signals, or knows exit codes.
//
// The contract with people and machines:
//
//   - Standard output is the result; standard error is progress and errors.
//     --json changes standard output alone, into one document.
//   - Errors are "error: what, where, why" and, where we know, "hint: what to
//     do next"; lower case, no full stop.
//   - On a terminal there is one status line; elsewhere a line every ten
//     seconds. No ANSI sequence ever reaches a file, and NO_COLOR is honoured.
//   - The last line of a run, alone, is the count: "12 passed, 1 failed, 0 skipped".
//   - The first Ctrl-C heals, collects and judges what there is; the second kills.
//
// It must not judge anything itself.
package cli
