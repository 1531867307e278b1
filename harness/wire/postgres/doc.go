// Package pgwire owns the Postgres wire: a protocol proxy between the servers
// under test and a real Postgres, which knows where statements and
// transactions begin and end, records them, and can hold, fail or lose them
// at named moments.
package pgwire
