package httpapi

import (
	"net/http"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// ServeHealth adds GET /healthz.
func ServeHealth(mux *http.ServeMux, replica string) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok", "replica": replica})
	})
}

// ServeClock adds GET and POST /testing/clock, by which a test moves server
// time. For test mode only.
func ServeClock(mux *http.ServeMux, c *clock.Clock) {
	mux.HandleFunc("GET /testing/clock", func(w http.ResponseWriter, _ *http.Request) { writeClock(w, c) })
	mux.HandleFunc("POST /testing/clock", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			OffsetMS  *int64     `json:"offset_ms"`
			StoppedAt *time.Time `json:"stopped_at"` // absent or null: it runs
		}
		err := ReadJSON(r, &in)
		if err == nil && in.OffsetMS == nil {
			err = BadRequest.With("\"offset_ms\" is missing").Err()
		}
		if p, ok := ProblemOf(err); ok {
			WriteProblem(w, p)
			return
		}
		if offset := time.Duration(*in.OffsetMS) * time.Millisecond; in.StoppedAt != nil {
			c.Stop(*in.StoppedAt, offset)
		} else {
			c.Set(offset)
		}
		writeClock(w, c)
	})
}

func writeClock(w http.ResponseWriter, c *clock.Clock) {
	told := map[string]any{"offset_ms": c.Offset().Milliseconds(), "now": c.Now().Format(time.RFC3339Nano)}
	if at := c.StoppedAt(); !at.IsZero() {
		told["stopped_at"] = at.UTC().Format(time.RFC3339Nano)
	}
	WriteJSON(w, http.StatusOK, told)
}
