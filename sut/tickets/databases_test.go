package tickets

import (
	"context"

	"github.com/overbook/overbook/sut/internal/pgtest"
)

// databases are used by one shop after another.
var databases = pgtest.Shelf{
	Cluster: func() *pgtest.Cluster { return cluster }, Name: "tickets",
	Prepare: func(url string) error {
		_, err := Migrate(context.Background(), url)
		return err
	},
}

// beginning empties a database, past the triggers that refuse to.
const beginning = `
set session_replication_role = replica;
truncate shows, seats, holds, charges, refunds, provider_events, ticket_audit, outbox, notices restart identity cascade;
set session_replication_role = default`
