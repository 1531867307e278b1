package wirehttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// TestLosingTheAnswer: the client is gone, the server did its work, and the
// outcome is unknown.
func TestLosingTheAnswer(t *testing.T) {
	for _, lose := range []harness.Lose{harness.LoseAfterSend, harness.LoseAnswer} {
		t.Run(string(lose), func(t *testing.T) {
			served := make(chan string, 2)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served <- r.Header.Get("Idempotency-Key")
				w.WriteHeader(http.StatusCreated)
			}))
			defer server.Close()
			op := testClient(clock.New()).Do(t.Context(), server.URL, harness.Request{
				Kind: "book", Method: "POST", Path: "/", Header: map[string]string{"idempotency-key": "k-1"}, Lose: lose,
			})
			if op.Outcome != harness.Info || op.Status != 0 || op.Sent == 0 || op.Answered != 0 || !strings.HasPrefix(op.Err, "client-gone") || op.Key != "k-1" {
				t.Errorf("operation %+v, want info, no answer, client-gone", op)
			}
			select {
			case key := <-served:
				if key != "k-1" {
					t.Errorf("the server saw key %q", key)
				}
			case <-t.Context().Done():
				t.Fatal("the server never had the request")
			}
		})
	}
}

// TestActingBeforeTheAnswer: what is done at the first byte is done before
// anybody has the answer, once.
func TestActingBeforeTheAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer server.Close()
	calls := 0
	op := testClient(clock.New()).DoUntil(t.Context(), server.URL, harness.Request{Kind: "book", Method: "POST", Path: "/"}, func(_ context.Context, op harness.Operation) {
		calls++
		if op.Kind != "book" || op.Sent == 0 {
			t.Errorf("told of %+v, want the operation, sent", op)
		}
	})
	if calls != 1 || op.Status != 0 || op.Outcome != harness.Info {
		t.Errorf("%d calls, operation %+v; want one, and an unknown outcome", calls, op)
	}
}

// TestBodyThatIsNoJSON is sent as it is, and recorded so that the record can
// be written.
func TestBodyThatIsNoJSON(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	}))
	defer server.Close()
	op := testClient(clock.New()).Do(t.Context(), server.URL, harness.Request{Kind: "bad", Method: "POST", Path: "/", Body: []byte(`{"slot":`)})
	if body := <-got; body != `{"slot":` {
		t.Errorf("the server got %q", body)
	}
	if _, err := json.Marshal(op); err != nil || string(op.Input) != `"{\"slot\":"` {
		t.Errorf("recorded as %s (%v), want a string", op.Input, err)
	}
}
