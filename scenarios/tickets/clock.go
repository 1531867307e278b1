package tickets

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
)

// serverNow is the servers' time, asked of the first one that answers.
func serverNow(ctx context.Context, env harness.Env) (time.Time, error) {
	last := "no server is running"
	for _, s := range env.Servers() {
		if s.URL() == "" {
			continue
		}
		op := env.Do(ctx, harness.Request{Kind: kindClock, Process: clockProcess, Server: s.Name(), Method: http.MethodGet, Path: "/testing/clock"})
		var answer struct {
			Now time.Time `json:"now"`
		}
		if op.Status == http.StatusOK && op.Decode(&answer) == nil && !answer.Now.IsZero() {
			return answer.Now, nil
		}
		last = fmt.Sprintf("%s answered %d %s %s", s.Name(), op.Status, op.Err, op.Output)
	}
	return time.Time{}, fmt.Errorf("ask for the servers' time: %s", last)
}

// advanceTo moves the servers' clock so that it shows at least the time. It is
// never moved back.
func advanceTo(ctx context.Context, env harness.Env, at time.Time) error {
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	if by := at.Sub(now); by > 0 {
		return env.Advance(ctx, by+time.Millisecond) // an offset is whole milliseconds
	}
	return nil
}

// pastExpiry moves the clock just past the end of the hold.
func pastExpiry(ctx context.Context, env harness.Env, h holdAnswer) error {
	return advanceTo(ctx, env, h.ExpiresAt)
}

// beforeExpiry moves the clock to where by is left of the hold.
func beforeExpiry(ctx context.Context, env harness.Env, h holdAnswer, by time.Duration) error {
	return advanceTo(ctx, env, h.ExpiresAt.Add(-by))
}

// pastHardTimeout moves the clock past the hard timeout of every charge that
// was sent by now.
func pastHardTimeout(ctx context.Context, env harness.Env) error {
	return env.Advance(ctx, hardTimeout+time.Second)
}

// waitUntil lets time pass until it is so late to the servers. It is for
// instants that are near: the clock is not moved.
func waitUntil(ctx context.Context, env harness.Env, at time.Time) error {
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	passed := time.NewTimer(at.Sub(now))
	defer passed.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-passed.C:
		return nil
	}
}

// The event that tells the servers' time at the end of a drive.
const (
	subjectServerTime = "server time"
	attrNow           = "now"
)

// noteServerTime records what time it is to the servers, for checks that must
// know what should have run out.
func noteServerTime(ctx context.Context, env harness.Env) error {
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectServerTime, Text: "it is " + now.Format(time.RFC3339Nano) + " to the servers",
		Attrs: map[string]string{attrNow: now.Format(time.RFC3339Nano)},
	})
	return nil
}
