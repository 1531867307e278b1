package wirehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/overbook/overbook/harness/load"
)

const (
	frameMax = 16 << 10 // payload of a frame that we read: the protocol's default
	headLen  = 9        // of a frame's own header
	// connWindow is all that the protocol allows, so that no window has to be
	// opened during a burst. Beyond 2 GiB of answers on one connection the
	// server would wait, and the answers would be given up.
	connWindow = math.MaxInt32 - 65535
)

// proto2 is all HTTP/2 streams of one connection.
type proto2 struct {
	line    *line
	in, w   bytes.Buffer // bytes read but no whole frame yet; frames to be written
	fr      *http2.Framer
	enc     *hpack.Encoder
	encBuf  bytes.Buffer
	dec     *hpack.Decoder
	streams []*stream // in the order of the racers; ids 1, 3, 5, ...

	settled    bool // the server's settings came
	pinged     bool // the server answered our ping
	released   bool
	unasked    int // answers that came before the release
	maxStreams uint32
	maxFrame   int
	window     int // what we may still send on the connection
	initial    int // window of a new stream
	block      headerBlock
	err        error // the connection is of no use any more
}

// A stream is one request and its answer.
type stream struct {
	id     uint32
	ra     *racer
	window int
	a      answer
	length int // as stated by the answer, -1 when it is not
}

// A headerBlock is one that is coming in, perhaps in several frames.
type headerBlock struct {
	stream uint32
	data   []byte
	end    bool // the stream ends with it
}

// planH2 makes one line for each target.
func (bu *burst) planH2() {
	of := map[string]*line{}
	for _, ra := range bu.racers {
		l, ok := of[ra.target.base]
		if !ok {
			l = bu.addLine()
			l.proto = newProto2(l)
			of[ra.target.base] = l
		}
		l.racers = append(l.racers, ra)
	}
}

func newProto2(l *line) *proto2 {
	p := &proto2{line: l, maxStreams: math.MaxUint32, maxFrame: frameMax, window: 65535, initial: 65535}
	p.fr = http2.NewFramer(&p.w, &p.in)
	p.fr.SetMaxReadFrameSize(frameMax)
	p.enc = hpack.NewEncoder(&p.encBuf)
	p.dec = hpack.NewDecoder(4096, nil)
	return p
}

// setup sends everything but the last frames and proves by a ping that the
// server has read it: frames of one connection are read in order.
func (p *proto2) setup(context.Context) error {
	p.w.WriteString(http2.ClientPreface)
	_ = p.fr.WriteSettings( // writes to a buffer do not go wrong
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: bodyMax + 1},
	)
	_ = p.fr.WriteWindowUpdate(0, connWindow)
	if err := p.await("the server's settings", func() bool { return p.settled }); err != nil {
		return err
	}
	if n := len(p.line.racers); uint64(n) > uint64(p.maxStreams) {
		return fmt.Errorf("%s allows %d streams on one connection, the burst needs %d: raise the server's limit, or use the technique h1-last-header-byte",
			p.line.racers[0].target.base, p.maxStreams, n)
	}
	for i, ra := range p.line.racers {
		s := &stream{id: uint32(2*i + 1), ra: ra, window: p.initial, length: -1}
		p.streams = append(p.streams, s)
		p.writeHeaders(s)
	}
	for _, s := range p.streams {
		if err := p.writeBody(s); err != nil {
			return err
		}
	}
	_ = p.fr.WritePing(false, [8]byte{'o', 'v', 'e', 'r', 'b', 'o', 'o', 'k'})
	return p.await("the answer to a ping", func() bool { return p.pinged })
}

