// Package idempotency has an operation done once under its key, however often
// it is asked for: the key is taken in the transaction that does the operation,
// and the answer is stored by that transaction, so that the two exist together
// or not at all. A key has a scope (who, what kind of operation), and a
// fingerprint of the request tells a retry from another request that reuses
// the key.
//
// What must not happen here: words of one design, HTTP, opening or ending
// transactions, deciding what an operation answers.
package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Scope is what a key is unique in, with the key.
type Scope struct {
	Principal string // who is calling
	Type      string // of operation
	Key       string
}

// An Answer is what the operation was answered with, byte for byte.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
}

// A Stored operation was done before under its key.
type Stored struct {
	Answer

	Fingerprint string
	CreatedAt   time.Time // server time, when its key was taken
	CompletedAt time.Time
}

// A Policy says for how long what is stored counts. RetryWindow is at most
// Retention.
type Policy struct {
	RetryWindow time.Duration // a retry gets the stored answer
	Retention   time.Duration // the key is remembered
}

// A Verdict is what a key says about a request.
type Verdict int

// The verdicts.
const (
	Taken      Verdict = iota // the key is new, or as good as new, and now the transaction's: do it
	Replay                    // a retry: give the stored answer
	Reused                    // another request was done under the key
	WindowOver                // a retry that comes too late to be told its answer
)

// judge gives the verdict on a request whose key was used before. Taken: that
// was so long ago that it counts no more.
func (p Policy) judge(s Stored, fingerprint string, now time.Time) Verdict {
	age := now.Sub(s.CreatedAt)
	switch {
	case age >= p.Retention:
		return Taken
	case s.Fingerprint != fingerprint:
		return Reused
	case age >= p.RetryWindow:
		return WindowOver
	}
	return Replay
}

// Fingerprint stands for a request: the operation, what it is done to, and the
// JSON body, whose white space and order of members don't matter. An empty
// body is an empty object. The error says that the body is not one JSON value.
func Fingerprint(operation, target string, body []byte) (string, error) {
	canonical, err := canonicalJSON(body)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", operation, target, canonical))
	return hex.EncodeToString(sum[:]), nil
}

func canonicalJSON(body []byte) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return []byte("{}"), nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // a number stands as it was written: 1e400 has no other form
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("read the body as JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read the body as JSON: something follows the value")
	}
	return json.Marshal(v) // members in order, no white space
}
