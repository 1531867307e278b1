package pgtest

import (
	"sync"
	"testing"
)

// A Shelf keeps databases that are used by one test after another: making one
// takes longer than most tests. Whoever takes one finds what the last user
// left, and empties it. Drop it with the cluster.
type Shelf struct {
	Cluster func() *Cluster        // asked when the first database is made
	Name    string                 // of the template
	Prepare func(url string) error // makes the template's schema

	mu   sync.Mutex
	free []string
	ends []func()
}

// A lasting test's database goes away with the shelf.
type lasting struct {
	testing.TB
	shelf *Shelf
}

func (l lasting) Cleanup(f func()) { l.shelf.ends = append(l.shelf.ends, f) }

// Take gives a database with the schema, until the test ends.
func (s *Shelf) Take(tb testing.TB) (url string) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		url, s.free = s.free[n-1], s.free[:n-1]
	} else {
		url = s.Cluster().Template(lasting{tb, s}, s.Name, s.Prepare)
	}
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, url)
	})
	return url
}

// Drop drops all databases. No test may be running.
func (s *Shelf) Drop() {
	for _, end := range s.ends {
		end()
	}
}
