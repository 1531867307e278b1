package proc

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signal sends the signal to the process and its group. After the exit it is
// [ErrExited].
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return fmt.Errorf("signal %s: %w", p.spec.Name, ErrExited)
	}
	p.spec.OnEvent("signal", fmt.Sprintf("%s gets %s", p.spec.Name, unix.SignalName(sig)))
	return p.send(sig)
}

// Halt stops the process, and once it is stopped, which stopped waits for, what
// it has started. Both at once may never come to be: a process that is starting
// another waits for that one's exec, which can't be stopped, and a child that
// is stopped before its exec keeps it there.
func (p *Process) Halt(ctx context.Context, stopped func(context.Context) error) error {
	p.mu.Lock()
	if p.reaped {
		p.mu.Unlock()
		return fmt.Errorf("signal %s: %w", p.spec.Name, ErrExited)
	}
	p.spec.OnEvent("signal", fmt.Sprintf("%s gets %s", p.spec.Name, unix.SignalName(syscall.SIGSTOP)))
	err := syscall.Kill(p.PID(), syscall.SIGSTOP)
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	if err := stopped(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return fmt.Errorf("signal %s: %w", p.spec.Name, ErrExited)
	}
	return p.send(syscall.SIGSTOP)
}

// send needs the lock, and a process that is not reaped.
func (p *Process) send(sig syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// Stop asks the process to end with the stop signal (and SIGCONT, in case it
// is stopped), and kills it when it has not within the grace, or when ctx
// ends. It returns when the process is gone; an error says that it had to be
// killed. Stopping what has ended already is fine.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(p.spec.StopSignal); err != nil && !isGone(err) {
		return errors.Join(err, p.Kill())
	}
	p.wake()
	grace := time.NewTimer(p.spec.StopGrace)
	defer grace.Stop()
	why := ""
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		why = context.Cause(ctx).Error()
	case <-grace.C:
		why = fmt.Sprintf("still running %s after %s", p.spec.StopGrace, unix.SignalName(p.spec.StopSignal))
	}
	return errors.Join(fmt.Errorf("stop %s: killed: %s", p.spec.Name, why), p.Kill())
}

// Kill sends SIGKILL to the group and returns when the process is gone. A
// stopped process dies of it too. Killing what has ended already is fine.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !isGone(err) {
		return err
	}
	bound := time.NewTimer(killTimeout)
	defer bound.Stop()
	select {
	case <-p.done:
		return nil
	case <-bound.C:
		return fmt.Errorf("kill %s: process %d is still there %s after SIGKILL; look at it with ps", p.spec.Name, p.PID(), killTimeout)
	}
}

func isGone(err error) bool { return errors.Is(err, ErrExited) || errors.Is(err, syscall.ESRCH) }

// wake lets a stopped process take notice of the signal that waits for it.
func (p *Process) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = p.send(syscall.SIGCONT)
	}
}
