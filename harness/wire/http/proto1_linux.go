package wirehttp

import (
	"context"
	"fmt"
	"time"
)

// proto1 is one HTTP/1.1 request on a line.
type proto1 struct {
	line   *line
	held   []byte
	parser *parser
}

func (p *proto1) racer() *racer { return p.line.racers[0] }

func (p *proto1) setup(context.Context) error {
	var head []byte
	head, p.held = p.racer().wire1()
	p.parser = newParser(p.racer().op.Method)
	if _, err := p.line.cn.app().Write(head); err != nil {
		return fmt.Errorf("send the head of the request: %w", err)
	}
	return nil
}

func (p *proto1) hold() error {
	_, err := p.line.cn.app().Write(p.held)
	return err
}

// early: whatever a server says to half a header block is an answer.
func (p *proto1) early(b []byte) (int, error) { return min(len(b), 1), nil }

func (p *proto1) feed(b []byte, at time.Duration) {
	done, err := p.parser.feed(b)
	p.settle(done, err, at)
}

func (p *proto1) end(cause error, at time.Duration) {
	done, err := p.parser.end(cause)
	p.settle(done, err, at)
}

func (p *proto1) settle(done bool, err error, at time.Duration) {
	ra := p.racer()
	switch {
	case ra.ended != 0:
	case err != nil:
		ra.ended = at
		ra.fail(fmt.Errorf("read answer: %w", err))
	case done:
		ra.answer(p.parser.answer(), at)
	}
}
