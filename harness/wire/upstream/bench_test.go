package upstream_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/wire/upstream"
)

// BenchmarkCall compares a target with the wire in front of it, under one and
// under 50 callers with open connections.
func BenchmarkCall(b *testing.B) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"charge_id":"charge-1"}`)
	}))
	defer target.Close()
	w, err := upstream.Start(b.Context(), upstream.Config{
		Clock: clock.New(), Name: "pyxis", Target: target.URL, Callers: []string{"sut-1"}, MaxCalls: 10_000_000,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for name, url := range map[string]string{"direct": target.URL, "wire": w.URL("sut-1")} {
		for _, callers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) { burst(b, url, callers) })
		}
	}
}

func burst(b *testing.B, url string, callers int) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				resp, err := client.Post(url+"/reserve", "application/json", bytes.NewReader([]byte(`{"seat":"A-001"}`)))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
}
