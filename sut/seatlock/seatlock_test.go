package seatlock_test

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/overbook/overbook/sut/seatlock"
)

func locker(t *testing.T, url string, log *slog.Logger, trouble *int) *seatlock.Locker {
	t.Helper()
	l, err := seatlock.New(seatlock.Config{URL: url, Prefix: "p:", TTL: 10 * time.Second, Log: log, OnTrouble: func() { *trouble++ }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestOneHolder(t *testing.T) {
	redis := miniredis.RunT(t)
	trouble := 0
	a := locker(t, "redis://"+redis.Addr(), slog.New(slog.DiscardHandler), &trouble)
	b := locker(t, "redis://"+redis.Addr(), slog.New(slog.DiscardHandler), &trouble)
	releaseA, taken := a.Acquire(t.Context(), "A-1")
	if taken {
		t.Fatal("a free seat is taken")
	}
	if _, taken := b.Acquire(t.Context(), "A-1"); !taken {
		t.Error("two hold the seat")
	}
	releaseOther, taken := b.Acquire(t.Context(), "A-2")
	if taken {
		t.Error("another seat is taken")
	}
	releaseOther()
	releaseA()
	releaseB, taken := b.Acquire(t.Context(), "A-1")
	if taken {
		t.Error("a released seat is taken")
	}
	redis.FastForward(11 * time.Second)
	releaseC, taken := a.Acquire(t.Context(), "A-1")
	if taken {
		t.Error("a lock outlives its TTL")
	}
	releaseB() // too late: must not take the lock from its new holder
	if !redis.Exists("p:library:seat:A-1") {
		t.Error("a late release dropped another's lock")
	}
	releaseC()
	if trouble != 0 {
		t.Errorf("trouble counted %d times, want none", trouble)
	}
}

func TestWithoutRedis(t *testing.T) {
	trouble := 0
	l := locker(t, "", slog.New(slog.DiscardHandler), &trouble)
	for range 2 {
		if _, taken := l.Acquire(t.Context(), "A-1"); taken {
			t.Error("taken, by nobody")
		}
	}
}

// TestSilentRedis: a Redis that accepts and never answers costs one short
// deadline, one line in the log, and then nothing for a while.
func TestSilentRedis(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	var log bytes.Buffer
	trouble := 0
	l := locker(t, "redis://"+silent.Addr().String(), slog.New(slog.NewTextHandler(&log, nil)), &trouble)
	for range 50 {
		release, taken := l.Acquire(t.Context(), "A-1")
		if taken {
			t.Fatal("a silent Redis took the seat")
		}
		release()
	}
	if trouble == 0 || trouble > 10 {
		t.Errorf("Redis was asked in vain %d times in a row, want it left alone after a failure", trouble)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines logged, want 1:\n%s", n, &log)
	}
}
