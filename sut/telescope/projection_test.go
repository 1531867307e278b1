package telescope

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/httpapi"
)

// slot makes or changes a slot; member "" for nobody.
func (b *backstage) slot(id int64, starts, state, member string) {
	b.t.Helper()
	at, err := time.Parse(time.RFC3339, starts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.exec(`insert into observing_slots values ($1, $2, $3, 1, $4)
		on conflict (slot_id) do update set state = excluded.state, version = observing_slots.version + 1`, id, at, state, b.cfg.Clock.Now())
	b.exec(`delete from active_reservations where slot_id = $1`, id)
	if member != "" {
		b.exec(`insert into active_reservations (slot_id, booking_id, member, month, created_at) values ($1, $2, $3, '2026-12', $4)`,
			id, bookingOf(id), member, b.cfg.Clock.Now())
	}
}

func (b *backstage) projection() *projection { return newProjection(b.pool, b.cfg, newMeters()) }

// tick gives the projection its chance to refresh.
func (b *backstage) tick(p *projection) (refreshed bool) {
	b.t.Helper()
	refreshed, err := p.tick(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return refreshed
}

func (b *backstage) day(p *projection, date string) scheduleAnswer {
	b.t.Helper()
	answer, err := p.day(b.t.Context(), date)
	if err != nil {
		b.t.Fatalf("day %s: %v", date, err)
	}
	return answer
}

// states are the slots of a day as "id state".
func states(a scheduleAnswer) []string {
	out := make([]string, len(a.Slots))
	for i, s := range a.Slots {
		out[i] = fmt.Sprintf("%d %s", s.ID, s.State)
	}
	return out
}

func TestScheduleFollowsTheTables(t *testing.T) {
	b := newBackstage(t)
	p := b.projection()
	const day = "2026-12-24"
	b.slot(1, "2026-12-24T20:00:00Z", "open", "")
	b.slot(2, "2026-12-24T20:30:00Z", "open", "member-1")
	b.slot(3, "2026-12-24T21:00:00Z", "closed", "")
	b.slot(4, "2026-12-24T21:30:00Z", "closed", "member-2") // flagged: closed under its member
	for _, step := range []struct {
		change func()
		want   []string
	}{
		{func() {}, []string{"1 free", "2 taken", "3 closed", "4 closed"}},
		{func() { b.slot(1, "2026-12-24T20:00:00Z", "open", "member-9") }, []string{"1 taken", "2 taken", "3 closed", "4 closed"}},
		{func() { b.slot(2, "2026-12-24T20:30:00Z", "open", "") }, []string{"1 taken", "2 free", "3 closed", "4 closed"}},
		{func() { b.slot(1, "2026-12-24T20:00:00Z", "closed", "member-9") }, []string{"1 closed", "2 free", "3 closed", "4 closed"}},
		{func() { b.slot(4, "2026-12-24T21:30:00Z", "open", "member-2") }, []string{"1 closed", "2 free", "3 closed", "4 taken"}},
		{func() { b.slot(5, "2026-12-24T19:30:00Z", "open", "") }, []string{"5 free", "1 closed", "2 free", "3 closed", "4 taken"}},
	} {
		step.change()
		if !b.tick(p) {
			t.Fatal("it was time to refresh, and nobody did")
		}
		if diff := cmp.Diff(step.want, states(b.day(p, day))); diff != "" {
			t.Error(diff)
		}
		b.cfg.Clock.Set(b.cfg.Clock.Offset() + b.cfg.ProjectionInterval)
	}
}

// Replicas that look at the same moment refresh once between them.
func TestOneReplicaRefreshes(t *testing.T) {
	b := newBackstage(t)
	b.slot(1, "2026-12-24T20:00:00Z", "open", "")
	for round := range 20 {
		var turns atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			p := b.projection()
			all.Go(func() {
				refreshed, err := p.tick(t.Context())
				if err != nil {
					t.Error(err)
				}
				if refreshed {
					turns.Add(1)
				}
				if p.age() > b.cfg.ProjectionInterval {
					t.Errorf("this replica thinks the schedule is %v old", p.age())
				}
			})
		}
		all.Wait()
		if n := turns.Load(); n != 1 {
			t.Errorf("round %d: %d refreshes, want 1", round, n)
		}
		b.cfg.Clock.Set(b.cfg.Clock.Offset() + b.cfg.ProjectionInterval)
	}
}

func TestOnlyLinesThatDifferAreWritten(t *testing.T) {
	b := newBackstage(t)
	p := b.projection()
	for id := range int64(50) {
		b.slot(id+1, "2026-12-24T20:00:00Z", "open", "")
	}
	written := func() int {
		b.t.Helper()
		before := value[string](b, `select pg_current_xact_id()::text`)
		b.cfg.Clock.Set(b.cfg.Clock.Offset() + b.cfg.ProjectionInterval)
		if !b.tick(p) {
			t.Fatal("not refreshed")
		}
		return value[int](b, `select count(*) from slot_schedule where xmin::text::bigint > $1::bigint`, before)
	}
	if n := written(); n != 50 {
		t.Errorf("%d lines written at first, want 50", n)
	}
	if n := written(); n != 0 {
		t.Errorf("%d lines written when nothing had changed", n)
	}
	b.slot(7, "2026-12-24T20:00:00Z", "closed", "")
	if n := written(); n != 1 {
		t.Errorf("%d lines written after one change", n)
	}
}

func TestScheduleSaysHowOldItIs(t *testing.T) {
	b := newBackstage(t)
	p, reader := b.projection(), b.projection()
	_, err := reader.day(t.Context(), "2026-12-24")
	if problem, ok := httpapi.ProblemOf(err); !ok || problem.Status != 503 || problem.Header.Get("Retry-After") == "" {
		t.Errorf("before the first refresh: %v, want a 503 with Retry-After", err)
	}
	if p.age() != 0 {
		t.Errorf("age %v of nothing", p.age())
	}
	before := b.cfg.Clock.Now()
	b.tick(p)
	at := b.day(reader, "2026-12-24").AsOf
	if at.Before(before) || at.After(b.cfg.Clock.Now()) {
		t.Errorf("as of %v, refreshed after %v", at, before)
	}
	for _, step := range []struct {
		passed time.Duration
		stale  bool
	}{{0, false}, {3 * time.Second, false}, {6 * time.Second, true}, {24 * time.Hour, true}} {
		b.cfg.Clock.Set(step.passed)
		if a := b.day(reader, "2026-12-24"); a.Stale != step.stale || !a.AsOf.Equal(at) {
			t.Errorf("%v later: stale %v as of %v", step.passed, a.Stale, a.AsOf)
		}
		if age := p.age(); age < step.passed || age > step.passed+soon {
			t.Errorf("%v later: age %v", step.passed, age)
		}
	}
	if !b.tick(p) || b.day(reader, "2026-12-24").Stale || p.age() > soon {
		t.Errorf("after another refresh: age %v", p.age())
	}
	b.cfg.Clock.Set(24*time.Hour + b.cfg.ProjectionInterval/2)
	if b.tick(reader) || reader.age() < b.cfg.ProjectionInterval/2 {
		t.Errorf("the replica that did not refresh thinks the schedule is %v old", reader.age())
	}
	b.cfg.Clock.Set(0) // a day back: what was refreshed is from the future
	if !b.tick(p) || b.day(reader, "2026-12-24").AsOf.After(b.cfg.Clock.Now()) {
		t.Error("a clock that was turned back stops the refreshes")
	}
}

// Whatever replicas race to refresh: a schedule that says that it is as of
// some moment shows everything that was committed before.
func TestScheduleShowsAllThatWasCommittedBeforeItsStamp(t *testing.T) {
	const slots = 150
	b := newBackstage(t)
	b.cfg.ProjectionInterval = 3 * time.Millisecond
	for id := range int64(slots) {
		b.slot(id+1, "2026-12-24T20:00:00Z", "open", "")
	}
	b.tick(b.projection())
	for range 3 {
		background(t, b.projection().run)
	}
	var mu sync.Mutex
	var done []time.Time // when the n-th closure was known to be committed
	var closing sync.WaitGroup
	closing.Go(func() {
		for id := range slots {
			if _, err := b.pool.Exec(t.Context(), `update observing_slots set state = 'closed', version = version + 1 where slot_id = $1`, id+1); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			done = append(done, b.cfg.Clock.Now())
			mu.Unlock()
			_ = clock.Pause(t.Context(), time.Millisecond)
		}
	})
	reader, looks, last := b.projection(), 0, 0
	until(t, "all slots to be shown as closed", func() bool {
		a := b.day(reader, "2026-12-24")
		closed := 0
		for _, s := range a.Slots {
			if s.State == "closed" {
				closed++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		must := 0
		for _, at := range done {
			if at.Before(a.AsOf) {
				must++
			}
		}
		if closed < must || closed < last {
			t.Errorf("%d closed slots are shown as of %v, want %d at least, and %d were shown before", closed, a.AsOf, must, last)
		}
		looks, last = looks+1, closed
		return closed == slots
	})
	closing.Wait()
	if looks < 20 {
		t.Errorf("looked %d times only", looks)
	}
}

// A refresh that waits for another one sees what that one wrote, and what was
// committed while it waited.
func TestWaitingRefreshLooksAfterItsTurnHasCome(t *testing.T) {
	b := newBackstage(t)
	p := b.projection()
	b.slot(1, "2026-12-24T20:00:00Z", "open", "")
	b.tick(p)
	b.cfg.Clock.Set(time.Minute)
	other, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	if _, err := other.Exec(t.Context(), `update schedule_refreshes set refreshed_at = $1`, b.cfg.Clock.Now().Add(-30*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `update slot_schedule set state = 'taken'`); err != nil { // it was taken then
		t.Fatal(err)
	}
	refreshed := make(chan error, 1)
	go func() { _, err := p.refresh(t.Context()); refreshed <- err }()
	until(t, "the refresh to wait", func() bool {
		return value[int](b, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%schedule_refreshes%'`) == 1
	})
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-refreshed; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1 free"}, states(b.day(p, "2026-12-24"))); diff != "" {
		t.Error(diff)
	}
}

func TestProjectionWakesWithTheClock(t *testing.T) {
	b := newBackstage(t)
	b.cfg.ProjectionInterval = time.Hour
	p := b.projection()
	background(t, p.run)
	until(t, "the first refresh", func() bool { return value[int](b, `select count(*) from schedule_refreshes`) == 1 })
	b.slot(1, "2026-12-24T20:00:00Z", "closed", "")
	b.cfg.Clock.Set(2 * time.Hour) // also when the first round has not come to its end
	until(t, "the closed slot to be shown", func() bool { return len(b.day(p, "2026-12-24").Slots) == 1 })
}
