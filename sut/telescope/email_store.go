package telescope

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/outbox"
)

// mailPatience is how often the pause between two attempts of one event
// doubles: with 100 ms and ten attempts, an outage of a quarter of a minute
// parks nothing.
const mailPatience = 5

// mailStore is the outbox with a deadline for each statement, so that a
// database that fell silent does not silence the mailer for good, and with
// pauses between the attempts of an event that double.
type mailStore struct {
	outbox   *outbox.Postgres
	pool     *pgxpool.Pool
	interval time.Duration
}

func newMailStore(pool *pgxpool.Pool, interval time.Duration) mailStore {
	return mailStore{outbox.NewPostgres(pool, "outbox", "slot_id"), pool, interval}
}

// Claim is of [outbox.Store].
func (s mailStore) Claim(ctx context.Context, now, until time.Time, most int) ([]outbox.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, mailLooking)
	defer cancel()
	return s.outbox.Claim(ctx, now, until, most)
}

// Delivered is of [outbox.Store].
func (s mailStore) Delivered(ctx context.Context, ids []string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, mailLooking)
	defer cancel()
	return s.outbox.Delivered(ctx, ids, now)
}

// Failed is of [outbox.Store]. It has its own mind about when to try again.
func (s mailStore) Failed(ctx context.Context, id, reason string, now, _ time.Time, park int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, mailLooking)
	defer cancel()
	var attempts int
	if err := s.pool.QueryRow(ctx, `select attempts from outbox where event_id = $1`, id).Scan(&attempts); err != nil {
		return false, err
	}
	return s.outbox.Failed(ctx, id, reason, now, now.Add(pauseAfter(attempts, s.interval)), park)
}

// OldestPending is of [outbox.Store].
func (s mailStore) OldestPending(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, mailLooking)
	defer cancel()
	return s.outbox.OldestPending(ctx)
}

// pauseAfter is how long an event rests after so many failed attempts: the
// interval after the first, 32 times that at most.
func pauseAfter(attempts int, interval time.Duration) time.Duration {
	return interval << min(max(attempts-1, 0), mailPatience)
}
