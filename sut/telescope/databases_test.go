package telescope

import (
	"context"
	"sync"
	"testing"
)

// databases are used by one test after another: making one takes longer than
// most tests.
var databases shelf

type shelf struct {
	mu   sync.Mutex
	free []string
	ends []func()
}

// A lasting test's database goes away with the shelf.
type lasting struct{ testing.TB }

func (lasting) Cleanup(f func()) { databases.ends = append(databases.ends, f) }

func (s *shelf) drop() {
	for _, end := range s.ends {
		end()
	}
}

// take gives a database with the schema, until the test ends.
func (s *shelf) take(t *testing.T) (url string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		url, s.free = s.free[n-1], s.free[:n-1]
	} else {
		url = cluster.Template(lasting{t}, "observatory", func(url string) error {
			_, err := Migrate(context.Background(), url)
			return err
		})
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, url)
	})
	return url
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
