package telescope

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHundredOnOneSlot(t *testing.T) {
	o := newObservatory(t)
	o.base.PoolSize = 20
	o.patiently()
	rs := []*replica{o.start(), o.start(func(c *Config) { c.Replica = "sut-2" })}
	answers := burst(100, func(i int) answer { return rs[i%2].book(member(i), fmt.Sprint("k-", i), 7) })
	if diff := cmp.Diff(map[string]int{"201": 1, "409 slot-taken": 99}, tally(answers)); diff != "" {
		t.Error(diff)
	}
	if n := scan[int](o, "select count(*) from booking_operations"); n != 100 {
		t.Errorf("%d operations kept, want all 100", n)
	}
	if got := o.history(7); got != "CREATED BOOKED" {
		t.Errorf("history %s", got)
	}
	o.soundly()
}
