package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
)

func TestMaxInFlight(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []Interval
		want int
	}{
		{"none", nil, 0},
		{"one", []Interval{{1, 2}}, 1},
		{"one after the other", []Interval{{1, 2}, {2, 3}, {3, 4}}, 1},
		{"nested", []Interval{{1, 10}, {2, 9}, {3, 4}}, 3},
		{"never ended", []Interval{{1, 0}, {5, 6}, {7, 0}, {9, 10}}, 3},
		{"empty intervals do not count", []Interval{{5, 5}, {6, 4}, {1, 9}}, 1},
		{"all at once", []Interval{{1, 2}, {1, 2}, {1, 2}}, 3},
	} {
		if got := MaxInFlight(tc.in); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestMaxInFlightByCounting compares the sweep with looking at every instant.
func TestMaxInFlightByCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []Interval
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			in = append(in, Interval{time.Duration(rapid.IntRange(1, 20).Draw(t, "start")), time.Duration(rapid.IntRange(0, 20).Draw(t, "end"))})
		}
		want := 0
		for at := time.Duration(0); at <= 21; at++ {
			open := 0
			for _, i := range in {
				if i.Start <= at && (i.End == 0 || at < i.End) {
					open++
				}
			}
			want = max(want, open)
		}
		if got := MaxInFlight(in); got != want {
			t.Fatalf("%d, want %d of %v", got, want, in)
		}
	})
}

func TestIntervals(t *testing.T) {
	got := Intervals([]harness.Operation{{Sent: 1, Answered: 5}, {}, {Sent: 2}})
	if diff := cmp.Diff([]Interval{{1, 5}, {2, 0}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestClassify(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("connect: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)})
	}
	for _, tc := range []struct {
		err  error
		want Class
		ours bool
	}{
		{nil, "", false},
		{dial(syscall.EADDRNOTAVAIL), ClassPorts, true},
		{dial(syscall.EMFILE), ClassFiles, true},
		{dial(syscall.ENFILE), ClassFiles, true},
		{dial(syscall.ENOBUFS), ClassMemory, true},
		{dial(syscall.ECONNREFUSED), ClassRefused, false},
		{dial(syscall.ETIMEDOUT), ClassTimeout, false},
		{dial(os.ErrDeadlineExceeded), ClassTimeout, false},
		{context.DeadlineExceeded, ClassTimeout, false},
		{context.Canceled, ClassCancelled, true},
		{fmt.Errorf("send: %w", syscall.EPIPE), ClassReset, false},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), ClassReset, false},
		{io.ErrUnexpectedEOF, ClassClosed, false},
		{errors.New("odd"), ClassOther, false},
		{fmt.Errorf("around: %w", Errorf(ClassAnswer, "status line %q", "x")), ClassAnswer, false},
		{Errorf(ClassHeld, "because: %w", syscall.ECONNREFUSED), ClassHeld, true},
	} {
		got := Classify(tc.err)
		if got != tc.want || got.ClientSide() != tc.ours {
			t.Errorf("%v: %q, client side %v", tc.err, got, got.ClientSide())
		}
		if back := ClassOf(Describe(tc.err)); back != tc.want {
			t.Errorf("%q is read back as %q", Describe(tc.err), back)
		}
	}
	if got := ClassOf("something else: entirely"); got != ClassOther {
		t.Errorf("%q", got)
	}
}

func TestAccount(t *testing.T) {
	ops := []harness.Operation{
		{Sent: 1, Answered: 2},
		{Sent: 1, Answered: 2},
		{Sent: 1, Err: Describe(Errorf(ClassTimeout, "late"))},
		{Sent: 1, Err: Describe(syscall.ECONNRESET)},
		{Err: Describe(syscall.EADDRNOTAVAIL)},
		{Err: Describe(syscall.ECONNREFUSED)},
	}
	got := Account(8, 6, ops)
	want := Delivery{Planned: 8, Ready: 6, Sent: 4, Answered: 2, TimedOut: 1, Broken: 1, NotSent: 4, ClientSide: 1}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Delivery{})); diff != "" {
		t.Error(diff)
	}
	if got.AsPlanned() {
		t.Error("as planned, with four not sent")
	}
	for _, part := range []string{"8 planned", "6 ready", "4 sent", "2 answered", "1 timed out", "1 broken off", "4 not sent", "1 spoilt"} {
		if !strings.Contains(got.String(), part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	if Account(0, 0, nil).AsPlanned() {
		t.Error("nothing at all counts as planned")
	}
	if d := Account(2, 2, ops[:2]); !d.AsPlanned() || d.String() != "2 planned, 2 ready, 2 sent, 2 answered" {
		t.Errorf("%v", d)
	}
}
