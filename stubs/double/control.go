package double

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A Validator is a change of configuration that knows what is wrong with it.
type Validator interface{ Validate() error }

// ReadConfig reads and validates a change: one JSON object, no unknown fields,
// nothing after it, at most 4 MiB.
func ReadConfig[C Validator](r io.Reader) (C, error) {
	var c, none C
	text, err := io.ReadAll(io.LimitReader(r, configLimit+1))
	if err != nil {
		return none, err
	}
	if len(text) > configLimit {
		return none, fmt.Errorf("the configuration has more than %d bytes", configLimit)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return none, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return none, errors.New("there is something after the JSON object")
	}
	if err := c.Validate(); err != nil {
		return none, err
	}
	return c, nil
}

// Controls are what the control paths do. All functions are called with the
// lock held, and must not wait; what they give must not change later.
type Controls[C Validator] struct {
	Name   string        // of the double, for errors
	Lock   sync.Locker   // guards the double and its stats
	Change func(C) error // does all of a valid change, or nothing
	Config func() C      // in force
	Ledger func() any    // the rows, a list that is never nil
	Stats  *Stats
}

// Control registers the control paths:
//
//	POST /__double/config  merges a change, and gives the configuration in force;
//	                       400 {"error": "configure <name>: ..."} when nothing was changed
//	GET  /__double/config  the configuration in force
//	GET  /__double/ledger  the rows
//	GET  /__double/stats   [Stats]
func Control[C Validator](mux *http.ServeMux, c Controls[C]) {
	locked := func(give func() any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c.Lock.Lock()
			v := give()
			c.Lock.Unlock()
			WriteJSON(w, http.StatusOK, v)
		}
	}
	mux.HandleFunc("POST /__double/config", func(w http.ResponseWriter, r *http.Request) {
		now, err := c.configure(r.Body)
		if err != nil {
			WriteJSON(w, http.StatusBadRequest, map[string]string{"error": "configure " + c.Name + ": " + err.Error()})
			return
		}
		WriteJSON(w, http.StatusOK, now)
	})
	mux.HandleFunc("GET /__double/config", locked(func() any { return c.Config() }))
	mux.HandleFunc("GET /__double/ledger", locked(c.Ledger))
	mux.HandleFunc("GET /__double/stats", locked(func() any { return c.Stats.Clone() }))
}

// configure does a change and gives the configuration in force.
func (c Controls[C]) configure(r io.Reader) (C, error) {
	var none C
	change, err := ReadConfig[C](r)
	if err != nil {
		return none, err
	}
	c.Lock.Lock()
	defer c.Lock.Unlock()
	if err := c.Change(change); err != nil {
		return none, err
	}
	return c.Config(), nil
}
