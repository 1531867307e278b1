package pgwire

import "strings"

// A scanner goes over SQL text token by token, as far as is needed to find
// where statements end: it knows comments, quoting, words and brackets.
type scanner struct {
	text      string
	at        int
	backslash bool // backslashes escape in plain strings too (standard_conforming_strings off)
}

type token byte

const (
	tokenEnd   token = iota
	tokenSpace       // white space or a comment
	tokenWord        // a keyword, name or number
	tokenQuoted
	tokenSemicolon
	tokenOpen
	tokenClose
	tokenOther
)

// next gives the kind of the next token and where it is.
func (s *scanner) next() (kind token, text string) {
	if s.at >= len(s.text) {
		return tokenEnd, ""
	}
	start := s.at
	kind = s.token()
	return kind, s.text[start:s.at]
}

func (s *scanner) token() token {
	c, rest := s.text[s.at], s.text[s.at:]
	switch {
	case isSpace(c):
		for s.at < len(s.text) && isSpace(s.text[s.at]) {
			s.at++
		}
		return tokenSpace
	case strings.HasPrefix(rest, "--"):
		s.to(strings.IndexAny(rest, "\r\n"), 0)
		return tokenSpace
	case strings.HasPrefix(rest, "/*"):
		s.comment()
		return tokenSpace
	case (c == 'e' || c == 'E') && len(rest) > 1 && rest[1] == '\'':
		s.at++
		s.quoted('\'', true)
		return tokenQuoted
	case c == '\'':
		s.quoted('\'', s.backslash)
		return tokenQuoted
	case c == '"':
		s.quoted('"', false)
		return tokenQuoted
	case c == '$':
		return s.dollar()
	case isWord(c):
		for s.at < len(s.text) && (isWord(s.text[s.at]) || s.text[s.at] == '$') {
			s.at++
		}
		return tokenWord
	}
	s.at++
	switch c {
	case ';':
		return tokenSemicolon
	case '(', '[':
		return tokenOpen
	case ')', ']':
		return tokenClose
	}
	return tokenOther
}

// to goes on by so many bytes and some more, or to the end where there are none.
func (s *scanner) to(found, more int) {
	if found < 0 {
		s.at = len(s.text)
		return
	}
	s.at += found + more
}

// comment goes over a comment; they nest.
func (s *scanner) comment() {
	depth := 0
	for s.at < len(s.text) {
		switch rest := s.text[s.at:]; {
		case strings.HasPrefix(rest, "/*"):
			depth++
			s.at += 2
		case strings.HasPrefix(rest, "*/"):
			depth--
			s.at += 2
			if depth == 0 {
				return
			}
		default:
			s.at++
		}
	}
}

// quoted goes over a quoted piece. A doubled quote reads as two pieces, which
// comes to the same.
func (s *scanner) quoted(quote byte, escapes bool) {
	s.at++
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		if c == quote {
			return
		}
		if c == '\\' && escapes && s.at < len(s.text) {
			s.at++
		}
	}
}

// dollar goes over $tag$ ... $tag$, or over the $ alone.
func (s *scanner) dollar() token {
	rest := s.text[s.at:]
	end := strings.IndexByte(rest[1:], '$')
	if end < 0 || !isTag(rest[1:1+end]) {
		s.at++
		return tokenOther
	}
	tag := rest[:end+2]
	s.at += len(tag)
	s.to(strings.Index(rest[len(tag):], tag), len(tag))
	return tokenQuoted
}

func isTag(s string) bool {
	for i := range len(s) {
		if !isWord(s[i]) || i == 0 && isDigit(s[i]) {
			return false
		}
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c >= 0x80
}
