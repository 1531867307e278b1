package double

import (
	"fmt"
	"maps"
)

// Stats are what a double counted, by "METHOD /path". Calls to control paths
// are not in it. Not safe for concurrent use: the double's lock guards it.
type Stats struct {
	Calls       map[string]int `json:"calls"`         // that arrived
	MaxInFlight map[string]int `json:"max_in_flight"` // at the same time
	Decisions   map[string]int `json:"decisions"`     // by "METHOD /path status word"

	inFlight map[string]int
}

// NewStats gives stats that have counted nothing.
func NewStats() Stats {
	return Stats{Calls: map[string]int{}, MaxInFlight: map[string]int{}, Decisions: map[string]int{}, inFlight: map[string]int{}}
}

// Arrive counts a call that came, and says the how-manieth of its endpoint it
// is, from 1. Each Arrive is followed by one Leave.
func (s *Stats) Arrive(endpoint string) int {
	s.Calls[endpoint]++
	s.inFlight[endpoint]++
	s.MaxInFlight[endpoint] = max(s.MaxInFlight[endpoint], s.inFlight[endpoint])
	return s.Calls[endpoint]
}

// Leave notes that a call is over.
func (s *Stats) Leave(endpoint string) { s.inFlight[endpoint]-- }

// Decided counts a decision, by its status and its word.
func (s *Stats) Decided(endpoint string, status int, word string) {
	s.Decisions[fmt.Sprintf("%s %d %s", endpoint, status, word)]++
}

// Clone gives stats that later calls don't change.
func (s *Stats) Clone() Stats {
	return Stats{maps.Clone(s.Calls), maps.Clone(s.MaxInFlight), maps.Clone(s.Decisions), maps.Clone(s.inFlight)}
}
