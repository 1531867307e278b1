package harness

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestOpenLoopsThatMakeNoSense(t *testing.T) {
	fine := OpenLoop{Name: "sale", Arrivals: []time.Duration{0, 5, 5, 7}, Client: func(context.Context, Visitor) {}, Connections: 1, Deadline: 8}
	if err := fine.Validate(); err != nil {
		t.Error(err)
	}
	for want, breaks := range map[string]func(l *OpenLoop){
		"needs a name":                       func(l *OpenLoop) { l.Name = "" },
		"nobody arrives":                     func(l *OpenLoop) { l.Arrivals = nil },
		"client 2 arrives at 4ns, before":    func(l *OpenLoop) { l.Arrivals = []time.Duration{0, 5, 4, 7} },
		"client 0 arrives at -1ns, before":   func(l *OpenLoop) { l.Arrivals = []time.Duration{-1} },
		"nothing to do":                      func(l *OpenLoop) { l.Client = nil },
		"0 connections":                      func(l *OpenLoop) { l.Connections = 0 },
		"7ns, is not after the last arrival": func(l *OpenLoop) { l.Deadline = 7 },
	} {
		l := fine
		breaks(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestLateAllowed(t *testing.T) {
	for _, tc := range []struct{ slack, last, want time.Duration }{
		{0, time.Second, 100 * time.Millisecond}, {0, 30 * time.Second, 300 * time.Millisecond}, {time.Millisecond, time.Minute, time.Millisecond},
	} {
		l := OpenLoop{Arrivals: []time.Duration{0, tc.last}, Slack: tc.slack}
		if got := l.LateAllowed(); got != tc.want {
			t.Errorf("slack %s of a schedule of %s: %s, want %s", tc.slack, tc.last, got, tc.want)
		}
	}
	if got := (OpenLoop{}).LateAllowed(); got != 0 {
		t.Errorf("of nobody: %s", got)
	}
}
