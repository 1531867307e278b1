package library

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/database"
)

// Reconnecting to Postgres: first after this, doubling up to the other.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = 2 * time.Second
)

// listen opens the session on which other replicas' endings are heard.
func (s *Service) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := database.Connect(ctx, sessions(s.cfg))
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "listen library_seats"); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// hear answers clients here whose intents ended in another replica. What was
// said while the session was lost is not repeated, so every new session begins
// with a look at all that is waited for.
func (s *Service) hear(ctx context.Context, conn *pgx.Conn) {
	pause := reconnectFirst
	for ctx.Err() == nil {
		if conn == nil {
			var err error
			if conn, err = s.listen(ctx); err != nil {
				s.log.Warn("lost the session that hears other replicas, trying again", "error", err)
				if clock.Pause(ctx, pause) != nil {
					return
				}
				pause = min(2*pause, reconnectMost)
				continue
			}
			pause = reconnectFirst
		}
		s.recheck(ctx, "")
		s.hearSession(ctx, conn)
		_ = conn.Close(context.WithoutCancel(ctx))
		conn = nil
	}
}

// hearSession hears until the session or the context ends.
func (s *Service) hearSession(ctx context.Context, conn *pgx.Conn) {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		seat, own := s.store.told(n.Payload)
		if own {
			continue
		}
		s.recheck(ctx, seat)
		if !s.cfg.WakeByTick && len(s.waiters.intents(seat)) > 0 {
			s.worker.wake(seat) // still unanswered: it may be our turn on this seat
		}
	}
}
