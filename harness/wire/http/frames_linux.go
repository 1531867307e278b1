package wirehttp

import (
	"encoding/binary"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/overbook/overbook/harness/load"
)

// take reads all whole frames among the bytes so far. Before the release, at
// is zero and everything about a stream counts as early.
func (p *proto2) take(b []byte, at time.Duration) {
	p.in.Write(b)
	for p.err == nil && p.in.Len() >= headLen {
		head := p.in.Bytes()[:headLen]
		length := int(binary.BigEndian.Uint32(head) >> 8)
		if length > frameMax {
			p.err = bad("not HTTP/2, or a frame of %d bytes where %d are allowed", length, frameMax)
			return
		}
		if p.in.Len() < headLen+length {
			return
		}
		f, err := p.fr.ReadFrame()
		if err != nil {
			p.err = bad("HTTP/2 frame: %v", err)
			return
		}
		p.handle(f, at)
	}
}

func (p *proto2) handle(f http2.Frame, at time.Duration) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		p.settings(f)
	case *http2.PingFrame:
		if f.IsAck() {
			p.pinged = true
		} else {
			_ = p.fr.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			p.window += int(f.Increment)
		} else if s := p.stream(f.StreamID); s != nil {
			s.window += int(f.Increment)
		}
	case *http2.GoAwayFrame:
		p.goAway(f, at)
	case *http2.RSTStreamFrame:
		p.reset(f, at)
	case *http2.HeadersFrame:
		p.block = headerBlock{stream: f.StreamID, data: slices.Clone(f.HeaderBlockFragment()), end: f.StreamEnded()}
		p.headers(f.HeadersEnded(), at)
	case *http2.ContinuationFrame:
		p.block.data = append(p.block.data, f.HeaderBlockFragment()...)
		p.headers(f.HeadersEnded(), at)
	case *http2.DataFrame:
		p.data(f, at)
	case *http2.PushPromiseFrame:
		p.err = bad("a push, which was forbidden")
	}
}

func (p *proto2) settings(f *http2.SettingsFrame) {
	if f.IsAck() {
		return
	}
	_ = f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingMaxConcurrentStreams:
			p.maxStreams = s.Val
		case http2.SettingMaxFrameSize:
			p.maxFrame = min(int(s.Val), 1<<20)
		case http2.SettingHeaderTableSize:
			p.enc.SetMaxDynamicTableSizeLimit(min(s.Val, 4096))
		case http2.SettingInitialWindowSize:
			for _, st := range p.streams {
				st.window += int(s.Val) - p.initial
			}
			p.initial = int(s.Val)
		default: // says nothing about what we may send
		}
		return nil
	})
	p.settled = true
	_ = p.fr.WriteSettingsAck()
}

func (p *proto2) stream(id uint32) *stream {
	if i := int(id-1) / 2; id%2 == 1 && i < len(p.streams) {
		return p.streams[i]
	}
	return nil
}

// goAway ends the streams that the server says it will not act on. That is
// the server's word alone, so they end as uncertain, like the others.
func (p *proto2) goAway(f *http2.GoAwayFrame, at time.Duration) {
	if !p.released {
		p.err = load.Errorf(load.ClassClosed, "the server sent GOAWAY (%v) before the release", f.ErrCode)
		return
	}
	for _, s := range p.streams {
		if s.id > f.LastStreamID {
			p.fail(s, load.Errorf(load.ClassReset, "the server sent GOAWAY (%v)", f.ErrCode), at)
		}
	}
}

func (p *proto2) reset(f *http2.RSTStreamFrame, at time.Duration) {
	s := p.stream(f.StreamID)
	switch {
	case s == nil:
		p.err = bad("reset of the stream %d, which does not exist", f.StreamID)
	case !p.released:
		p.unasked++
	default:
		p.fail(s, load.Errorf(load.ClassReset, "the server reset the stream (%v)", f.ErrCode), at)
	}
}

// headers takes a header block once it is whole.
func (p *proto2) headers(whole bool, at time.Duration) {
	if len(p.block.data) > headMax {
		p.err = bad("header block of more than %d bytes", headMax)
		return
	}
	if !whole {
		return
	}
	fields, err := p.dec.DecodeFull(p.block.data) // always, as the decoder has a memory
	if err != nil {
		p.err = bad("header block: %v", err)
		return
	}
	s := p.stream(p.block.stream)
	switch {
	case s == nil:
		p.err = bad("answer on the stream %d, which does not exist", p.block.stream)
	case !p.released:
		p.unasked++
	case s.ra.ended != 0: // given up before
	case s.a.status != 0: // trailers
		if !p.block.end {
			p.fail(s, bad("a second header block in the middle of the answer"), at)
			return
		}
		p.complete(s, at)
	default:
		p.start(s, fields, at)
	}
}

// start takes the first header block of an answer, or an interim one.
func (p *proto2) start(s *stream, fields []hpack.HeaderField, at time.Duration) {
	status, header := 0, map[string]string{}
	for _, f := range fields {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		switch {
		case f.Name == ":status":
			status, _ = readNumber(f.Value, 10)
		case strings.HasPrefix(f.Name, ":"):
			p.fail(s, bad("pseudo field %q in an answer", f.Name), at)
			return
		case header[name] == "":
			header[name] = f.Value
		}
	}
	switch {
	case status < 100 || status > 599 || (status < 200 && p.block.end):
		p.fail(s, bad("status %d", status), at)
		return
	case status < 200:
		return
	}
	s.a.status, s.a.header = status, header
	if text, ok := header["Content-Length"]; ok {
		n, err := readNumber(text, 10)
		if err != nil {
			p.fail(s, bad("Content-Length %q", text), at)
			return
		}
		s.length = n
	}
	if p.block.end {
		p.complete(s, at)
	}
}

func (p *proto2) data(f *http2.DataFrame, at time.Duration) {
	s := p.stream(f.StreamID)
	switch {
	case s == nil:
		p.err = bad("data on the stream %d, which does not exist", f.StreamID)
		return
	case !p.released:
		p.unasked++
		return
	case s.ra.ended != 0:
		return
	case s.a.status == 0:
		p.fail(s, bad("body before the status"), at)
		return
	}
	b := f.Data()
	if s.a.size += len(b); s.a.size > bodyMax {
		p.fail(s, bad("body of more than %d bytes", bodyMax), at)
		return
	}
	s.a.body = append(s.a.body, b[:min(len(b), outputCap-len(s.a.body))]...)
	if f.StreamEnded() {
		p.complete(s, at)
	}
}

// complete ends a stream whose answer is whole.
func (p *proto2) complete(s *stream, at time.Duration) {
	bodiless := s.ra.req.Method == "HEAD" || s.a.status == 204 || s.a.status == 304
	if s.length >= 0 && s.length != s.a.size && !bodiless {
		p.fail(s, bad("body of %d bytes where %d were announced", s.a.size, s.length), at)
		return
	}
	s.ra.answer(s.a, at)
}
