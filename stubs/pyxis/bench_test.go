package pyxis_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// BenchmarkHops compares one caller's read at the double, through WireMock,
// and through wire and WireMock, taking turns. It reports medians.
func BenchmarkHops(b *testing.B) {
	c := newChain(b)
	client := &http.Client{Timeout: bound}
	urls := []string{c.double, c.mock.URL() + c.prefix, c.wire.URL("sut-1")}
	names := []string{"double", "wiremock", "wire"}
	took := make([][]float64, len(urls))
	watch := clock.New()
	for b.Loop() {
		for i, url := range urls {
			req, err := http.NewRequestWithContext(b.Context(), "GET", url+"/charges/current?student=student-1", nil)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer student-1")
			from := watch.Now()
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			took[i] = append(took[i], float64(watch.Now()-from)/float64(time.Microsecond))
		}
	}
	for i, name := range names {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2], name+"-p50-us")
	}
}

// BenchmarkBurst is 100 callers at once with a lognormal latency, through
// WireMock and through wire and WireMock, taking turns. The n-th call of a
// double takes as long in both, as both start with a fresh one.
func BenchmarkBurst(b *testing.B) {
	const n = 100
	took := map[string][]float64{}
	for b.Loop() {
		for _, hop := range []string{"wiremock", "wire"} {
			c := newChain(b)
			c.configure(b, `{"latency": {"model": "lognormal", "median_ms": 150, "sigma": 0.4}}`)
			url := c.mock.URL() + c.prefix
			if hop == "wire" {
				url = c.wire.URL("sut-1")
			}
			watch := clock.New()
			times := make([]float64, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					student := fmt.Sprintf("student-%d", i)
					ask(b, "POST", url+"/reserve", student, reserveBody(student, "A-001", "ref"))
					times[i] = float64(watch.Now()) / float64(time.Millisecond)
				})
			}
			wg.Wait()
			slices.Sort(times)
			took[hop] = append(took[hop], times[n*95/100-1])
		}
	}
	for hop, p95 := range took {
		slices.Sort(p95)
		b.ReportMetric(p95[len(p95)/2], hop+"-median-p95-ms")
	}
}
