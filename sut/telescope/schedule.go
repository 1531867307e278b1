package telescope

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/httpapi"
)

// scheduleOld is the age from which on the schedule is called stale, in server time.
const scheduleOld = 5 * time.Second

// scheduleAnswer is the body of GET /telescope/days/{date}/slots: what anybody
// may know, and how old it is.
type scheduleAnswer struct {
	Date  string         `json:"date"`
	AsOf  time.Time      `json:"as_of"` // everything that was committed before it shows
	Stale bool           `json:"stale"`
	Slots []scheduleSlot `json:"slots"` // by start
}

type scheduleSlot struct {
	ID       int64     `json:"slot_id"`
	StartsAt time.Time `json:"starts_at"`
	State    string    `json:"state"` // free, taken, closed
}

// sqlDay gives the schedule's stamp with each slot, or once with none, so that
// both are of one moment.
const sqlDay = `
select r.refreshed_at, s.slot_id, s.starts_at, s.state
from schedule_refreshes r
left join slot_schedule s on s.starts_at >= $1 and s.starts_at < $2
order by s.starts_at, s.slot_id`

// wallMost is more than any place's wall clock has ever been away from UTC.
const wallMost = 16 * time.Hour

// day gives the schedule of a day, YYYY-MM-DD on the observatory's wall. Errors
// are problems, or come from the database.
func (p *projection) day(ctx context.Context, date string) (scheduleAnswer, error) {
	midnight, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return scheduleAnswer{}, httpapi.BadRequest.With("the day must be a date that exists, written YYYY-MM-DD").Err()
	}
	ctx, cancel := context.WithTimeout(ctx, projectionTime)
	defer cancel()
	rows, err := p.pool.Query(ctx, sqlDay, midnight.Add(-wallMost), midnight.Add(24*time.Hour+wallMost))
	if err != nil {
		return scheduleAnswer{}, fmt.Errorf("read the schedule of %s: %w", date, err)
	}
	answer := scheduleAnswer{Date: date, Slots: []scheduleSlot{}}
	var id *int64
	var starts *time.Time
	var state *string
	tag, err := pgx.ForEachRow(rows, []any{&answer.AsOf, &id, &starts, &state}, func() error {
		// Which day a start belongs to is asked of the start: midnight may be
		// missing, or there twice.
		if id != nil && starts.In(p.cfg.TimeZone).Format(time.DateOnly) == date {
			answer.Slots = append(answer.Slots, scheduleSlot{*id, starts.UTC(), *state})
		}
		return nil
	})
	if err != nil {
		return scheduleAnswer{}, fmt.Errorf("read the schedule of %s: %w", date, err)
	}
	if tag.RowsAffected() == 0 {
		return scheduleAnswer{}, httpapi.Busy.With("the schedule has not been made yet; it will be in a moment").Err()
	}
	answer.AsOf = answer.AsOf.UTC()
	answer.Stale = p.cfg.Clock.Now().Sub(answer.AsOf) > scheduleOld
	return answer, nil
}
