package provision

import "strings"

// A Problem is something about this machine that keeps a part from coming up.
type Problem struct { //nolint:errname // read by people, who have a problem
	What  string // what we were doing: "start WireMock"
	Where string // file, address or command it is about; may be empty
	Why   string // what was found
	Fix   string // what to do next: a command, a setting; may be empty
	Err   error  // the cause, when there is one
}

// Error says what, where, why and what next.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.What)
	if p.Where != "" {
		b.WriteString(": " + p.Where)
	}
	if p.Why != "" {
		b.WriteString(": " + p.Why)
	}
	if p.Err != nil {
		b.WriteString(": " + p.Err.Error())
	}
	if p.Fix != "" {
		b.WriteString("\n  next: " + p.Fix)
	}
	return b.String()
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Err }
