package run

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
)

// WireMock forgets between runs what earlier ones called, but nothing that a
// run under way may still be asked about, and nothing that is not ours.
func TestJournalIsEmptiedBetweenRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	parts, err := provision.Up(ctx, provision.Options{Need: provision.Need{WireMock: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parts.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	c := &Conductor{parts: parts, wiremock: upstream.NewWireMock(parts.WireMock.URL())}
	get := func(path string) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, parts.WireMock.URL()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	emptied := func() int {
		t.Helper()
		get("/a-call-of-an-earlier-run")
		if err := c.emptyJournal(ctx); err != nil {
			t.Fatal(err)
		}
		var journal struct{ Meta struct{ Total int } }
		if err := json.Unmarshal(get("/__admin/requests"), &journal); err != nil {
			t.Fatal(err)
		}
		return journal.Meta.Total
	}
	c.under.Store(1)
	if n := emptied(); n != 0 {
		t.Errorf("%d calls are left when a run begins, want none", n)
	}
	c.under.Store(2)
	if n := emptied(); n != 1 {
		t.Errorf("%d calls are left although another run is under way, want 1", n)
	}
	c.under.Store(1)
	c.config.Parts.WireMockURL = parts.WireMock.URL()
	if n := emptied(); n != 2 {
		t.Errorf("%d calls are left in a WireMock that is not ours, want 2", n)
	}
}
