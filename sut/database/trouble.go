package database

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrOutcomeUnknown is a COMMIT of which nobody can say what became of it.
	ErrOutcomeUnknown = errors.New("the outcome of the commit is not known")

	// ErrAgain has the whole transaction run again, as a deadlock does. It is
	// what a transaction gives that finds what it has read changed.
	ErrAgain = errors.New("what was read has changed since")
)

// rolledBack reports an error after which nothing of a transaction is left: one
// that did not end the session, unless its code says that it does not know.
func rolledBack(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" && pg.Code != "40003" && !strings.HasPrefix(pg.Code, "08")
}

func worthRepeating(err error) bool {
	if err == nil || errors.Is(err, ErrOutcomeUnknown) {
		return false
	}
	if errors.Is(err, ErrAgain) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01") // serialization failure, deadlock
}

// Passing reports trouble with the database that time may cure: a lock or
// statement that took too long, no free connection, a server that is full,
// stopping, starting or no longer the one that may write. An error that is not
// Postgres speaking is such trouble, too; take out your own before you ask.
func Passing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // not Postgres speaking: a network, a deadline, a pool
	}
	switch pg.Code {
	case "55P03", "25006", "25P03", "25P04":
		return true
	}
	return slices.Contains([]string{"08", "40", "53", "57", "58"}, pg.Code[:min(2, len(pg.Code))])
}
