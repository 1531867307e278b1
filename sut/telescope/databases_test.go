package telescope

import (
	"context"

	"github.com/overbook/overbook/sut/internal/pgtest"
)

// databases are used by one test after another.
var databases = pgtest.Shelf{
	Cluster: func() *pgtest.Cluster { return cluster }, Name: "observatory",
	Prepare: func(url string) error {
		_, err := Migrate(context.Background(), url)
		return err
	},
}

// beginning empties a database, past the triggers that refuse to, and makes
// the slots.
const beginning = `
set session_replication_role = replica;
truncate observing_slots, active_reservations, member_quotas, booking_operations, audit_history, outbox, email_deliveries, slot_schedule,
  schedule_refreshes restart identity cascade;
set session_replication_role = default;
with s as (
  insert into observing_slots (slot_id, starts_at, state, version, updated_at)
  select i, '2026-12-10T08:00:00Z'::timestamptz + i * interval '30 minutes', 'open', 1, '2026-11-01T00:00:00Z' from generate_series(1, 40) i
  returning slot_id, updated_at
), a as (
  insert into audit_history (slot_id, seq, event, actor, at) select slot_id, 1, 'CREATED', 'staff-0', updated_at from s
)
insert into outbox (slot_id, seq, type, payload, created_at, delivered_at) select slot_id, 1, 'telescope.created', '{}', updated_at, updated_at from s`
