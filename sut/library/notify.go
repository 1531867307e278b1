package library

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/outbox"
)

const sqlReceive = `
insert into library_notifications (event_id, intent_id, seq, type, received_at)
select e.id::uuid, e.subject::uuid, e.seq, e.type, $1
from unnest($2::text[], $3::text[], $4::int[], $5::text[]) as e(id, subject, seq, type)
on conflict (event_id) do nothing`

// notify is the consumer of the library's events. Its effect, a notification,
// carries the event's id and is thereby the processed marker too: both are one
// row, committed at once, and a second delivery finds it there.
func (s *store) notify(ctx context.Context, events []outbox.Event) error {
	n := len(events)
	ids, subjects, seqs, types := make([]string, n), make([]string, n), make([]int, n), make([]string, n)
	for i, e := range events {
		ids[i], subjects[i], seqs[i], types[i] = e.ID, e.Subject, e.Seq, e.Type
	}
	return s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlReceive, s.clock.Now(), ids, subjects, seqs, types)
	})
}
