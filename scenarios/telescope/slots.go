package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
)

// A slot is chosen by the plan: its id, and where it starts. The plan can't
// know the day on which it is carried out, so the start is counted from the
// beginning of a month of the observatory, which is counted from the month of
// the run. So a quota is the same on every day of the year.
type slot struct {
	ID        int64 `json:"id"`
	Month     int   `json:"month"`      // after the run's own; at least 2, so that no slot begins while it runs
	HalfHours int   `json:"half_hours"` // after the beginning of that month; may be negative
}

// firstMonth is the nearest one in which slots are chosen.
const firstMonth = 2

// observatory is the time zone of the telescope. It has no summer time.
var observatory = time.FixedZone("HST", -10*60*60)

// start gives the slot's start for a run that is carried out now.
func (s slot) start(now time.Time) time.Time {
	local := now.In(observatory)
	month := time.Date(local.Year(), local.Month()+time.Month(s.Month), 1, 0, 0, 0, 0, observatory)
	return month.Add(time.Duration(s.HalfHours) * 30 * time.Minute).UTC()
}

// slotIDs draws n different slot ids, one after the other from a random first.
func slotIDs(rng *rand.Rand, n int) []int64 {
	first := int64(1000 * (1 + rng.IntN(9000)))
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids
}

// slotsOfOneMonth draws n slots that start in the same month.
func slotsOfOneMonth(rng *rand.Rand, n int) []slot {
	month, first := firstMonth+rng.IntN(9), rng.IntN(28*48-n) // every month has 28 days
	list := make([]slot, n)
	for i, id := range slotIDs(rng, n) {
		list[i] = slot{ID: id, Month: month, HalfHours: first + i}
	}
	return list
}

// slotsOfManyMonths draws n slots, each in a month of its own, so that no
// quota is in the way of anybody.
func slotsOfManyMonths(rng *rand.Rand, n int) []slot {
	list := make([]slot, n)
	for i, id := range slotIDs(rng, n) {
		list[i] = slot{ID: id, Month: firstMonth + i, HalfHours: rng.IntN(28 * 48)}
	}
	return list
}

// imported is one slot of a maintenance import.
type imported struct {
	SlotID   int64  `json:"slot_id"`
	StartsAt string `json:"starts_at"`
	State    string `json:"state"`
}

// importMost is how many slots one import may name.
const importMost = 500

// importOf is the request that brings the slots into the state.
func importOf(process int, staff string, slots []slot, now time.Time, state, key string) harness.Request {
	list := make([]imported, len(slots))
	for i, s := range slots {
		list[i] = imported{s.ID, s.start(now).Format(time.RFC3339), state}
	}
	body, err := json.Marshal(map[string]any{"slots": list})
	if err != nil {
		panic(err) // numbers and words always marshal
	}
	return harness.Request{
		Kind: kindImport, Process: process, Caller: staff, Method: http.MethodPost, Path: "/telescope/maintenance-imports",
		Header: signed(staff, key), Body: body,
	}
}

// serverNow is the time of the server's clock when a drive begins: that of the
// database's machine, as nobody has moved the server's yet.
func serverNow(ctx context.Context, env harness.Env) (time.Time, error) {
	rows, err := env.Database().Query(ctx, "select floor(extract(epoch from clock_timestamp()))::bigint as now")
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the time: %w", err)
	}
	seconds, ok := rows[0]["now"].(float64)
	if !ok {
		return time.Time{}, fmt.Errorf("ask the time: got %v, want seconds", rows[0])
	}
	return time.Unix(int64(seconds), 0).UTC(), nil
}

// create has staff import the slots, open. It is not part of the race. The time
// that it gives is the one that the slots' starts were counted from.
func create(ctx context.Context, env harness.Env, slots []slot) (time.Time, error) {
	now, err := serverNow(ctx, env)
	if err != nil {
		return now, err
	}
	for i := 0; i < len(slots); i += importMost {
		part := slots[i:min(len(slots), i+importMost)]
		r := importOf(staffProcess, staff(0), part, now, "open", fmt.Sprintf("create-%d", i))
		r.Kind = "create"
		if op := env.Do(ctx, r); op.Status != http.StatusOK {
			return now, fmt.Errorf("create %d slots: got %d %s %s, want 200", len(part), op.Status, op.Err, op.Output)
		}
	}
	return now, nil
}
