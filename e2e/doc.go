// Package e2e tests the built program as its users meet it: its commands, what
// it writes where, its exit codes, what it says when the machine is not as it
// should be, and that nothing of it is left running afterwards.
//
// It must not reach into the program's packages to change how it works; it
// may only use them to read what the program wrote.
package e2e
