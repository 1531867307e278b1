package calendar_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/stubs/calendar"
)

func (d *desk) config(t *testing.T) (c calendar.Config) {
	t.Helper()
	if err := json.Unmarshal(d.send(t, "GET", "/__double/config", "", "", "").Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigIsMerged(t *testing.T) {
	d := newDesk(t)
	base := calendar.Behaviour{
		Mode: "up", Atomic: new(true), Freebusy: "fresh", CreateAnswer: "final", UpdateAnswer: "final", DeleteAnswer: "final", TokenAnswer: "final", SlowMS: 3000,
	}
	want := calendar.Config{Default: &base, SilenceMS: new(3000.0)}
	if diff := cmp.Diff(want, d.config(t)); diff != "" {
		t.Error(diff)
	}
	d.configure(t, calendar.Config{Calendars: map[string]calendar.Behaviour{"a": {HoldCreates: true}, "b": {Atomic: new(false), LatencyMS: map[string]float64{"get": 5}}}})
	d.configure(t, calendar.Config{
		SilenceMS: new(5.0), Calendars: map[string]calendar.Behaviour{"a": {CreateAnswer: calendar.Slow, CreateFirst: 2}},
		External: []calendar.External{external("other-1", 9, 10)}, Grant: []calendar.Grant{{Calendar: "a", RefreshToken: "r"}}, Release: []string{"a"}, // once, and no part of it
	})
	a, b := base, base
	a.CreateAnswer, a.CreateFirst = "slow", 2 // replaced whole
	b.Atomic, b.LatencyMS = new(false), map[string]float64{"get": 5}
	want.SilenceMS, want.Calendars = new(5.0), map[string]calendar.Behaviour{"a": a, "b": b}
	if diff := cmp.Diff(want, d.config(t)); diff != "" {
		t.Error(diff)
	}
}

func TestWrongChangesChangeNothing(t *testing.T) {
	d := newDesk(t, "cal-1")
	d.call(t, "POST /events", create("event-1", 9, 10, true))
	d.configure(t, calendar.Config{External: []calendar.External{external("other-1", 12, 13)}})
	good := `{"calendar":"cal-1","event_id":"other-2","start":"2027-03-01T09:00:00Z","end":"2027-03-01T10:00:00Z"}`
	state := func() string {
		return d.send(t, "GET", "/__double/ledger", "", "", "").Body.String() + d.send(t, "GET", "/__double/config", "", "", "").Body.String()
	}
	before := state()
	at := func(rest string) string { return `{"at":[{"calendar":"cal-1",` + rest + `}]}` }
	all := `"calendars":{"cal-1":{"mode":"down"},"new":{}},"default":{"freebusy":"frozen"},"silence_ms":1,"external":[` + good + `],"lose":[{"calendar":"cal-1","event_id":"event-1"}`
	for bad, want := range map[string]string{
		`{"mode":"down"}`:                                                                 "unknown field",
		`{"default":{"mode":"sideways"}}`:                                                 `default: mode: "sideways" is none of`,
		`{"calendars":{"":{}}}`:                                                           "is no calendar",
		`{"calendars":{"*":{}}}`:                                                          "is no calendar",
		`{"calendars":{"a b":{}}}`:                                                        "is no calendar",
		`{"calendars":{"a":{"freebusy":"stale"}}}`:                                        "calendars: a: freebusy",
		`{"default":{"create_answer":"none"}}`:                                            "create_answer",
		`{"default":{"token_answer":"lost"}}`:                                             "token_answer",
		`{"default":{"update_first":-1}}`:                                                 "update_first: -1 is less than 0",
		`{"default":{"slow_ms":30001}}`:                                                   "slow_ms",
		`{"default":{"latency_ms":{"read":1}}}`:                                           `latency_ms: "read" is none of`,
		`{"default":{"latency_ms":{"get":-1}}}`:                                           "latency_ms: get: -1 is not between",
		`{"default":{"fail_first":{"look":1}}}`:                                           `fail_first: "look" is none of`,
		`{"default":{"fail_first":{"get":-2}}}`:                                           "fail_first: get: -2 is less than -1",
		`{"default":{"rate_limit":{"after":1}}}`:                                          "rate_limit: for: 0 is less than 1",
		`{"default":{"rate_limit":{"after":-1,"for":1}}}`:                                 "rate_limit: after",
		`{"silence_ms":-1}`:                                                               "silence_ms",
		`{"external":[{"calendar":"cal-1"}]}`:                                             "is no event_id",
		`{"external":[` + strings.Replace(good, "T09", "T10", 1) + `]}`:                   "must be a range",
		`{"external":[` + strings.Replace(good, "T09:00:00Z", "T09:00", 1) + `]}`:         "cannot parse",
		`{"external":[` + strings.Replace(good, "other-2", "event-1", 1) + `]}`:           "event-1 in cal-1 is an event of ours",
		`{"external":[{"calendar":"cal-1","event_id":"other-9","remove":true}]}`:          "no event other-9 in cal-1 to remove",
		`{"external":[` + good + `,{"calendar":"x","event_id":"other-2","remove":true}]}`: "no event other-2 in x",
		`{"orphans":[{"calendar":"cal-1","event_id":"event-9","remove":true}]}`:           "event-9 can't be removed",
		`{"orphans":[{"calendar":"cal-1","event_id":"event-1","start":"2027-03-01T09:00:00Z","end":"2027-03-01T10:00:00Z"}]}`: "event-1 in cal-1 stands already",
		`{"lose":[{"calendar":"cal-1","event_id":"event-9"}]}`:                                                                "no event event-9 of ours in cal-1",
		`{"lose":[{"calendar":"cal-1","event_id":"other-1"}]}`:                                                                "no event other-1 of ours in cal-1",
		`{` + all + `,{"calendar":"cal-1","event_id":"event-1"}]}`:                                                            "no event event-1 of ours in cal-1", // lost already
		`{"expire_tokens":[""]}`:                                "expire_tokens",
		`{"revoke":["a b"]}`:                                    "revoke",
		`{"release":[""]}`:                                      "release",
		`{"grant":[{"calendar":"cal-1"}]}`:                      "the refresh_token is empty",
		at(`"moment":"later","external":` + good):               `at: moment: "later" is none of`,
		at(`"external":` + good):                                "the moment is empty",
		at(`"moment":"after-look","nth":-1,"external":` + good): "at: nth",
		at(`"moment":"after-look","external":` + strings.Replace(good, "cal-1", "cal-2", 1)):           `of calendar "cal-2", not of "cal-1"`,
		at(`"moment":"after-look","external":{"event_id":"other-2"}`):                                  "at: external: other-2 must be a range",
		at(`"moment":"after-look","overlapping":true,"external":{"event_id":"other-1","remove":true}`): "overlapping needs a range",
	} {
		w := d.send(t, "POST", "/__double/config", "", "", bad)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "configure calendar: ") || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), want) {
			t.Errorf("%s: %d %s, want %s", bad, w.Code, w.Body, want)
		}
	}
	if after := state(); after != before {
		t.Errorf("a refused change changed\n%s\nto\n%s", before, after)
	}
}
