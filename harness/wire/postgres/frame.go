package pgwire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	headSize    = 5         // type and length
	inputBuffer = 64 << 10  // of each direction; also the most of a backend's message that is looked at
	outBuffer   = 32 << 10  // towards the server under test
	messageMost = 1<<30 - 1 // bytes of a message, as in Postgres
	unitMost    = 1 << 30   // bytes of a unit that wait for its end
	answerMost  = 1 << 30   // bytes of an answer that is held
)

// A frames reads one direction of a connection message by message. Bytes are
// never lost: what is not a whole message can still be taken.
type frames struct {
	r    *bufio.Reader
	idle func() // called before a read that may wait; may be nil
}

func newFrames(c net.Conn) *frames { return &frames{r: bufio.NewReaderSize(c, inputBuffer)} }

// A brokenError says that the bytes are no message of the protocol.
type brokenError struct{ why string }

func (e *brokenError) Error() string { return e.why }

// peek gives at least n of the next bytes, n at most inputBuffer.
func (f *frames) peek(n int) ([]byte, error) {
	if f.r.Buffered() < n && f.idle != nil {
		f.idle()
	}
	return f.r.Peek(n)
}

// next gives the next message's type and its length with its head.
func (f *frames) next() (kind byte, length int, err error) {
	head, err := f.peek(headSize)
	if err != nil {
		return 0, 0, err
	}
	body := int64(binary.BigEndian.Uint32(head[1:]))
	if body < 4 || body > messageMost {
		return 0, 0, &brokenError{fmt.Sprintf("message of type %q says that it has %d bytes; possible are 4 to %d", head[0], body, messageMost)}
	}
	return head[0], int(body) + 1, nil
}

// front gives the beginning of a message's body without taking it: all of it,
// or as much as is looked at.
func (f *frames) front(length int) ([]byte, error) {
	b, err := f.peek(min(length, inputBuffer))
	if err != nil {
		return nil, err
	}
	return b[headSize:], nil
}

// pass hands the next length bytes to sink, piece by piece. Where they end
// too early, sink has had what there was.
func (f *frames) pass(length int, sink func([]byte) error) error {
	for length > 0 {
		if f.r.Buffered() == 0 {
			if _, err := f.r.Peek(1); err != nil {
				return cutShort(err)
			}
		}
		piece, err := f.r.Peek(min(length, f.r.Buffered()))
		if err != nil {
			return cutShort(err)
		}
		if err := sink(piece); err != nil {
			return err
		}
		n, err := f.r.Discard(len(piece))
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}

// rest hands over what is left in the buffer after an error.
func (f *frames) rest(sink func([]byte) error) error {
	n := f.r.Buffered()
	if n == 0 {
		return nil
	}
	return f.pass(n, sink)
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frame builds a message.
func frame(kind byte, body ...byte) []byte {
	b := make([]byte, 0, headSize+len(body))
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	return append(b, body...)
}

var (
	syncFrame  = frame('S')
	flushFrame = frame('H')
)

func queryFrame(sql string) []byte { return frame('Q', append([]byte(sql), 0)...) }

// An errorBody is what we need of an ErrorResponse.
type errorBody struct{ severity, code, message string }

// fatal reports whether Postgres ends the connection with the error.
func (e errorBody) fatal() bool { return e.severity == "FATAL" || e.severity == "PANIC" }

// readError looks through the fields, as far as they are there.
func readError(body []byte) errorBody {
	var e errorBody
	for len(body) > 1 && body[0] != 0 {
		kind := body[0]
		text, rest := cString(body[1:])
		body = rest
		switch kind {
		case 'S':
			if e.severity == "" {
				e.severity = text
			}
		case 'V':
			e.severity = text
		case 'C':
			e.code = text
		case 'M':
			e.message = text
		}
	}
	return e
}

// cString cuts off a text that ends with a zero byte, or the whole.
func cString(b []byte) (text string, rest []byte) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:]
		}
	}
	return string(b), nil
}
