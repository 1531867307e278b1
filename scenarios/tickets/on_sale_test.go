package tickets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
)

// inSale says that the operation was part of the load.
func inSale(op harness.Operation) harness.Operation {
	op.Load = "sale"
	return op
}

func TestBecameOf(t *testing.T) {
	best, pay := claimBest(0, "member-1", 1), charge0(1)
	got := granted(best, 1, "S-1")
	for want, ops := range map[string][]harness.Operation{
		clientBought:          {denied(best, 409, "sold-out", ""), got, denied(pay, 402, "payment-declined", ""), replied(pay, 201, "{}")},
		clientReleased:        {got, replied(release(0, "member-1", uid("h", 1)), 200, "{}")},
		clientVanished:        {got},
		clientRefused:         {denied(best, 409, "sold-out", "")},
		clientBusy:            {denied(best, 503, "busy", "")},
		clientUnanswered:      {denied(best, 409, "sold-out", ""), replied(best, 0, "")},
		clientOther:           {got, replied(order(0, "member-1", uid("h", 1)), 200, `{"state":"RESERVED"}`)},
		clientBought + ":ask": {got, replied(pay, 202, "{}"), replied(order(0, "member-1", uid("h", 1)), 200, `{"state":"CONFIRMED"}`)},
	} {
		want, _, _ = strings.Cut(want, ":")
		if became := becameOf(ops); became != want {
			t.Errorf("%s, want %s", became, want)
		}
	}
}

// crowd is n clients who asked once and were told this.
func crowd(n int, status int, problem string) (ops []harness.Operation) {
	for i := range n {
		ops = append(ops, inSale(denied(claimBest(i, fmt.Sprintf("member-%d-%d-%s", i, status, problem), 1), status, problem, "")))
	}
	return ops
}

func TestEveryClientCounted(t *testing.T) {
	judge := everyClientCounted(100).Judge
	expectVerdict(t, judge(recordOf(crowd(100, 409, "sold-out")...)), harness.Pass, "100 x refused")
	expectVerdict(t, judge(recordOf(append(crowd(95, 409, "sold-out"), crowd(5, 503, "busy")...)...)), harness.Pass, "5 x busy, 95 x refused")
	expectVerdict(t, judge(recordOf(append(crowd(94, 409, "sold-out"), crowd(6, 503, "busy")...)...)), harness.Failed, "6 of 100")
	lost := crowd(6, 503, "busy")
	for i := range lost {
		lost[i].Status, lost[i].Answered = 0, 0
	}
	rec := recordOf(append(crowd(94, 409, "sold-out"), lost...)...)
	expectVerdict(t, judge(rec), harness.Failed, "6 of 100")
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment}}
	expectVerdict(t, judge(rec), harness.Unknown, "6 x unanswered")
	expectVerdict(t, judge(recordOf(crowd(99, 409, "sold-out")...)), harness.Unknown, "99 of 100")
	expectVerdict(t, judge(recordOf(replied(desync(), 200, "{}"))), harness.Unknown, "no client came")
}

func TestOverloadIsHonest(t *testing.T) {
	judge := overloadIsHonest().Judge
	expectVerdict(t, judge(recordOf(crowd(100, 409, "sold-out")...)), harness.Pass, "none of 100")
	expectVerdict(t, judge(recordOf(append(crowd(95, 409, "sold-out"), crowd(5, 503, "busy")...)...)), harness.Pass, "5 of 100 calls: 5 x 503 busy")
	expectVerdict(t, judge(recordOf(append(crowd(94, 409, "sold-out"), crowd(6, 503, "busy")...)...)), harness.Failed, "6 of 100 calls")
	one := recordOf(append(crowd(999, 409, "sold-out"), crowd(1, 500, "internal")...)...)
	expectVerdict(t, judge(one), harness.Failed, "1 of 1000 calls were answered otherwise")
	one.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment}}
	expectVerdict(t, judge(one), harness.Unknown, "environment that broke")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "nobody asked")
}

func TestOnlyWhenOnSale(t *testing.T) {
	judge := onlyWhenOnSale().Judge
	best := claimBest(0, "member-1", 1)
	sold := func(ops ...harness.Operation) harness.Record {
		rec := recordOf(ops...)
		rec.History.Events = []harness.Event{{Subject: subjectOnSale, Attrs: map[string]string{
			attrNotBefore: fmt.Sprint(int64(msec(100))), attrSurely: fmt.Sprint(int64(msec(110))),
		}}}
		return rec
	}
	early := between(denied(best, 409, "not-on-sale", ""), 50, 60)
	expectVerdict(t, judge(sold(early, between(granted(best, 1, "S-1"), 120, 130))), harness.Pass, ": 1 were")
	expectVerdict(t, judge(sold(early, between(granted(best, 1, "S-1"), 90, 105))), harness.Pass, ": 1 were") // it may have begun
	expectVerdict(t, judge(sold(early, between(granted(best, 1, "S-1"), 80, 90))), harness.Failed, "had not begun")
	expectVerdict(t, judge(sold(early, between(denied(best, 409, "not-on-sale", ""), 120, 130))), harness.Failed, "the sale had begun")
	expectVerdict(t, judge(sold(between(granted(best, 1, "S-1"), 120, 130))), harness.Unknown, "nobody asked before")
	expectVerdict(t, judge(recordOf(early)), harness.Unknown, "not known when")
}

// By construction each seat that comes back is bought: those who come last all
// pay, and some come back until the end.
func TestSaleIsPlannedToSellOut(t *testing.T) {
	s := onSaleRush()
	for seed := range harness.Seed(20) {
		plan, err := s.MakePlan(seed, harness.Params{"clients": "2000", "rate": "100"})
		if err != nil {
			t.Fatal(err)
		}
		var c saleChoice
		if err := json.Unmarshal(plan.Choices, &c); err != nil {
			t.Fatal(err)
		}
		n := len(c.Arrivals)
		if n != 2000 || len(c.Ways) != n || len(c.Returns) != n || len(c.Pauses) != n || len(c.Thinks) != n || !slices.IsSorted(c.Arrivals) {
			t.Fatalf("seed %s: not a plan for everybody", seed)
		}
		patient, early, last := 0, 0, c.Arrivals[n-1]
		for i, at := range c.Arrivals {
			if at < saleLead {
				early++
			}
			if c.Returns[i] < 0 {
				patient++
			}
			if (c.Returns[i] < 0 || last-at <= 2*saleTail) && c.Ways[i] != wayPrompt {
				t.Errorf("seed %s: client %d, at %s of %s, comes back %d times and does %c", seed, i, at, last, c.Returns[i], c.Ways[i])
			}
		}
		if patient < patientMost/2 || early != n/earlyShare {
			t.Errorf("seed %s: %d patient, %d early", seed, patient, early)
		}
		for _, way := range ways {
			if !strings.ContainsRune(c.Ways, way) {
				t.Errorf("seed %s: nobody does %c", seed, way)
			}
		}
	}
}
