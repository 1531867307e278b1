package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"
)

// Bounds of what is kept of a process's output.
const (
	TailLimit = 400              // lines in memory; the oldest are dropped
	LogLimit  = int64(256) << 20 // bytes in the log file; what comes later is dropped, with a line that says so
	lineLimit = 16 << 10         // bytes of a line; a longer one counts as several
)

// output takes in what the process prints: into the log file, into the tail,
// and past the ready expression. It goes on reading whatever happens to the
// log, so that the process never blocks on its output.
type output struct {
	want  *regexp.Regexp
	ready chan struct{} // closed at the ready line

	mu    sync.Mutex
	log   *os.File // nil: none, or given up
	room  int64    // left in the log
	tail  []string
	match []string
}

func newOutput(path string, want *regexp.Regexp) (*output, error) {
	o := &output{want: want, ready: make(chan struct{}), room: LogLimit}
	if path == "" {
		return o, nil
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open its log: %w", err)
	}
	o.log = log
	return o, nil
}

// read takes lines until the end of the pipe or its deadline.
func (o *output) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, lineLimit)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			o.take(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (o *output) take(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(line)
	text := string(bytes.TrimRight(line, "\r\n"))
	o.keep(text)
	if o.want == nil || o.match != nil {
		return
	}
	if o.match = o.want.FindStringSubmatch(text); o.match != nil {
		close(o.ready)
	}
}

func (o *output) keep(text string) {
	if len(o.tail) >= TailLimit {
		o.tail = slices.Delete(o.tail, 0, TailLimit/4)
	}
	o.tail = append(o.tail, text)
}

// write appends to the log; when that cannot go on, the tail says why.
func (o *output) write(line []byte) {
	if o.log == nil {
		return
	}
	var err error
	if o.room -= int64(len(line)); o.room < 0 {
		err = fmt.Errorf("more than %d MiB", LogLimit>>20)
		_, _ = fmt.Fprintln(o.log, "[overbook: the rest of the output was dropped]")
	} else {
		_, err = o.log.Write(line)
	}
	if err != nil {
		o.keep(fmt.Sprintf("[overbook: log file given up: %v]", err))
		o.log.Close()
		o.log = nil
	}
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil {
		o.log.Close()
		o.log = nil
	}
}

func (o *output) last(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tail[max(0, len(o.tail)-n):])
}

func (o *output) matched() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.match)
}
