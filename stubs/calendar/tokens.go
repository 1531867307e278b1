package calendar

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// expiresIn is what is told, in seconds. An access token ends when the next
// one is handed out or a scenario says so, not by time.
const expiresIn = 3600

// A session is what is known of a calendar's tokens.
type session struct {
	open    bool                  // the first refresh token is accepted, whatever it is
	valid   map[string]bool       // refresh tokens that are accepted: the last one, and those that were granted
	last    string                // refresh token
	access  string                // the one that is valid, empty for none
	ended   map[string]bool       // access tokens that were valid once
	keys    map[string]repeatable // by Idempotency-Key
	counter int                   // of tokens that were made
}

// repeatable is a token call that can be asked again.
type repeatable struct {
	refresh string // token that was presented
	answer  tokens
	at      time.Duration
}

// tokens is what a token call answers.
type tokens struct {
	Access    string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	ExpiresIn int    `json:"expires_in"` // seconds
}

func newSession() session {
	return session{open: true, valid: map[string]bool{}, ended: map[string]bool{}, keys: map[string]repeatable{}}
}

func (s session) clone() session {
	s.valid, s.ended, s.keys = maps.Clone(s.valid), maps.Clone(s.ended), maps.Clone(s.keys)
	return s
}

// refuses gives the word for why a call with this access token is not let in,
// "" when it is.
func (s *session) refuses(access string) string {
	switch {
	case access == "":
		return "unauthorized"
	case access == s.access:
		return ""
	case s.ended[access]:
		return "token_expired"
	}
	return "unauthorized"
}

// expire ends the access token.
func (s *session) expire() {
	if s.access != "" {
		s.ended[s.access] = true
		s.access = ""
	}
}

// revoke ends everything, also what could be asked again under its key.
func (s *session) revoke() {
	n := s.counter
	*s = newSession()
	s.open, s.counter = false, n
}

func (s *session) grant(refresh string) {
	s.open = false
	s.valid[refresh] = true
}

// rotate hands out the next pair, and ends the last one.
func (s *session) rotate(presented string, seed uint64, calendar string) tokens {
	s.expire()
	delete(s.valid, presented)
	delete(s.valid, s.last)
	s.counter++
	s.open, s.access, s.last = false, opaque(seed, calendar, "access", s.counter), opaque(seed, calendar, "refresh", s.counter)
	s.valid[s.last] = true
	return tokens{s.access, s.last, expiresIn}
}

// opaque makes a token that says nothing.
func opaque(seed uint64, calendar, use string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d", seed, calendar, use, n))
	return hex.EncodeToString(sum[:16])
}

// token decides on POST /token. p.mu is held.
func (p *provider) token(b *book, q request) double.Reply {
	s, now := &b.tokens, p.clock.Now()
	maps.DeleteFunc(s.keys, func(_ string, k repeatable) bool { return now-k.at >= p.keyWindow })
	before, repeated := s.keys[q.key]
	reply := double.Reply{Status: http.StatusOK, Word: "issued"}
	switch {
	case repeated && before.refresh != q.refresh:
		reply = double.Refuse(http.StatusUnprocessableEntity, "key_reused")
	case repeated:
		reply.Word, reply.Body = "repeated", before.answer
	case !s.open && !s.valid[q.refresh]:
		b.refused++
		reply = double.Refuse(http.StatusBadRequest, "invalid_grant")
	default:
		b.refreshes++
		answer := s.rotate(q.refresh, p.seed, b.name)
		s.keys[q.key] = repeatable{q.refresh, answer, now}
		reply.Body = answer
	}
	p.note(Call{Calendar: b.name, Call: Token, Outcome: reply.Word})
	return reply
}
