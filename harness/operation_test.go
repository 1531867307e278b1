package harness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

func TestOperationTimes(t *testing.T) {
	op := harness.Operation{Intended: 10, Sent: 25, Answered: 100}
	if r, s := op.ResponseTime(), op.ServiceTime(); r != 90 || s != 75 {
		t.Errorf("response %d, service %d", r, s)
	}
	op.Answered = 0
	if r, s := op.ResponseTime(), op.ServiceTime(); r != 0 || s != 0 {
		t.Errorf("without an answer: response %d, service %d", r, s)
	}
}

func TestOperationDecode(t *testing.T) {
	var answer struct {
		ID string `json:"id"`
	}
	op := harness.Operation{ID: "op-7", Method: "POST", Path: "/x", Status: 201, Output: `{"id":"abc"}`}
	if err := op.Decode(&answer); err != nil || answer.ID != "abc" {
		t.Errorf("%q, %v", answer.ID, err)
	}
	op.Output = "<html>"
	if err := op.Decode(&answer); err == nil || !strings.Contains(err.Error(), "operation op-7 (POST /x -> 201): decode answer") {
		t.Error(err)
	}
}

func TestParams(t *testing.T) {
	p := harness.Params{"users": "100", "wait": "1m30s", "path": "direct"}
	if p.Int("users") != 100 || p.Duration("wait") != 90*time.Second || p.Text("path") != "direct" {
		t.Error(p.Int("users"), p.Duration("wait"), p.Text("path"))
	}
	for name, ask := range map[string]func(){
		"undeclared": func() { p.Int("replicas") }, "no number": func() { p.Int("path") }, "no duration": func() { p.Duration("users") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			ask()
		}()
	}
}
