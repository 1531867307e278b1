package tickets

import (
	"context"
	"sync"
	"testing"
)

// databases are used by one shop after another: making one takes longer than
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
		url = cluster.Template(lasting{t}, "tickets", func(url string) error {
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

// beginning empties a database, past the triggers that refuse to.
const beginning = `
set session_replication_role = replica;
truncate shows, seats, holds, charges, refunds, provider_events, ticket_audit, outbox, notices restart identity cascade;
set session_replication_role = default`
