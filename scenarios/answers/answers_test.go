package answers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

func expect(t *testing.T, v harness.Verdict, status harness.Status, sentence string) {
	t.Helper()
	if v.Status != status || !strings.Contains(v.Summary, sentence) {
		t.Errorf("got %v %q, want %v %q", v.Status, v.Summary, status, sentence)
	}
}

// told is an operation of the kind that was answered with the status, and with
// a problem of the type, if any.
func told(kind string, status int, problem string) harness.Operation {
	op := harness.Operation{ID: "op", Kind: kind, Status: status, Sent: 1, Answered: 2}
	switch {
	case status == 0:
		op.Answered = 0
	case problem != "":
		op.Output = fmt.Sprintf(`{"type":"/problems/%s"}`, problem)
		op.Header = map[string]string{"Content-Type": "application/problem+json"}
	}
	return op
}

func record(ops ...harness.Operation) harness.Record {
	return harness.Record{History: harness.History{Operations: ops}}
}

func broken(rec harness.Record) harness.Record {
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment, Text: "postgres died"}}
	return rec
}

func TestWord(t *testing.T) {
	for want, op := range map[string]harness.Operation{
		"none": told("a", 0, ""), "201": told("a", 201, ""), "409 seat-taken": told("a", 409, "seat-taken"), "404": told("a", 404, ""), "200": told("a", 200, "not-a-problem"),
	} {
		if got := answers.Word(op); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOverlapping(t *testing.T) {
	at := func(sent, answered int) harness.Operation {
		return harness.Operation{Sent: time.Duration(sent), Answered: time.Duration(answered)}
	}
	for want, ops := range map[int][]harness.Operation{
		0: {at(0, 5), at(3, 0)}, // nothing sent, nothing answered
		1: {at(1, 5), at(5, 9)},
		3: {at(1, 9), at(2, 5), at(3, 4), at(5, 8)},
	} {
		if got := answers.Overlapping(ops); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestWords(t *testing.T) {
	judge := answers.Words(answers.WordsRule{
		ID: "answers", Doc: "one gets it", Rule: "here", Group: answers.ByKind, Want: answers.Fixed(answers.Tallies{"claim": {"201": 1, "409 seat-taken": 1, "503 busy": 0}}),
	}).Judge
	won, lost := told("claim", 201, ""), told("claim", 409, "seat-taken")
	expect(t, judge(record(won, lost, told("other", 500, ""))), harness.Pass, "1 x 201, 1 x 409 seat-taken in 1 groups")
	expect(t, judge(record(won, won)), harness.Failed, "claim: got 2 x 201")
	expect(t, judge(record(won, told("claim", 503, "busy"))), harness.Failed, "1 x 503 busy")
	expect(t, judge(broken(record(won, told("claim", 503, "busy")))), harness.Unknown, "1 x 503 busy")
	expect(t, judge(record(won, told("claim", 0, ""))), harness.Unknown, "1 x none")
	expect(t, judge(record(won)), harness.Unknown, "got 1 x 201")
	expect(t, judge(record()), harness.Unknown, "no group")
	nobody := answers.Words(answers.WordsRule{ID: "a", Doc: "nobody", Group: answers.ByKind, Want: answers.Fixed(answers.Tallies{"claim": {"201": 0}})}).Judge
	expect(t, nobody(record(told("other", 200, ""))), harness.Pass, "nobody")
	expect(t, nobody(record()), harness.Unknown, "no group")
}

func TestAmong(t *testing.T) {
	judge := answers.Among(answers.AmongRule{
		ID: "answers", Doc: "yes or no", Group: answers.ByKind, Allowed: map[string][]string{"claim": {"201", "409 seat-taken"}, "pay": {"201"}},
	}).Judge
	yes, no, pay := told("claim", 201, ""), told("claim", 409, "seat-taken"), told("pay", 201, "")
	expect(t, judge(record(yes, no, no, pay, told("other", 500, ""))), harness.Pass, "claim 1 x 201, 2 x 409 seat-taken; pay 1 x 201")
	expect(t, judge(record(yes, told("claim", 409, "sold-out"), pay)), harness.Failed, "1 were told something else")
	expect(t, judge(record(yes, pay, told("claim", 500, ""))), harness.Failed, "1 were told")
	expect(t, judge(broken(record(yes, pay, told("claim", 500, "")))), harness.Pass, "claim 1 x 201")
	expect(t, judge(record(yes, told("pay", 0, ""))), harness.Unknown, "of pay nobody was answered")
	expect(t, judge(record()), harness.Unknown, "of claim nobody")
}

func TestNoServerErrors(t *testing.T) {
	judge := answers.NoServerErrors("here").Judge
	expect(t, judge(record(told("a", 409, "x"))), harness.Pass, "1 answers")
	expect(t, judge(record(told("a", 201, ""), told("a", 503, "busy"))), harness.Failed, "1 of 2 were")
	expect(t, judge(broken(record(told("a", 503, "busy")))), harness.Unknown, "in an environment that broke")
	expect(t, judge(record(told("a", 0, ""))), harness.Unknown, "no client was answered")
}

func TestProblems(t *testing.T) {
	judge := answers.Problems("here").Judge
	shown := told("a", 400, "bad")
	shown.Output = `{"type":"/problems/bad","detail":"pq: insert into seats"}`
	expect(t, judge(record(told("a", 201, ""), told("a", 409, "x"))), harness.Pass, ": 1")
	expect(t, judge(record(told("a", 409, ""))), harness.Failed, "1 of 1 do not")
	expect(t, judge(record(shown)), harness.Failed, "1 of 1 do not")
	expect(t, judge(record(told("a", 201, ""))), harness.Unknown, "nobody was refused")
}

func TestChangedRequests(t *testing.T) {
	r := harness.Request{Caller: "member-1", Header: answers.Bearer("member-1")}
	for name, got := range map[string]harness.Request{
		"other token": answers.WithToken(r, "member-2"), "no token": answers.WithToken(r, ""), "header": answers.WithHeader(r, "X", "y"),
	} {
		want := map[string]map[string]string{"other token": answers.Bearer("member-2"), "no token": {}, "header": {"Authorization": "Bearer member-1", "X": "y"}}[name]
		if fmt.Sprint(got.Header) != fmt.Sprint(want) || (name != "header" && got.Caller != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if r.Header["Authorization"] != "Bearer member-1" || len(r.Header) != 1 {
		t.Errorf("the request itself was changed: %+v", r)
	}
}
