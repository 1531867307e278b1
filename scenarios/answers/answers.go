// Package answers owns how scenarios read what clients were told: the word for
// an answer, how many were told which word, how many calls overlapped, and the
// checks that compare such words with what should have been said.
//
// It knows HTTP and problem documents and nothing of any design: whatever it
// judges it is told by the scenario. It must not send anything, and a judgement
// of it is a pure function of the record.
package answers

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// Bearer is the header of a caller with the token.
func Bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// Word is what a client was told, in one word or two: the status, and of a
// problem the last part of its type ("409 slot-taken"); "none" without an answer.
func Word(op harness.Operation) string {
	if op.Status == 0 {
		return "none"
	}
	if t := ProblemType(op); t != "" {
		return strconv.Itoa(op.Status) + " " + t
	}
	return strconv.Itoa(op.Status)
}

// ProblemType is the last part of a problem's type, "" when the answer is none.
func ProblemType(op harness.Operation) string {
	var p struct {
		Type string `json:"type"`
	}
	if op.Status < 400 || json.Unmarshal([]byte(op.Output), &p) != nil {
		return ""
	}
	return p.Type[strings.LastIndex(p.Type, "/")+1:]
}

// As gives the request another kind, for checks that must tell it from others.
func As(kind string, r harness.Request) harness.Request {
	r.Kind = kind
	return r
}

// WitnessOverlap records how many were in flight at once; half of the burst
// must have been for it to be a race.
func WitnessOverlap(env harness.Env, r harness.BurstReport) {
	env.Witness("max_in_flight", float64(max(2, r.Requests/2)), float64(r.MaxInFlight), "requests of "+r.Name+" sent and unanswered at one instant")
}

// Overlapping counts the most operations that were under way at one instant.
func Overlapping(ops []harness.Operation) int {
	type edge struct {
		at    int64
		enter int
	}
	edges := make([]edge, 0, 2*len(ops))
	for _, op := range ops {
		if op.Sent != 0 && op.Answered > op.Sent {
			edges = append(edges, edge{int64(op.Sent), 1}, edge{int64(op.Answered), -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { // who ends at an instant is gone before another begins
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return a.enter - b.enter
	})
	most, now := 0, 0
	for _, e := range edges {
		now += e.enter
		most = max(most, now)
	}
	return most
}

// Once is the witness of something that took place once or not at all.
func Once(tookPlace bool) float64 {
	if tookPlace {
		return 1
	}
	return 0
}

// WithHeader changes one header field of the request; "" takes it away.
func WithHeader(r harness.Request, name, value string) harness.Request {
	h := maps.Clone(r.Header)
	delete(h, name)
	if value != "" {
		h[name] = value
	}
	r.Header = h
	return r
}

// WithBody gives the request another body, which need not be JSON.
func WithBody(r harness.Request, body string) harness.Request {
	r.Body = json.RawMessage(body)
	return r
}

// WithToken is the request with another token, or with none. Whoever sends it
// is nobody that a check would let see something.
func WithToken(r harness.Request, token string) harness.Request {
	value := ""
	if token != "" {
		value = "Bearer " + token
	}
	r = WithHeader(r, "Authorization", value)
	r.Caller = ""
	return r
}
