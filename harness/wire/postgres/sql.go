package pgwire

import (
	"regexp"
	"slices"
	"strings"
)

const (
	recordedSQL = 4 << 10  // bytes of a statement in the record
	matchedSQL  = 64 << 10 // bytes of a statement that Match is tried on
	lineSQL     = 160      // bytes of a statement in a strike
)

// A control says what a statement does to the transaction it is in.
type control byte

const (
	controlNone control = iota
	controlBegin
	controlCommit
	controlRollback // of the whole transaction, also PREPARE TRANSACTION
)

// A statement is what is known of one statement's text. It doesn't change
// once it is made, but for the types of its parameters.
type statement struct {
	text     string // as the server wrote it, for the record
	match    string // with its white space made single
	control  control
	chain    bool   // COMMIT AND CHAIN, ROLLBACK AND CHAIN
	copyIn   bool   // COPY ... FROM STDIN
	plain    bool   // runs in a transaction block just as outside of one; of a COMMIT: there is nothing wrong with it
	blank    bool   // nothing but white space and comments
	forgets  bool   // DEALLOCATE, DISCARD
	prepares string // what PREPARE names
	name     string // that PREPARE gives and DEALLOCATE takes
	offset   int    // of a piece of a query: where it begins

	types []uint32 // of the parameters, as far as they are known; guarded by session.mu
	since int      // message that prepared it
}

// newStatement looks at one statement's text.
func newStatement(text string, backslash bool) *statement {
	s := &statement{text: recorded(text, recordedSQL), match: normal(text), blank: onlyComments(text, backslash)}
	words := firstWords(text, backslash)
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	s.chain = slices.Contains(words, "chain") && !slices.Contains(words, "no")
	switch word(0) {
	case "begin":
		s.control = controlBegin
	case "start":
		if word(1) == "transaction" {
			s.control = controlBegin
		}
	case "commit", "end":
		if word(1) != "prepared" {
			s.control = controlCommit
		}
	case "rollback", "abort":
		if word(1) != "prepared" && !slices.Contains(words, "to") {
			s.control = controlRollback
		}
	case "prepare":
		if word(1) == "transaction" {
			s.control = controlRollback
			break
		}
		s.name, s.prepares = word(1), prepared(text, backslash)
	case "deallocate":
		s.forgets = true
		if s.name = word(1); s.name == "prepare" {
			s.name = word(2)
		}
	case "discard":
		s.forgets, s.name = word(1) == "all", "all"
	}
	if s.control == controlNone {
		s.chain = false
	}
	s.copyIn = word(0) == "copy" && copiesIn(text, backslash)
	s.plain = isPlain(word(0), s) || s.control == controlCommit && plainCommit.MatchString(s.match)
	return s
}

var plainCommit = regexp.MustCompile(`(?i)^(commit|end)( work| transaction)?( and( no)? chain)?$`)

var endsTransactions = regexp.MustCompile(`(?i)\b(commit|rollback)\b`)

// isPlain: what may be wrapped into BEGIN and COMMIT without anybody noticing.
// What is not known to be so (VACUUM, CREATE DATABASE, SET LOCAL, CALL of a
// procedure that commits) is left alone.
func isPlain(verb string, s *statement) bool {
	switch verb {
	case "select", "insert", "update", "delete", "merge", "with", "values", "table", "truncate", "notify", "execute":
		return true
	case "copy":
		return !s.copyIn
	case "do":
		return !endsTransactions.MatchString(s.match)
	}
	return false
}

// pieces splits the text of a simple query into its statements. Empty ones
// are left out, as Postgres does.
func pieces(text string, backslash bool) []*statement {
	var list []*statement
	s := scanner{text: text, backslash: backslash}
	start, brackets := 0, 0
	body := bodyTracker{}
	add := func(end int) {
		if st := newStatement(strings.Trim(text[start:end], blanks), backslash); !st.blank {
			st.offset = start
			list = append(list, st)
		}
	}
	for {
		before := s.at
		kind, word := s.next()
		switch kind {
		case tokenEnd:
			add(len(text))
			return list
		case tokenOpen:
			brackets++
		case tokenClose:
			brackets = max(0, brackets-1)
		case tokenWord:
			body.word(word)
		case tokenSemicolon:
			if brackets > 0 || body.inside() {
				continue
			}
			add(before)
			start, body = s.at, bodyTracker{}
		default:
		}
	}
}

// A bodyTracker knows whether a semicolon belongs to the SQL body of CREATE
// FUNCTION ... BEGIN ATOMIC ... END rather than ending the statement.
type bodyTracker struct {
	seen  int
	makes bool
	last  string
	depth int
}

func (b *bodyTracker) word(w string) {
	w = strings.ToLower(w)
	b.seen++
	switch {
	case b.seen == 1:
		b.makes = w == "create"
	case !b.makes:
	case b.depth == 0 && b.last == "begin" && w == "atomic":
		b.depth = 1
	case b.depth > 0 && (w == "case" || w == "begin"):
		b.depth++
	case b.depth > 0 && w == "end":
		b.depth--
	}
	b.last = w
}

func (b *bodyTracker) inside() bool { return b.depth > 0 }

const blanks = " \t\r\n\f\v"

const wordsLooked = 6

// firstWords gives the words that the text begins with, in lower case, up to
// the first other thing. Brackets before them don't count.
func firstWords(text string, backslash bool) []string {
	var words []string
	s := scanner{text: text, backslash: backslash}
	for len(words) < wordsLooked {
		switch kind, word := s.next(); kind {
		case tokenWord:
			words = append(words, strings.ToLower(word))
		case tokenSpace:
		case tokenQuoted:
			if len(words) == 0 {
				return nil
			}
			words = append(words, strings.Trim(word, `"`))
		case tokenOpen:
			if len(words) > 0 {
				return words
			}
		default:
			return words
		}
	}
	return words
}

func onlyComments(text string, backslash bool) bool {
	s := scanner{text: text, backslash: backslash}
	for {
		switch kind, _ := s.next(); kind {
		case tokenEnd:
			return true
		case tokenSpace, tokenSemicolon:
		default:
			return false
		}
	}
}

// prepared is what follows the AS of a PREPARE.
func prepared(text string, backslash bool) string {
	s := scanner{text: text, backslash: backslash}
	for depth := 0; ; {
		switch kind, word := s.next(); {
		case kind == tokenEnd:
			return ""
		case kind == tokenOpen:
			depth++
		case kind == tokenClose:
			depth--
		case kind == tokenWord && depth == 0 && strings.EqualFold(word, "as"):
			return strings.TrimSpace(text[s.at:])
		}
	}
}

// copiesIn reports whether a COPY reads from the client.
func copiesIn(text string, backslash bool) bool {
	s := scanner{text: text, backslash: backslash}
	depth, last := 0, ""
	for {
		kind, word := s.next()
		switch kind {
		case tokenEnd:
			return false
		case tokenOpen:
			depth++
		case tokenClose:
			depth--
		case tokenWord:
			if depth == 0 && last == "from" && strings.EqualFold(word, "stdin") {
				return true
			}
			last = strings.ToLower(word)
		default:
		}
	}
}

// normal makes white space single, for matching and for showing.
func normal(text string) string {
	return clip(strings.Join(strings.Fields(clip(text, matchedSQL)), " "), matchedSQL)
}

// recorded is a text as it may stand in the record.
func recorded(text string, limit int) string { return strings.ToValidUTF8(clip(text, limit), "\uFFFD") }

// clip cuts a text to so many bytes, not within a character.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && text[limit]&0xC0 == 0x80 {
		limit--
	}
	return text[:limit]
}
