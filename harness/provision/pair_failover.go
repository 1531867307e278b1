package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
)

// KillPrimary sends SIGKILL to every process of the cluster that was born
// primary, and returns when each of them is gone. It can be killed once.
func (p *Pair) KillPrimary(ctx context.Context) error {
	p.steps.Lock()
	defer p.steps.Unlock()
	if err := p.refuse(p.killed, "it was killed already"); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	if err := p.Died(); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	p.primary.run.closing.Store(true) // before it dies, so that nobody takes it for an accident
	p.note(&p.killed)
	if err := p.primary.killAll(ctx); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	return nil
}

// Promote makes the standby the primary and returns when it takes writes;
// from then on URL and Database lead to it. Its commits wait for nobody, as it
// has no standby. Everything that the standby has received is kept.
//
// The old primary is not asked: promoted beside a living one there are two
// primaries, and commits on the old one hang if replication is synchronous.
func (p *Pair) Promote(ctx context.Context) error {
	p.steps.Lock()
	defer p.steps.Unlock()
	if err := p.refuse(p.promoted, "it was promoted already"); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	url := p.standby.url("postgres")
	err := once(ctx, url, func(conn *pgx.Conn) error {
		// pg_promote could wait by itself, but looks every 100 ms only.
		if _, err := conn.Exec(ctx, `select pg_promote(false)`); err != nil {
			return err
		}
		return clock.Await(ctx, "the standby to take writes", promoteTimeout, askPause, func(ctx context.Context) (bool, string, error) {
			var recovering bool
			err := conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&recovering)
			return !recovering, "in recovery", err
		})
	})
	if err != nil {
		return &Problem{What: "promote the standby", Where: url, Err: errors.Join(err, p.Died()), Fix: "look at " + p.standby.logFile()}
	}
	p.note(&p.promoted)
	return nil
}

// StartOldFenced starts the killed primary again as a standby of the promoted
// one, and returns when it accepts connections, which can only read: a write
// gets SQLSTATE 25006. When it has commits that the other never received it
// cannot follow (its log says so again and again) and shows them for ever.
func (p *Pair) StartOldFenced(ctx context.Context) error {
	p.steps.Lock()
	defer p.steps.Unlock()
	err := p.refuse(!p.killed, "it has not been killed")
	if err == nil {
		err = p.refuse(!p.promoted, "the standby has not been promoted, there is nothing to follow")
	}
	if err == nil {
		err = p.refuse(!p.primary.run.closing.Load(), "it was started already")
	}
	if err != nil {
		return fmt.Errorf("start the old primary: %w", err)
	}
	if err := p.primary.follow(p.standby); err != nil {
		return err
	}
	return p.start(ctx, p.primary, readyForReads)
}

// refuse says why a step is not possible. Steps are serialised, so that the
// answer stays right until the step is over.
func (p *Pair) refuse(refused bool, why string) error {
	switch {
	case p.closed:
		return errors.New("the pair is closed")
	case refused:
		return errors.New(why)
	}
	return nil
}

// note sets one of the pair's flags.
func (p *Pair) note(flag *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = true
}
