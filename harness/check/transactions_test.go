package check_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
)

// idle makes one session idle in a transaction since an instant, in all
// samples of an interval.
func idle(replica string, since, from, to float64) func(*harness.Record) {
	return func(r *harness.Record) {
		for i, s := range r.Activity {
			if s.At >= at(from) && s.At <= at(to) {
				r.Activity[i].Open = append(r.Activity[i].Open,
					harness.OpenTransaction{Replica: replica, PID: 77, Since: at(since), Query: "update rooms set  taken = true"})
			}
		}
	}
}

// samples keeps the samples of an interval alone.
func samples(from, to float64) func(*harness.Record) {
	return func(r *harness.Record) {
		var kept []harness.ActivitySample
		for _, s := range r.Activity {
			if s.At >= at(from) && s.At <= at(to) {
				kept = append(kept, s)
			}
		}
		r.Activity = kept
	}
}

func both(changes ...func(*harness.Record)) func(*harness.Record) {
	return func(r *harness.Record) {
		for _, c := range changes {
			c(r)
		}
	}
}

func stop(ms float64) func(*harness.Record) {
	return func(r *harness.Record) {
		r.History.Events = append(r.History.Events, harness.Event{At: at(ms), Kind: harness.EventProcess, Subject: "sut-1", Text: "signal: STOP"})
	}
}

// The fixture's call lasts from 110 ms to 210 ms and is sampled at 112, 122 … 202.
func TestOpenTransactionIsSeen(t *testing.T) {
	const (
		vacuous = harness.ReasonVacuous
		tooFew  = "no upstream call was long enough to sample the database sessions during it"
		held    = "a transaction was open during 1 upstream call of 1"
	)
	runAnomalies(t, []anomaly{
		{"all through the call", idle("sut-1", 105, 0, 999), "open", harness.Failed, "", held},
		{"idle just after we had the request", idle("sut-1", 113, 113, 999), "open", harness.Failed, "", held},
		{"looks that took long", func(r *harness.Record) {
			idle("sut-1", 105, 0, 999)(r)
			for i := range r.Activity { // all but one know the beginning 30 ms too late
				if i != 4 {
					r.Activity[i].Open[0].Since += at(30)
				}
			}
		}, "open", harness.Failed, "", held},
		{"a look that ended after the call", func(r *harness.Record) {
			idle("sut-1", 105, 0, 999)(r)
			last := len(r.Activity) - 1 // it saw the session after its commit
			r.Activity[last].Open, r.Activity[last].Until = nil, at(215)
		}, "open", harness.Failed, "", held},
		{"nearly to the end", idle("sut-1", 105, 0, 999), "open", harness.Failed, "", held},
		{"no samples", samples(0, 0), "open", harness.Unknown, vacuous, tooFew},
		{"two samples", samples(185, 999), "open", harness.Unknown, vacuous, tooFew},
		{"samples outside of the call only", func(r *harness.Record) {
			for i := range r.Activity {
				r.Activity[i].At += at(500)
			}
		}, "open", harness.Unknown, vacuous, tooFew},
		{"most calls unseen", func(r *harness.Record) {
			for i := range 2 {
				c := r.Upstream[0]
				c.Seq, c.Received, c.Accepted, c.Answered = 2+i, at(1000), at(1200), at(1200)
				r.Upstream = append(r.Upstream, c)
			}
		}, "open", harness.Unknown, vacuous, "only 1 of 3 upstream calls could be sampled"},
		{"no call", func(r *harness.Record) { r.Upstream = nil }, "open", harness.Unknown, vacuous, tooFew},
		{"another upstream's call", func(r *harness.Record) { r.Upstream[0].Upstream = "mail" }, "open", harness.Unknown, vacuous, tooFew},
		{"call too short", func(r *harness.Record) { r.Upstream[0].Received = at(160) }, "open", harness.Unknown, vacuous, tooFew},
		{
			"call that never ended", func(r *harness.Record) { r.Upstream[0].Accepted, r.Upstream[0].Answered = 0, 0 },
			"open", harness.Unknown, vacuous, tooFew,
		},
		{"server stopped during the call", both(idle("sut-1", 105, 0, 999), stop(150)), "open", harness.Unknown, vacuous, tooFew},
		{
			"the samples end early", both(idle("sut-1", 105, 0, 999), samples(0, 150)), "open", harness.Unknown, vacuous,
			"sut-1 backend 77 was idle in a transaction from before call 1, but the last sample was too early to say how long",
		},
		{
			"a session of unknown owner", idle("psycopg", 105, 0, 999), "open", harness.Unknown, vacuous,
			`a session of "psycopg" was idle in a transaction all through call 1, and no server has that name`,
		},
	})
}

func TestOpenTransactionEvidence(t *testing.T) {
	rec := whole()
	both(idle("psycopg", 105, 0, 999), idle("sut-1", 105, 0, 999))(&rec)
	v := judged(t, fixture(), rec, "open")
	want := "sut-1 backend 77 was idle in a transaction from +105.0 ms on, all through call 1 POST /book (+110.0 … +210.0 ms); " +
		"its last statement: update rooms set taken = true"
	if len(v.Evidence) != 1 || v.Evidence[0].Text != want || v.Evidence[0].Ops[0] != "op-1" {
		t.Errorf("%v %s %+v", v.Status, v.Summary, v.Evidence)
	}
}

// None of these is a transaction that waits for the call.
func TestInnocentTransactions(t *testing.T) {
	for name, change := range map[string]func(*harness.Record){
		"for a moment between two statements": idle("sut-1", 140, 140, 150),
		"the first part of the call only":     idle("sut-1", 105, 0, 180),
		"begun in the middle of the call":     idle("sut-1", 150, 150, 999),
		"busy in between":                     both(idle("sut-1", 105, 0, 140), idle("sut-1", 105, 160, 999)),
		"one transaction after the other": func(r *harness.Record) {
			idle("sut-1", 105, 0, 999)(r)
			for i := range r.Activity {
				r.Activity[i].Open[0].Period = strconv.Itoa(i / 3)
				r.Activity[i].Open[0].Since = r.Activity[i/3*3].At - at(2)
			}
		},
		"another server's":                    both(server("sut-2"), idle("sut-2", 105, 0, 999)),
		"early samples, but all of them free": samples(0, 150),
		"server stopped before the call":      both(stop(50), idle("sut-1", 140, 140, 150)),
	} {
		t.Run(name, func(t *testing.T) {
			rec := whole()
			change(&rec)
			if v := judged(t, fixture(), rec, "open"); v.Status != harness.Pass || !strings.HasSuffix(v.Summary, "1 upstream call sampled") {
				t.Errorf("%v %s %+v", v.Status, v.Summary, v.Evidence)
			}
		})
	}
}

// server makes a second server known by an operation that went to it.
func server(name string) func(*harness.Record) {
	return func(r *harness.Record) { r.History.Operations[3].Server = name }
}
