package database

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestWhatPasses(t *testing.T) {
	for code, want := range map[string]bool{
		"55P03": true, "57014": true, "53300": true, "57P01": true, "57P03": true, "08006": true, "40001": true, "40P01": true, "25006": true, "25P03": true, "53100": true,
		"23505": false, "42P01": false, "22P02": false, "XX000": false, "": false,
	} {
		if got := Passing(fmt.Errorf("in some statement: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("Passing(%s) = %v", code, got)
		}
	}
	if !Passing(context.DeadlineExceeded) {
		t.Error("a deadline passes")
	}
}

func TestWhatACommitLeavesOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool // it is certain that nothing was stored
	}{
		"serialization failure":       {&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "40001"}, true},
		"deferred constraint":         {&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "23505"}, true},
		"session ended":               {&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}, false},
		"completion not known":        {&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "40003"}, false},
		"resolution not known":        {&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "08007"}, false},
		"nothing but a closed socket": {errors.New("unexpected EOF"), false},
	} {
		if got := rolledBack(tt.err); got != tt.want {
			t.Errorf("%s: rolledBack = %v", name, got)
		}
	}
	if worthRepeating(errors.Join(ErrOutcomeUnknown, &pgconn.PgError{Code: "40001"})) {
		t.Error("a commit of unknown outcome would be run again")
	}
}
