package pgwire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

const captures = "testdata/captures"

// TestCapture writes the captures that FuzzDecoder begins with: what a driver
// and Postgres said to each other behind the startup packet. It runs only
// when it is asked for.
func TestCapture(t *testing.T) {
	if os.Getenv("OVERBOOK_TEST_CAPTURE") == "" {
		t.Skip("set OVERBOOK_TEST_CAPTURE=1 to write the captures anew")
	}
	must(t, os.MkdirAll(captures, 0o755))
	for name, mode := range modes {
		x := startTap(t, database(t))
		conn := connect(t, x.url, mode)
		for _, s := range shapes {
			tolerate(t, s.name, func() error { return s.book(limit(t), conn) })
			exec(t, conn, "rollback")
		}
		tolerate(t, "copy", func() error {
			_, err := conn.CopyFrom(limit(t), pgx.Identifier{"slots"}, []string{"id"}, pgx.CopyFromRows([][]any{{301}, {302}}))
			return err
		})
		exec(t, conn, "listen news; notify news; select 1")
		must(t, conn.Close(limit(t)))
		asked, answered := x.bytes(t)
		asked = asked[binary.BigEndian.Uint32(asked):]
		must(t, os.WriteFile(filepath.Join(captures, name+".asked"), asked, 0o644))
		must(t, os.WriteFile(filepath.Join(captures, name+".answered"), answered, 0o644))
	}
}

// FuzzDecoder sends whatever bytes in both directions. The wire must not
// panic or hang, and must not change what it passes on: all of it, or a part
// up to a message that can't be one.
func FuzzDecoder(f *testing.F) {
	files, err := filepath.Glob(captures + "/*.asked")
	if err != nil || len(files) == 0 {
		f.Fatalf("no captures in %s: %v", captures, err)
	}
	for _, file := range files {
		asked, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		answered, err := os.ReadFile(strings.TrimSuffix(file, "asked") + "answered")
		if err != nil {
			f.Fatal(err)
		}
		for _, guided := range []bool{false, true} {
			f.Add(asked, answered, guided)
			f.Add(answered, asked, guided)
			f.Add(asked[:len(asked)/2], answered[:len(answered)/3], guided)
		}
	}
	// Found by fuzzing: either end stops in the middle of a message; a password in the middle of a unit.
	f.Add([]byte("P\xd6\xd6\xd6\xd6"), []byte("D\x00\x01\x00\x2b and no more"), false)
	f.Add([]byte("Q\x00\x00\x00\x0dselect 1\x00"), []byte("Z\x00\x00\x00\x05I1\x00\x00\x06\x00"), true)
	f.Add([]byte("P\x00\x00\x00\x0b\x00x\x00\x00\x00p\x00\x00\x00\x04S\x00\x00\x00\x04"), []byte("Z\x00\x00\x00\x05I"), false)
	f.Fuzz(func(t *testing.T, asked, answered []byte, guided bool) {
		came, went, err := converse(t, asked, answered, guided)
		if guided {
			return // it waits for answers that don't come, and may add to what is asked: it must end
		}
		whole := err == nil || !strings.Contains(err.Error(), "says that it has")
		if whole && (!bytes.Equal(came, asked) || !bytes.Equal(went, answered)) {
			t.Fatalf("%d bytes asked, %d came; %d answered, %d arrived (%v)", len(asked), len(came), len(answered), len(went), err)
		}
		if !bytes.HasPrefix(asked, came) || !bytes.HasPrefix(answered, withoutFarewell(went)) {
			t.Fatalf("what was passed on is not the beginning of what was sent (%v)", err)
		}
	})
}

// withoutFarewell cuts off the word with which the wire ends a connection,
// which may have arrived in part.
func withoutFarewell(b []byte) []byte {
	for i := max(0, len(b)-200); i < len(b); i++ {
		if word := b[min(len(b), i+5):]; b[i] == 'E' && (bytes.HasPrefix(word, []byte("SFATAL\x00V")) || len(word) < 9 && bytes.HasPrefix([]byte("SFATAL\x00V"), word)) {
			return b[:i]
		}
	}
	return b
}

// converse has a client and a database that say what they are told to, with a
// wire between them. It gives what arrived at either end.
func converse(t *testing.T, asked, answered []byte, guided bool) (came, went []byte, err error) {
	t.Helper()
	l, lerr := net.Listen("tcp4", "127.0.0.1:0")
	must(t, lerr)
	defer l.Close()
	startup := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 9}, 196608)
	startup = append(startup, 0)
	called := false
	var database sync.WaitGroup
	database.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		called = true
		_ = conn.SetDeadline(clock.Wall().Add(patience))
		var writer sync.WaitGroup
		defer writer.Wait()
		writer.Go(func() { _, _ = conn.Write(answered) })
		came, _ = io.ReadAll(conn)
	})
	w, werr := pgwire.Start(t.Context(), pgwire.Config{Clock: clock.New(), Target: fmt.Sprintf("postgres://u@%s/db", l.Addr()), Servers: []string{"a"}, Split: guided})
	must(t, werr)
	if guided {
		w.Inject(harness.Fault{Action: harness.ActionError, Code: "40001", At: harness.BeforeCommit, Nth: 2})
		w.Inject(harness.Fault{Action: harness.ActionDelay, Delay: 1, At: harness.AfterStatement})
	}
	defer w.Close()
	conn, derr := net.Dial("tcp4", strings.TrimPrefix(strings.TrimSuffix(w.URL("a"), "/db?sslmode=disable"), "postgres://u@"))
	must(t, derr)
	defer conn.Close()
	must(t, conn.SetDeadline(clock.Wall().Add(patience)))
	var client sync.WaitGroup
	client.Go(func() {
		_, _ = conn.Write(append(bytes.Clone(startup), asked...))
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	went, rerr := io.ReadAll(conn)
	client.Wait()
	if timeout, ok := rerr.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // as it comes from the socket
		t.Fatal("the wire hangs")
	}
	must(t, w.Close())
	_ = l.Close() // nobody called, where the machine is out of ports after so many calls
	database.Wait()
	if !called {
		t.Skip("the wire could not call the database")
	}
	return came[min(len(came), len(startup)):], went, w.Err()
}
