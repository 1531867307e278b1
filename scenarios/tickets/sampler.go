package tickets

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// samplePause is the pause between two snapshots of the seats.
const samplePause = 20 * time.Millisecond

// seatsNow finds seats that contradict their hold, as of one instant: a
// statement sees one snapshot. The row of the state 'seats' is always there and
// says how many there are.
const seatsNow = `select s.show_id, s.seat, s.state, s.hold_id::text as hold_id, h.state as hold_state, c.state as charge_state
from seats s left join holds h on h.hold_id = s.hold_id left join charges c on c.charge_id = h.winning_charge
where (s.state = 'HELD' and h.state is distinct from 'RESERVED')
   or (s.state = 'SOLD' and (h.state is distinct from 'CONFIRMED' or c.state is distinct from 'CAPTURED'))
   or (s.state = 'QUARANTINED' and not exists (select from charges q where q.hold_id = s.hold_id and q.state = 'CHARGING'))
   or (s.hold_id is not null and (h.show_id, h.seat) is distinct from (s.show_id, s.seat))
   or (s.state = 'FREE' and s.hold_id is not null)
union all
select h.show_id, h.seat, s.state, h.hold_id::text, h.state, null
from holds h left join seats s on s.show_id = h.show_id and s.seat = h.seat
where h.state in ('RESERVED', 'CONFIRMED') and s.hold_id is distinct from h.hold_id
union all
select null, null, 'seats', count(*)::text, null, null from seats`

// Events of the sampler.
const (
	subjectSamples = "seat samples"
	subjectTorn    = "seats against their holds"
	attrSamples    = "samples"
	mostTorn       = 10 // snapshots that are kept
)

// sampleSeats takes snapshots of the seats until stop, which waits for it and
// gives its trouble. What it saw is in the history: how many snapshots of
// seats, and those in which something was wrong.
func sampleSeats(ctx context.Context, env harness.Env) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- keepSampling(ctx, env) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func keepSampling(ctx context.Context, env harness.Env) error {
	pause := time.NewTicker(samplePause)
	defer pause.Stop()
	samples, torn, failed := 0, 0, error(nil)
	for ctx.Err() == nil {
		at := env.Now()
		rows, err := env.Database().Query(ctx, seatsNow)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			failed = fmt.Errorf("take a snapshot of the seats: %w", err)
		default:
			wrong := slices.DeleteFunc(slices.Clone(rows), countsSeats)
			if !slices.ContainsFunc(rows, func(r harness.Row) bool { return countsSeats(r) && r["hold_id"] != "0" }) {
				break // there is no show yet
			}
			samples++
			if len(wrong) > 0 {
				if torn++; torn <= mostTorn {
					env.Record(tornEvent(at, env.Now(), wrong))
				}
			}
		}
		if failed != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectSamples, Text: fmt.Sprintf("%d snapshots of the seats, %d with something wrong", samples, torn),
		Attrs: map[string]string{attrSamples: strconv.Itoa(samples)},
	})
	return failed
}

func countsSeats(r harness.Row) bool { return r["state"] == "seats" }

// tornEvent keeps what a snapshot found.
func tornEvent(from, until time.Duration, rows []harness.Row) harness.Event {
	var said strings.Builder
	for _, r := range rows[:min(len(rows), 5)] {
		fmt.Fprintf(&said, "%s is %v, its hold %v is %v (winning charge %v); ", seatKey(whole(r, "show_id"), text(r, "seat")), r["state"], r["hold_id"], r["hold_state"], r["charge_state"])
	}
	return harness.Event{At: from, Until: until, Kind: harness.EventNote, Subject: subjectTorn, Text: said.String() + fmt.Sprintf("%d in all", len(rows))}
}
