package pgwire_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

// BenchmarkPassThrough compares Postgres with the wire in front of it: a
// prepared "select 1", 1 and 8 clients. Both are measured in turns, so that
// what else the machine does meets both. ratio is the wire's throughput by
// Postgres' own.
func BenchmarkPassThrough(b *testing.B) {
	w, err := pgwire.Start(b.Context(), pgwire.Config{Clock: clock.New(), Target: shared, Servers: []string{"sut-1"}, UnitLimit: 10_000_000})
	must(b, err)
	defer w.Close()
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			direct, through := dialAll(b, shared, clients), dialAll(b, w.URL("sut-1"), clients)
			const turns = 10
			each := max(1, b.N/clients/turns)
			var d, t time.Duration
			b.ResetTimer()
			for range turns {
				d += selectOne(b, direct, each)
				t += selectOne(b, through, each)
			}
			n := float64(turns * each * clients)
			b.ReportMetric(float64(d)/float64(t), "ratio")
			b.ReportMetric(float64(d.Microseconds())/n*float64(clients), "direct-us/op")
			b.ReportMetric(float64(t.Microseconds())/n*float64(clients), "wire-us/op")
		})
	}
}

func dialAll(b *testing.B, url string, n int) []*pgx.Conn {
	b.Helper()
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		conns[i] = connect(b, url, pgx.QueryExecModeCacheStatement)
	}
	selectOne(b, conns, 1) // prepares it
	return conns
}

// selectOne runs the statement so often on each connection, and says how long
// that took.
func selectOne(b *testing.B, conns []*pgx.Conn, times int) time.Duration {
	b.Helper()
	watch := clock.New()
	var all sync.WaitGroup
	for _, conn := range conns {
		all.Go(func() {
			for range times {
				var one int
				if err := conn.QueryRow(context.Background(), "select 1 where $1", true).Scan(&one); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return watch.Now()
}
