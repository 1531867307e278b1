// Package cache keeps the answers of slow reads for a moment and lets one
// caller load what many ask for (single flight).
//
// Bounds it keeps, per key: loads begin at least one TTL after the end of the
// load before them, so in d there are at most ceil(d/TTL)+1; and nobody gets a
// value older than the TTL plus the time one load takes. Failures are told to
// those who waited for that load and to nobody else.
//
// What must not happen here: knowing what is cached, deciding a booking on it.
package cache

import (
	"context"
	"sync"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// A Cache holds values of one kind by key. Safe for concurrent use.
type Cache[V any] struct {
	clock *clock.Clock
	ttl   time.Duration
	limit int

	mu      sync.Mutex
	entries map[string]entry[V]
	flights map[string]*flight[V]
	loads   sync.WaitGroup
}

// A Value is a cached value and when its load began, in server time: what it
// says was true at some instant since.
type Value[V any] struct {
	V    V
	AsOf time.Time
}

type entry[V any] struct {
	value  Value[V]
	loaded time.Time // end of the load
}

type flight[V any] struct {
	done  chan struct{}
	value Value[V]
	err   error
}

// New gives a cache that keeps values for ttl of server time, at most limit
// of them. When it is full of live values, further keys are still loaded in
// single flight, but not kept.
func New[V any](c *clock.Clock, ttl time.Duration, limit int) *Cache[V] {
	return &Cache[V]{clock: c, ttl: ttl, limit: limit, entries: map[string]entry[V]{}, flights: map[string]*flight[V]{}}
}

// Get gives the value of the key, loading it when there is none fresh. A load
// goes on when the caller who began it leaves; it must bound itself. joined
// reports that somebody else's load gave the answer.
func (c *Cache[V]) Get(ctx context.Context, key string, load func(context.Context) (V, error)) (v Value[V], joined bool, err error) {
	c.mu.Lock()
	if e, ok := c.entries[key]; ok && c.fresh(e, c.clock.Now()) {
		c.mu.Unlock()
		return e.value, true, nil
	}
	f, joined := c.flights[key]
	if !joined {
		f = &flight[V]{done: make(chan struct{})}
		c.flights[key] = f
		c.loads.Go(func() { c.load(context.WithoutCancel(ctx), key, f, load) })
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.value, joined, f.err
	case <-ctx.Done():
		return Value[V]{}, joined, ctx.Err()
	}
}

func (c *Cache[V]) load(ctx context.Context, key string, f *flight[V], load func(context.Context) (V, error)) {
	f.value.AsOf = c.clock.Now()
	f.value.V, f.err = load(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.err == nil {
		c.keep(key, f.value)
	}
	delete(c.flights, key)
	close(f.done)
}

// keep stores a value; the caller holds the lock.
func (c *Cache[V]) keep(key string, v Value[V]) {
	now := c.clock.Now()
	if _, known := c.entries[key]; !known && len(c.entries) >= c.limit {
		for k, e := range c.entries {
			if !c.fresh(e, now) {
				delete(c.entries, k)
			}
		}
		if len(c.entries) >= c.limit {
			return
		}
	}
	c.entries[key] = entry[V]{value: v, loaded: now}
}

// fresh: a clock that was turned back makes everything stale, not fresh for longer.
func (c *Cache[V]) fresh(e entry[V], now time.Time) bool {
	age := now.Sub(e.loaded)
	return age >= 0 && age < c.ttl
}

// Close waits for the loads that are under way.
func (c *Cache[V]) Close() { c.loads.Wait() }
