package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	mock "github.com/wiremock/go-wiremock"
)

// Tally counts the requests of the run in WireMock's journal for this method
// and path, as [WireMock.Count] does, by a field of their JSON body (see
// [FieldOf]). It is one call whatever the number of values: the journal looks
// through all of its entries for each count that it is asked for. When the
// journal cannot vouch for the numbers, the error wraps [ErrNoCount].
func (m *WireMock) Tally(ctx context.Context, method, pathWithPrefix, runID, field string) (map[string]int, error) {
	failed := func(err error) (map[string]int, error) {
		return nil, fmt.Errorf("count %s %s of run %s by %s: %w: %w", method, pathWithPrefix, runID, field, ErrNoCount, err)
	}
	total, err := m.Count(ctx, method, pathWithPrefix, runID)
	if err != nil {
		return failed(err)
	}
	var found struct {
		Requests []struct {
			Body string `json:"body"`
		} `json:"requests"`
	}
	pattern := mock.NewRequest(method, mock.URLPathEqualTo(pathWithPrefix)).WithHeader(RunHeader, mock.EqualTo(runID))
	if err := m.admin(ctx, http.MethodPost, "/requests/find", pattern, http.StatusOK, &found); err != nil {
		return failed(err)
	}
	if len(found.Requests) != total {
		return failed(fmt.Errorf("the journal lists %d requests and counts %d", len(found.Requests), total))
	}
	tally := map[string]int{}
	for _, r := range found.Requests {
		tally[FieldOf([]byte(r.Body), field)]++
	}
	return tally, nil
}

// FieldOf gives the text of a field at the top of a JSON body; "" when the body
// is no JSON object, has no such field, or one that is no text.
func FieldOf(body []byte, field string) string {
	var fields map[string]any
	_ = json.Unmarshal(body, &fields) // not JSON: no field
	text, _ := fields[field].(string)
	return text
}
