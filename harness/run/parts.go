package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overbook/overbook/harness"
)

// part is one of the parts that all runs of a conductor share.
type part struct {
	name string
	done <-chan struct{} // nil for one given by URL: its death shows in what fails
	died func() error
}

func (c *Conductor) shared() []part {
	var list []part
	if p := c.parts.Postgres; p != nil {
		list = append(list, part{"postgres", p.Done(), p.Died})
	}
	if p := c.parts.WireMock; p != nil {
		list = append(list, part{"wiremock", p.Done(), p.Died})
	}
	if p := c.parts.Redis; p != nil {
		list = append(list, part{"redis", p.Done(), p.Died})
	}
	return list
}

// has says whether everything that a topology needs was brought up.
func (c *Conductor) has(t harness.Topology) error {
	switch {
	case c.parts.WireMock == nil && len(t.Doubles) > 0:
		return errors.New("it needs WireMock, which was not brought up")
	case c.parts.Redis == nil && t.Redis:
		return errors.New("it needs Redis, which was not brought up")
	}
	return nil
}

// death tells which shared part has died and how; nil when all are well.
func (c *Conductor) death() (string, error) {
	for _, p := range c.shared() {
		select {
		case <-p.done:
			return p.name, p.how()
		default:
		}
	}
	return "", nil
}

// how is the part's own account of its end, with its last output.
func (p part) how() error {
	if err := p.died(); err != nil {
		return err
	}
	return fmt.Errorf("%s died in the middle of the run", p.name)
}

// deathNotice is how long after an error it is asked whether a part has died:
// a broken connection is seen a moment before the exit is.
const deathNotice = 250 * time.Millisecond

// deathBehind tells whether the death of a shared part is behind an error.
func (c *Conductor) deathBehind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deathNotice)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.watchParts(ctx, end)
	_, how := c.death()
	return how
}

// Dead names the shared part that has died, "" when all are well. After that
// nothing more can be run.
func (c *Conductor) Dead() string {
	name, _ := c.death()
	return name
}

// watchParts ends the work under way with the account of the first shared
// part that dies under it. It returns when ctx ends.
func (c *Conductor) watchParts(ctx context.Context, end context.CancelCauseFunc) {
	var done [3]<-chan struct{} // nil is never ready
	list := c.shared()
	for i, p := range list {
		done[i] = p.done
	}
	which := 0
	select {
	case <-ctx.Done():
		return
	case <-done[0]:
	case <-done[1]:
		which = 1
	case <-done[2]:
		which = 2
	}
	end(list[which].how())
}

// untilInterrupted gives a context that also ends with the first Ctrl-C.
func (c *Conductor) untilInterrupted(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.config.Interrupted, func() { cancel(errInterrupted) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}
