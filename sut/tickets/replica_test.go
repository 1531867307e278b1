package tickets

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// A replica is a whole server on a backstage's database, over HTTP.
type replica struct {
	b   *backstage
	url string
	end func() // stops it at once
}

func (b *backstage) replica(name string) *replica {
	b.t.Helper()
	cfg := b.cfg
	cfg.Replica = name
	s, err := Start(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	r := &replica{b: b, url: server.URL}
	r.end = sync.OnceFunc(func() { s.Close(); server.CloseClientConnections(); server.Close() })
	b.t.Cleanup(r.end)
	return r
}

// send gives the answer's "201" or "409 seat-taken", and its body.
func (r *replica) send(method, path, who, body string) (kind string, doc map[string]any) {
	r.b.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.b.t.Fatal(err)
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+who)
	}
	res, err := client.Do(req)
	if err != nil {
		return err.Error(), nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error(), nil
	}
	_ = json.Unmarshal(text, &doc) // metrics are none
	if path == "/metrics" {
		return string(text), nil
	}
	kind = strconv.Itoa(res.StatusCode)
	if word, ok := doc["type"].(string); ok && res.StatusCode >= 400 {
		kind += " " + strings.TrimPrefix(word, "/problems/")
	}
	return kind, doc
}

// seats puts free seats on sale.
func (b *backstage) seats(names ...string) {
	b.t.Helper()
	for i, name := range names {
		b.exec(`insert into seats (show_id, seat, rank, state, changed_at) values (1, $1, $2, 'FREE', $3)`, name, i, b.now())
	}
}

// buy claims a seat and charges a card for it; it gives the hold and what the
// charge was answered with.
func (r *replica) buy(who, seat, card string) (uuid.UUID, string) {
	r.b.t.Helper()
	kind, doc := r.send("POST", "/tickets/shows/1/holds", who, fmt.Sprintf(`{"seat":%q}`, seat))
	if kind != "201" {
		r.b.t.Fatalf("claim of %s by %s: %s %v", seat, who, kind, doc)
	}
	hold := uuid.MustParse(doc["hold_id"].(string))
	kind, _ = r.send("POST", "/tickets/holds/"+hold.String()+"/charges", who, fmt.Sprintf(`{"card":%q}`, card))
	return hold, kind
}

// metric reads one figure; NaN-like "" when it is not there.
func (r *replica) metric(name string) string {
	text, _ := r.send("GET", "/metrics", "", "")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}
