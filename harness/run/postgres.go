package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/wire/postgres"
)

// startPostgresWire stands between the servers and their database.
func (s *session) startPostgresWire(ctx context.Context, servers []string) error {
	if !s.topology.PostgresWire {
		return nil
	}
	wire, err := pgwire.Start(ctx, pgwire.Config{
		Clock: s.rec.clock, Target: s.database, Servers: servers, Kill: s.kill, Stop: s.stop,
		OnStrike: func(f harness.Fault, strike harness.Strike) {
			s.rec.event(harness.Event{At: strike.At, Kind: harness.EventFault, Subject: strike.Server, Text: f.String() + ": " + strike.What})
		},
		OnHeal: func(f harness.Fault) {
			s.rec.event(harness.Event{Kind: harness.EventHeal, Subject: "postgres", Text: f.String()})
		},
	})
	if err != nil {
		return fmt.Errorf("stand on the wire to Postgres: %w", err)
	}
	s.pgwire = wire
	s.undo = append(s.undo, func(context.Context) error { return wire.Close() })
	return nil
}

// databaseURL is where a replica finds its database.
func (s *session) databaseURL(replica string) string {
	if s.pgwire != nil {
		return s.pgwire.URL(replica)
	}
	return s.database
}

// wire gives the Postgres wire; asking for one that the topology does not have
// is a mistake in the scenario.
func (s *session) wire() *pgwire.Wire {
	if s.pgwire == nil {
		panic(fmt.Sprintf("scenario %s asks for the Postgres wire, which its topology does not have", s.scenario.Name))
	}
	return s.pgwire
}

func (e *env) Postgres() harness.PostgresWire { return e.s.wire() }

// units gives what went over the Postgres wire, each unit with its operation
// where that is certain; nil without the wire. A record that is not whole is trouble.
func (s *session) units() []harness.Unit {
	if s.pgwire == nil {
		return nil
	}
	if err := s.pgwire.Err(); err != nil {
		s.rec.troubled(harness.ReasonEnvironment, "the record of the Postgres wire is not whole: %v", err)
	}
	units := slices.Clone(s.pgwire.Units())
	attribute(units, s.rec.operationIDs())
	return append([]harness.Unit{}, units...)
}

// attribute gives units their operation. It is certain where a statement of
// the transaction carries the operation's id as a parameter, as servers do that
// store X-Overbook-Op with what they write.
func attribute(units []harness.Unit, ids map[string]bool) {
	ofTx := map[int]string{}
	for _, u := range units {
		for _, s := range u.Statements {
			if i := slices.IndexFunc(s.Params, func(p string) bool { return ids[p] }); i >= 0 && ofTx[u.Tx] == "" {
				ofTx[u.Tx] = s.Params[i]
			}
		}
	}
	for i, u := range units {
		if u.Tx != 0 {
			units[i].Op = ofTx[u.Tx]
		}
	}
}
