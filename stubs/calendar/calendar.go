package calendar

import (
	"net/http"
	"sync"

	"github.com/overbook/overbook/stubs/double"
)

// New gives a provider whose calendars are empty.
func New(uint64) http.Handler {
	var mu sync.Mutex
	stats := double.NewStats()
	mux := http.NewServeMux()
	double.Control(mux, double.Controls[Config]{
		Name: Name, Lock: &mu, Stats: &stats,
		Change: func(Config) error { return nil },
		Config: func() Config { return Config{} },
		Ledger: func() any { return Ledger{} },
	})
	return mux
}
