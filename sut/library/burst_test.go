package library

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHundredConfirmsOneSeat(t *testing.T) {
	for _, tt := range []struct {
		replicas int
		tick     bool
	}{{1, false}, {3, false}, {1, true}, {2, true}} {
		t.Run(fmt.Sprintf("%d replicas, tick %v", tt.replicas, tt.tick), func(t *testing.T) {
			w := newWorld(t, "A-1")
			w.pyxis.latency = 100 * time.Millisecond
			var rs []*replica
			for i := range tt.replicas {
				rs = append(rs, w.start(named(fmt.Sprintf("sut-%d", i+1)), func(c *Config) { c.WakeByTick = tt.tick }))
			}
			answers := burst(t, "A-1", 100, rs...)
			want := map[string]int{"201 SUCCEEDED": 1, "409 FAILED_RACE": 99}
			if diff := cmp.Diff(want, tally(answers)); diff != "" {
				t.Errorf("answers: %s", diff)
			}
			if posts := w.pyxis.postsTo("A-1"); len(posts) != 1 {
				t.Errorf("%d reserve calls, want 1", len(posts))
			}
			if diff := cmp.Diff(map[string]int{stateSucceeded: 1, stateRace: 99}, w.states()); diff != "" {
				t.Errorf("states: %s", diff)
			}
			w.wellRecorded()
		})
	}
}

func TestHundredConfirmsOneSeatDirect(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.latency, w.pyxis.racy = 50*time.Millisecond, 5*time.Millisecond
	r := w.start(func(c *Config) { c.Path = pathDirect })
	answers := burst(t, "A-1", 100, r)
	if posts := w.pyxis.postsTo("A-1"); len(posts) != 100 {
		t.Errorf("%d reserve calls, want 100: the baseline protects nothing", len(posts))
	}
	got := tally(answers)
	if got["201 SUCCEEDED"] < 1 || got["201 SUCCEEDED"]+got["409 FAILED_RACE"] != 100 {
		t.Errorf("answers: %v", got)
	}
	w.wellRecorded()
}
