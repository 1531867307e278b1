package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/run"
)

// quietPeriod is how often a line of progress is printed where there is no
// terminal to draw a status line on.
const quietPeriod = 10 * time.Second

// progress tells on standard error what is going on.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	last  string
	drawn bool
	since clock.Clock
	said  time.Duration
}

func (a *app) progress() *progress {
	return &progress{w: a.err, terminal: a.terminal, since: clock.New()}
}

// update shows the newest step: at once on a terminal, every ten seconds elsewhere.
func (p *progress) update(step run.Progress) {
	text := step.Text
	if step.Scenario != "" {
		text = step.Scenario + ": " + step.Text
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = text
	if p.terminal {
		fmt.Fprintf(p.w, "\r\033[K%.100s", text)
		p.drawn = true
		return
	}
	if now := p.since.Now(); now-p.said >= quietPeriod {
		fmt.Fprintf(p.w, "%4.0fs  %s\n", now.Seconds(), text)
		p.said = now
	}
}

// line prints a line that stays.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
	p.said = p.since.Now()
}

// done takes the status line away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\033[K")
		p.drawn = false
	}
}
