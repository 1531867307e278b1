package calendar

import "time"

// Words of a configuration.
const (
	Up   = "up"
	Down = "down" // every call is answered 503 and not looked at

	Fresh  = "fresh"
	Frozen = "frozen" // free/busy as it was when this was set, its as_of too

	Final  = "final"  // the decision
	Reset  = "reset"  // decided, then no answer: the connection is reset
	Silent = "silent" // decided, then no answer: nothing comes
	Slow   = "slow"   // decided at once, told after SlowMS

	All = "*" // every calendar, where a command names one
)

// Kinds of calls, the keys of LatencyMS and FailFirst.
const (
	Freebusy = "freebusy" // GET /freebusy
	List     = "list"     // GET /events
	Get      = "get"      // GET /events/{event_id}
	Create   = "create"   // POST /events
	Update   = "update"   // PUT /events/{event_id}
	Delete   = "delete"   // DELETE /events/{event_id}
	Token    = "token"    // POST /token
)

// Moments, at which an external event can appear. The nth is counted from when
// the moment was asked for, and by calendar.
const (
	AfterFreebusy = "after-freebusy" // the nth GET /freebusy has been answered from the old state
	BeforeCreate  = "before-create"  // the nth POST /events is about to be judged
	AfterCreate   = "after-create"   // the nth POST /events that made an event has been decided
	AfterLook     = "after-look"     // the nth GET /events since an event was made has been answered from the old state
)

// Defaults of the waits, which are longer than the server under test waits by default.
const (
	defaultSlow    = 3 * time.Second
	defaultSilence = 3 * time.Second
)

// keyWindow is how long a token call can be repeated under its key.
const keyWindow = time.Minute

// A Behaviour is how the provider treats a calendar. A field that is left out
// has the default that is named first. Counts begin anew when the behaviour is
// set. Calls of a calendar that are refused before they are looked at (503,
// 429, 401, 400) are not counted by anything but FailFirst and RateLimit.
type Behaviour struct {
	Mode         string             `json:"mode,omitempty"`          // Up or Down
	Atomic       *bool              `json:"atomic,omitempty"`        // true; false: if_free is not known here, and the event is taken
	Freebusy     string             `json:"freebusy,omitempty"`      // Fresh or Frozen; a calendar that is Frozen already stays as it was
	CreateAnswer string             `json:"create_answer,omitempty"` // Final, Reset, Silent or Slow: of calls that were decided, whatever was decided
	CreateFirst  int                `json:"create_first,omitempty"`  // only the first n calls of an event id, then Final; 0: all
	UpdateAnswer string             `json:"update_answer,omitempty"`
	UpdateFirst  int                `json:"update_first,omitempty"`
	DeleteAnswer string             `json:"delete_answer,omitempty"`
	DeleteFirst  int                `json:"delete_first,omitempty"`
	TokenAnswer  string             `json:"token_answer,omitempty"`
	TokenFirst   int                `json:"token_first,omitempty"`  // only the first n calls of the calendar
	SlowMS       float64            `json:"slow_ms,omitempty"`      // of Slow; 3,000; at most 30,000
	LatencyMS    map[string]float64 `json:"latency_ms,omitempty"`   // by kind of call: half before the decision, half after; at most 30,000
	FailFirst    map[string]int     `json:"fail_first,omitempty"`   // by kind of call: the next calls of the calendar that are answered 503 and not looked at; -1: all
	RateLimit    *RateLimit         `json:"rate_limit,omitempty"`   // none
	HoldCreates  bool               `json:"hold_creates,omitempty"` // creates wait right before they are decided, until Config.Release, another behaviour, or 30 s
}

// A RateLimit refuses calls of a calendar, of any kind but Token, with 429.
type RateLimit struct {
	After       int `json:"after"`         // so many more calls are let through
	RetryAfterS int `json:"retry_after_s"` // the Retry-After of the refusals, in seconds
	For         int `json:"for"`           // so many calls after them are refused; from 1
}

// A Config is what POST /__double/config takes. A field that is not sent
// stays as it is; one that is sent replaces the old value, but for Calendars.
type Config struct {
	Default   *Behaviour           `json:"default,omitempty"`    // of calendars that have none of their own
	Calendars map[string]Behaviour `json:"calendars,omitempty"`  // replaces these calendars' behaviour whole; other calendars keep theirs
	SilenceMS *float64             `json:"silence_ms,omitempty"` // how long Silent lasts; 3,000; at most 30,000. Sending it ends the silences that there are

	// Done once, in this order, after what is above, and never part of GET
	// /__double/config. When one of them can't be done, nothing of the change is.
	External     []External `json:"external,omitempty"`
	Orphans      []External `json:"orphans,omitempty"` // events of this client's that no call made: as if its database had forgotten them
	Lose         []Lost     `json:"lose,omitempty"`
	ExpireTokens []string   `json:"expire_tokens,omitempty"` // calendars, or All: the access token ends (401 token_expired)
	Revoke       []string   `json:"revoke,omitempty"`        // calendars, or All: the access token ends (401 unauthorized), and no refresh token is valid (invalid_grant) until Grant
	Grant        []Grant    `json:"grant,omitempty"`
	At           []At       `json:"at,omitempty"`
	Release      []string   `json:"release,omitempty"` // calendars, or All: creates that are held now are decided
}

// External is an event of other people that appears, is replaced when there is
// one with its id, or, with Remove, goes. An error: the id is of one of ours,
// or there is nothing to remove.
type External struct {
	Calendar string    `json:"calendar"`
	EventID  string    `json:"event_id"`
	Start    time.Time `json:"start,omitzero"` // left out with Remove
	End      time.Time `json:"end,omitzero"`
	Remove   bool      `json:"remove,omitempty"`
}

// Lost is one of ours that somebody else removes; its id is not spent. An
// error: it does not stand in the calendar.
type Lost struct {
	Calendar string `json:"calendar"`
	EventID  string `json:"event_id"`
}

// Grant is a refresh token that is accepted from now on, beside the last one.
// The first refresh token that is presented for a calendar is accepted without
// one, unless the calendar has had a Grant or a Revoke before.
type Grant struct {
	Calendar     string `json:"calendar"`
	RefreshToken string `json:"refresh_token"`
}

// At has an external event appear, change or go at a moment, once.
type At struct {
	Calendar    string   `json:"calendar"`
	Moment      string   `json:"moment"`                // AfterFreebusy, BeforeCreate, AfterCreate or AfterLook
	Nth         int      `json:"nth,omitempty"`         // of the calls from now on; 1
	Overlapping bool     `json:"overlapping,omitempty"` // only calls whose range overlaps that of External are counted
	External    External `json:"external"`              // its calendar can be left out
}