// await writes what is to be written and reads frames until what is awaited
// is there. The setup's context ends it.
func (p *proto2) await(what string, there func() bool) error {
	buf := make([]byte, readSize)
	for {
		if err := p.writeOut(); err != nil {
			return fmt.Errorf("send frames: %w", err)
		}
		if there() {
			return nil
		}
		n, err := p.line.cn.app().Read(buf)
		p.take(buf[:n], 0)
		switch {
		case p.err != nil:
			return fmt.Errorf("wait for %s: %w", what, p.err)
		case err != nil:
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

func (p *proto2) writeOut() error {
	if p.w.Len() == 0 {
		return nil
	}
	_, err := p.line.cn.app().Write(p.w.Bytes())
	p.w.Reset()
	return err
}

func (p *proto2) writeHeaders(s *stream) {
	ra := s.ra
	put := func(name, value string) {
		_ = p.enc.WriteField(hpack.HeaderField{Name: strings.ToLower(name), Value: value})
	}
	p.encBuf.Reset()
	put(":method", ra.req.Method)
	put(":scheme", ra.target.scheme())
	put(":authority", ra.target.host)
	put(":path", ra.target.prefix+ra.req.Path)
	put("user-agent", userAgent)
	put(headerOp, ra.op.ID)
	put(headerTrace, ra.trace)
	for _, f := range ra.fields {
		put(f.name, f.value)
	}
	if ra.hasLength() {
		put("content-length", strconv.Itoa(len(ra.req.Body)))
	}
	block := p.encBuf.Bytes()
	first := block[:min(len(block), p.maxFrame)]
	rest := block[len(first):]
	_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: first, EndHeaders: len(rest) == 0})
	for len(rest) > 0 {
		part := rest[:min(len(rest), p.maxFrame)]
		rest = rest[len(part):]
		_ = p.fr.WriteContinuation(s.id, len(rest) == 0, part)
	}
	ra.exposed = true // a server may act on the headers alone
}

// writeBody sends all but the last byte of a body, and keeps one byte of the
// connection's window for the last byte of every stream.
func (p *proto2) writeBody(s *stream) error {
	rest := s.ra.req.Body
	if len(rest) == 0 {
		return nil
	}
	for rest = rest[:len(rest)-1]; len(rest) > 0; {
		if room := min(p.window-len(p.streams), s.window-1, p.maxFrame); room > 0 {
			part := rest[:min(len(rest), room)]
			_ = p.fr.WriteData(s.id, false, part)
			rest = rest[len(part):]
			p.window -= len(part)
			s.window -= len(part)
			continue
		}
		if err := p.await("room in the server's flow control window", func() bool {
			return p.window > len(p.streams) && s.window > 1
		}); err != nil {
			return err
		}
	}
	return nil
}

// hold puts the last frame of every stream into one write.
func (p *proto2) hold() error {
	_ = p.writeOut() // acknowledgements of ours; goes into the same buffer
	for _, s := range p.streams {
		if n := len(s.ra.req.Body); n > 0 {
			if s.window < 1 || p.window < 1 {
				return load.Errorf(load.ClassOther, "the server's flow control window has no room for the last byte")
			}
			p.window--
			s.window--
			_ = p.fr.WriteData(s.id, true, s.ra.req.Body[n-1:])
		} else {
			_ = p.fr.WriteData(s.id, true, nil)
		}
	}
	p.released = true
	return p.writeOut()
}

// early takes bytes that came before the release. What they make us write
// goes out with the next frames.
func (p *proto2) early(b []byte) (int, error) {
	p.released = false
	p.take(b, 0)
	p.released = true
	n := p.unasked
	p.unasked = 0
	return n, p.err
}

func (p *proto2) feed(b []byte, at time.Duration) {
	p.take(b, at)
	if p.err != nil {
		p.breakOff(p.err, at)
		return
	}
	if err := p.writeOut(); err != nil {
		p.breakOff(err, at)
		return
	}
	if !p.line.waits {
		_, _ = p.line.cn.flush() // only acknowledgements; a broken line shows when it is read
	}
}

func (p *proto2) end(cause error, at time.Duration) {
	if p.err != nil {
		cause = p.err
	}
	if errors.Is(cause, io.EOF) {
		cause = load.Errorf(load.ClassClosed, "the server closed the connection without an answer")
	}
	p.breakOff(cause, at)
}

// breakOff ends all streams that have not ended.
func (p *proto2) breakOff(cause error, at time.Duration) {
	for _, s := range p.streams {
		p.fail(s, cause, at)
	}
}

func (p *proto2) fail(s *stream, cause error, at time.Duration) {
	if s.ra.ended == 0 && at != 0 {
		s.ra.ended = at
		s.ra.fail(cause)
	}
}
