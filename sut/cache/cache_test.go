package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overbook/overbook/sut/cache"
	"github.com/overbook/overbook/sut/clock"
)

func TestManyReadersFewLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, took, lasts = 500 * time.Millisecond, 150 * time.Millisecond, 20 * time.Second
		c := clock.New(0)
		seats := cache.New[time.Time](c, ttl, 10)
		var loads atomic.Int64
		load := func(context.Context) (time.Time, error) {
			loads.Add(1)
			read := c.Now()
			time.Sleep(took)
			return read, nil
		}
		var readers sync.WaitGroup
		end := c.Now().Add(lasts)
		for range 200 {
			readers.Go(func() {
				for c.Now().Before(end) {
					v, _, err := seats.Get(t.Context(), "seats", load)
					if err != nil {
						t.Error(err)
						return
					}
					if age := c.Now().Sub(v.V); age > ttl+took {
						t.Errorf("a reader got a value %v old, want at most %v", age, ttl+took)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		readers.Wait()
		seats.Close()
		if most := int64(math.Ceil(float64(lasts)/float64(ttl))) + 1; loads.Load() > most || loads.Load() < 10 {
			t.Errorf("%d loads in %v with a TTL of %v, want at most %d and not next to none", loads.Load(), lasts, ttl, most)
		}
	})
}

func TestLeaverDoesNotSpoilTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seats := cache.New[int](clock.New(0), time.Second, 10)
		load := func(ctx context.Context) (int, error) {
			time.Sleep(time.Minute)
			return 7, ctx.Err()
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := seats.Get(impatient, "k", load); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the leaver got %v", err)
			}
		})
		synctest.Wait()
		v, joined, err := seats.Get(t.Context(), "k", load)
		if v.V != 7 || err != nil || !joined {
			t.Errorf("Get = %v, joined %v, %v; want 7 from the load that the leaver began", v.V, joined, err)
		}
		wg.Wait()
	})
}

func TestFailuresAreNotKept(t *testing.T) {
	seats := cache.New[int](clock.New(0), time.Hour, 10)
	failing := errors.New("no")
	if _, _, err := seats.Get(t.Context(), "k", func(context.Context) (int, error) { return 0, failing }); !errors.Is(err, failing) {
		t.Errorf("first Get = %v, want the load's error", err)
	}
	if v, _, err := seats.Get(t.Context(), "k", func(context.Context) (int, error) { return 3, nil }); v.V != 3 || err != nil {
		t.Errorf("second Get = %v, %v, want a load of its own", v.V, err)
	}
}

func TestClockMakesStale(t *testing.T) {
	for _, turn := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		c := clock.New(0)
		seats := cache.New[int](c, time.Hour, 10)
		n := 0
		load := func(context.Context) (int, error) { n++; return n, nil }
		for range 3 {
			if v, _, _ := seats.Get(t.Context(), "k", load); v.V != 1 {
				t.Fatalf("value %d, want the cached one", v.V)
			}
		}
		c.Set(turn)
		if v, _, _ := seats.Get(t.Context(), "k", load); v.V != 2 {
			t.Errorf("value %d after the clock was turned by %v, want a fresh one", v.V, turn)
		}
	}
}

func TestLimit(t *testing.T) {
	c := clock.New(0)
	seats := cache.New[int](c, time.Hour, 2)
	loads := 0
	get := func(key string) {
		if _, _, err := seats.Get(t.Context(), key, func(context.Context) (int, error) { loads++; return 0, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		get(fmt.Sprint(i))
	}
	get("0")
	get("2") // did not fit
	if loads != 4 {
		t.Errorf("%d loads, want 4: two kept, the third loaded twice", loads)
	}
	c.Set(2 * time.Hour)
	get("2") // room again
	get("2")
	if loads != 5 {
		t.Errorf("%d loads, want 5: stale values make room", loads)
	}
}
