package reports_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// onSale is a run with an open loop of so many clients, of whom the given ones
// are named in a violation.
func onSale(clients int, bad ...int) reports.Page {
	rec := harness.Record{}
	v := harness.Verdict{ID: "TK-I1", Status: harness.Failed, Summary: "sold twice"}
	for n := range clients {
		at := time.Second + time.Duration(n)*time.Millisecond
		rec.History.Operations = append(rec.History.Operations, harness.Operation{
			ID: fmt.Sprintf("op-%d", n), Process: n, Kind: "hold", Load: "sale", Method: "POST", Path: "/holds", Status: 201, Intended: at, Sent: at, Answered: at + time.Millisecond, Outcome: harness.OK,
		})
	}
	for _, n := range bad {
		v.Evidence = append(v.Evidence, harness.Evidence{Text: "seat", Ops: []string{fmt.Sprintf("op-%d", n)}})
	}
	rec.History.Operations = append(rec.History.Operations, harness.Operation{ID: "op-prep", Kind: "prepare", Intended: 1, Sent: 1, Answered: 2, Outcome: harness.OK})
	load := harness.OpenLoopReport{
		Name: "sale", Planned: clients + 3, Arrived: clients, Left: clients - 2, CutOff: 2, Schedule: 30 * time.Second, MaxPresent: 212, LateP99: 400 * time.Millisecond, Slack: 300 * time.Millisecond,
		Calls: clients, Refused: 7, Waited: 5, WaitMax: 20 * time.Millisecond, ConnectionsOpened: 64, InFlight: 63,
	}
	r := harness.Result{
		Name: "tickets/on-sale", Verdict: harness.Failed, RunDir: "runs/x", Checks: []harness.Verdict{v}, Loads: []harness.OpenLoopReport{load},
		Latencies: map[string]*harness.Latency{"charge": {N: 12, P50: 40, P95: 90, Max: 95}},
	}
	rec.History.Loads = r.Loads
	return reports.Page{Suite: harness.Suite{Verdict: harness.Failed, Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{"runs/x": rec}}
}

func TestAnOpenLoopIsTold(t *testing.T) {
	page := onSale(20, 3)
	var text, junit, html bytes.Buffer
	for b, write := range map[*bytes.Buffer]func() error{
		&text:  func() error { return reports.Text(&text, page.Suite, reports.TextOptions{Records: page.Records}) },
		&junit: func() error { return reports.JUnit(&junit, page.Suite) },
		&html:  func() error { return reports.HTML(&html, page) },
	} {
		if err := write(); err != nil || b.Len() == 0 {
			t.Fatal(err)
		}
	}
	const line = "open loop sale: 23 clients over 30.00 s, 212 there at once, 99 in 100 started at most 400.0 ms late, MORE than the 300.0 ms allowed, " +
		"20 calls on 64 connections, 63 in flight at once, 3 clients never came, 2 clients cut off, 7 calls refused a connection, 5 waited for a connection, up to 20.0 ms"
	for name, b := range map[string]*bytes.Buffer{"text": &text, "junit": &junit} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%s lacks the load:\n%s", name, b.String())
		}
	}
	if !strings.Contains(text.String(), "latency   charge: p50 40.0 ms  p95 90.0 ms  max 95.0 ms  (n=12)") {
		t.Errorf("the text lacks the further latency:\n%s", text.String())
	}
	for _, want := range []string{"longest wait", "response of charge", "clients (20)"} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(html.String(), "prepare: ") || !strings.Contains(html.String(), "20 answers of 20 sent") {
		t.Error("the latency of what prepared the load is drawn, too")
	}
}

// Of many clients a sample is drawn, in which those of the evidence are.
func TestManyClientsAreSampled(t *testing.T) {
	for _, bad := range [][]int{{7, 1000, 1999}, nil} {
		var html bytes.Buffer
		if err := reports.HTML(&html, onSale(2000, bad...)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"clients (300 of 2000)", "300 of 2000 clients are drawn"} {
			if !strings.Contains(html.String(), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		for _, n := range bad {
			if !strings.Contains(html.String(), fmt.Sprintf("▶ %d<", n)) {
				t.Errorf("client %d, of the evidence, is not among them", n)
			}
		}
	}
	var all []int
	for n := range 2000 {
		all = append(all, n)
	}
	var html bytes.Buffer
	if err := reports.HTML(&html, onSale(2000, all...)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(html.String(), "clients (300 of 2000)") {
		t.Error("when the evidence names everybody, the sample is no longer bounded")
	}
}
