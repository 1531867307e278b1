package wirehttp

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wakeMark stands for the poller's own descriptor among the lines.
const wakeMark = -1

// A poller waits for bytes on the lines of one burst, without the Go
// scheduler, so that no goroutine is woken while the release is going on. It
// tells of each change once: a line must be read until it would block.
type poller struct {
	fd, wake int
	events   []unix.EpollEvent
	ready    []*line
}

func newPoller(lines []*line) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("create an event descriptor: %w", err)
	}
	p := &poller{fd: fd, wake: wake, events: make([]unix.EpollEvent, len(lines)+1)}
	if err := p.control(unix.EPOLL_CTL_ADD, wake, wakeMark, unix.EPOLLIN); err != nil {
		p.close()
		return nil, err
	}
	for _, l := range lines {
		if err := p.control(unix.EPOLL_CTL_ADD, l.fd, l.pos, unix.EPOLLIN|unix.EPOLLET); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *poller) control(what, fd, pos int, events uint32) error {
	if err := unix.EpollCtl(p.fd, what, fd, &unix.EpollEvent{Events: events, Fd: int32(pos)}); err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// wantWrite says whether the line waits for room in the kernel. It cannot go
// wrong for a descriptor that is watched; if it does, the line's deadline ends it.
func (p *poller) wantWrite(l *line, want bool) {
	events := uint32(unix.EPOLLIN | unix.EPOLLET)
	if want {
		events |= unix.EPOLLOUT
	}
	_ = p.control(unix.EPOLL_CTL_MOD, l.fd, l.pos, events)
}

// forget stops watching a line that is still open.
func (p *poller) forget(l *line) { _ = p.control(unix.EPOLL_CTL_DEL, l.fd, l.pos, 0) }

// wait gives the lines on which something happened within timeout, none when
// nothing did. The slice is valid until the next call.
func (p *poller) wait(lines []*line, timeout time.Duration) []*line {
	p.ready = p.ready[:0]
	ms := int((timeout + time.Millisecond - 1) / time.Millisecond)
	n, err := unix.EpollWait(p.fd, p.events, ms)
	if err != nil { // EINTR: the caller asks again
		return nil
	}
	for _, e := range p.events[:n] {
		if e.Fd != wakeMark && e.Events != unix.EPOLLERR { // alone, it is a note on sending
			p.ready = append(p.ready, lines[e.Fd])
		}
	}
	return p.ready
}

// wakeWhenDone ends a wait when ctx ends. The function it gives ends the
// watch and waits for it.
func (p *poller) wakeWhenDone(ctx context.Context) func() {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	return func() {
		if !stop() {
			<-over
		}
	}
}

func (p *poller) close() {
	_ = unix.Close(p.wake)
	_ = unix.Close(p.fd)
}
