package tickets

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
)

// overloadMost is the share of calls, in percent, that a server which is asked
// for too much may answer with 503, or not at all in time.
const overloadMost = 5

// What became of a client, as it is counted.
const (
	clientBought     = "bought"
	clientReleased   = "released"
	clientVanished   = "vanished"
	clientRefused    = "refused"    // the last it was told is 4xx
	clientBusy       = "busy"       // the last it was told is 503
	clientUnanswered = "unanswered" // it was not told anything at last
	clientOther      = "other"
)

// becameOf says what became of a client, by its calls in order.
func becameOf(ops []harness.Operation) string {
	held := false
	for _, op := range ops {
		held = held || (op.Kind == kindBest && op.Status == http.StatusCreated)
		switch _, charges := holdInPath(op); {
		case charges && op.Status == http.StatusCreated:
			return clientBought
		case op.Kind == kindRelease && op.Status == http.StatusOK:
			return clientReleased
		case op.Kind == kindOrder && op.Status == http.StatusOK:
			if o, err := orderOf(op); err == nil && o.State == "CONFIRMED" {
				return clientBought
			}
		}
	}
	switch last := ops[len(ops)-1]; {
	case held && last.Kind == kindBest:
		return clientVanished
	case last.Status == 0:
		return clientUnanswered
	case last.Status >= 500:
		return clientBusy
	case last.Status >= 400:
		return clientRefused
	}
	return clientOther
}

// clientsOf groups the calls of a load by client, in their order.
func clientsOf(ops []harness.Operation) map[string][]harness.Operation {
	clients := map[string][]harness.Operation{}
	for _, op := range ops {
		if op.Load != "" {
			clients[op.Caller] = append(clients[op.Caller], op)
		}
	}
	return clients
}

// everyClientCounted: each client who was to come made a call, and what became
// of it is known; only a small share may have heard nothing, or busy, at last.
func everyClientCounted(n int) harness.Check {
	doc := fmt.Sprintf("every client is answered in the end, or counted: at most %d in 100 heard nothing or busy last", overloadMost)
	return funcCheck("answers.clients", doc, "on_sale_checks.go", false, func(rec harness.Record) harness.Verdict {
		got := map[string]int{}
		for _, ops := range clientsOf(rec.History.Operations) {
			got[becameOf(ops)]++
		}
		total, away := 0, got[clientUnanswered]+got[clientBusy]
		for _, k := range got {
			total += k
		}
		switch {
		case total == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no client came")
		case away*100 > total*overloadMost && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "%s, in an environment that broke", answers.Text(got))
		case away*100 > total*overloadMost:
			return harness.Violated([]harness.Evidence{{Text: answers.Text(got)}}, "%s: %d of %d did", doc, away, total)
		case total != n:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d clients made a call", total, n)
		}
		return harness.Passed("%s: %s", doc, answers.Text(got))
	})
}

// overloadIsHonest: a server that is asked for too much says so. Any 5xx that
// is no 503 is a violation, and so are too many of these.
func overloadIsHonest() harness.Check {
	doc := fmt.Sprintf("no call is answered 500, and at most %d in 100 are answered 503 or not at all", overloadMost)
	return funcCheck("answers.5xx", doc, "on_sale_checks.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		words, calls, away := map[string]int{}, 0, 0
		for _, op := range rec.History.Operations {
			calls++
			if op.Status != 0 && op.Status < 500 {
				continue
			}
			words[answers.Word(op)]++
			if away++; op.Status != 0 && op.Status != http.StatusServiceUnavailable {
				wrong = append(wrong, answers.About(op, "an answer"))
			}
		}
		switch {
		case calls == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody asked for anything")
		case (len(wrong) > 0 || away*100 > calls*overloadMost) && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "%s of %d calls, in an environment that broke", answers.Text(words), calls)
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d calls were answered otherwise", doc, len(wrong), calls)
		case away*100 > calls*overloadMost:
			return harness.Violated([]harness.Evidence{{Text: answers.Text(words)}}, "%s: %d of %d calls: %s", doc, away, calls, answers.Text(words))
		case away == 0:
			return harness.Passed("%s: none of %d calls", doc, calls)
		}
		return harness.Passed("%s: %d of %d calls: %s", doc, away, calls, answers.Text(words))
	})
}

// onlyWhenOnSale: no seat is given before the sale begins, and nobody who asks
// when it has begun is told that it has not.
func onlyWhenOnSale() harness.Check {
	const doc = "before the sale begins everybody is told not-on-sale, and nobody after"
	return funcCheck("answers.on-sale", doc, "on_sale_checks.go", false, func(rec harness.Record) harness.Verdict {
		var notBefore, surely time.Duration
		for _, e := range rec.History.Events {
			if e.Subject == subjectOnSale {
				a, err1 := strconv.ParseInt(e.Attrs[attrNotBefore], 10, 64)
				b, err2 := strconv.ParseInt(e.Attrs[attrSurely], 10, 64)
				if err1 == nil && err2 == nil {
					notBefore, surely = time.Duration(a), time.Duration(b)
				}
			}
		}
		if surely == 0 {
			return harness.Undecided(harness.ReasonVacuous, "it is not known when the sale began")
		}
		var wrong []harness.Evidence
		early := 0
		for _, op := range rec.History.Operations {
			switch told := answers.Word(op); {
			case op.Kind != kindBest || op.Answered == 0:
			case told == "201" && op.Answered < notBefore:
				wrong = append(wrong, answers.About(op, "the sale had not begun"))
			case told == "409 not-on-sale" && op.Sent > surely:
				wrong = append(wrong, answers.About(op, "the sale had begun"))
			case told == "409 not-on-sale":
				early++
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case early == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody asked before the sale began")
		}
		return harness.Passed("%s: %d were told so", doc, early)
	})
}

// measureSale puts a sale's figures into the result.
func measureSale(env harness.Env, s show, ops []harness.Operation) {
	first, last, sold := time.Duration(0), time.Duration(0), 0
	seconds := map[string]float64{}
	for _, client := range clientsOf(ops) {
		became := becameOf(client)
		seconds["clients_"+became]++
		for _, op := range client {
			if op.Kind == kindBest && op.Status == http.StatusCreated && (first == 0 || op.Sent < first) {
				first = op.Sent
			}
		}
		if became == clientBought {
			sold++
			last = max(last, client[len(client)-1].Answered)
		}
	}
	for name, n := range seconds {
		env.Measure(name, n)
	}
	if span := (last - first).Seconds(); sold > 0 && span > 0 {
		env.Measure("sale_seconds", span)
		env.Measure("seats_sold_per_second", float64(sold)/span)
	}
	env.Measure("seats", float64(len(s.Seats)))
}
