// Package doctor owns the questions about the machine: is what Overbook needs
// here, does it work, and how is it got. Every check has its fix.
//
// It asks harness/provision for what that would use, so that the answer is
// about the same binaries. It must not print, and must change nothing outside
// a check's Fix.
package doctor
