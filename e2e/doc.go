// Package e2e tests the built program as its users meet it: its commands, what
// it writes where, its exit codes, what it says when the machine is not as it
// should be, and that nothing of it is left running afterwards.
//
// Runs that have to be struck at an exact moment are conducted through package
// run. Otherwise it uses the program's packages only to read what it wrote; it
// must not change how the program works.
package e2e
