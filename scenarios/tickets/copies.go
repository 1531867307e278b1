package tickets

import (
	"context"
	"fmt"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// deliverCopies delivers so many copies of each callback at one barrier, all
// signed at one instant of server time. The courier does not know of it and
// delivers them once more when they are due.
func deliverCopies(ctx context.Context, env harness.Env, name string, callbacks []payments.Callback, copies int) (harness.BurstReport, error) {
	now, err := serverNow(ctx, env)
	if err != nil {
		return harness.BurstReport{}, err
	}
	b := harness.Burst{Name: name}
	for range copies { // so that neighbours are of different orders
		for _, cb := range callbacks {
			b.Requests = append(b.Requests, callback(courierProcess+len(b.Requests), cb.Body, payments.Sign(secret, now, cb.Body)))
		}
	}
	report, _, err := env.Burst(ctx, b)
	return report, err
}

// callbacksNow are the callbacks of one type that the provider has by now.
func callbacksNow(ctx context.Context, env harness.Env, kinds ...string) ([]payments.Callback, error) {
	ledger, err := ledgerNow(ctx, env)
	if err != nil {
		return nil, err
	}
	var list []payments.Callback
	for _, cb := range ledger.Callbacks {
		for _, kind := range kinds {
			if cb.Type == kind {
				list = append(list, cb)
			}
		}
	}
	return list, nil
}

// oneEffectPerEvent: of the copies of an event one is applied or noted, all
// others are told to be copies, and each is answered 200.
func oneEffectPerEvent() harness.Check {
	const doc = "each copy of a callback is answered 200, one of them as news and all others as duplicates"
	return funcCheck("answers.copies", doc, "copies.go", false, func(rec harness.Record) harness.Verdict {
		news, copies := map[any]int{}, map[any]int{}
		var wrong []harness.Evidence
		open := ""
		for _, op := range rec.History.OfKind(kindCallback) {
			event := inputOf(op)["event_id"]
			copies[event]++
			switch {
			case op.Status == 0 || (op.Status >= 500 && check.Broken(rec)):
				open = fmt.Sprintf("a copy of %v was not answered", event)
			case op.Status != http.StatusOK:
				wrong = append(wrong, answers.About(op, fmt.Sprintf("a copy of %v", event)))
			case fields(op)["result"] != "duplicate":
				if news[event]++; news[event] > 1 {
					wrong = append(wrong, answers.About(op, fmt.Sprintf("%v was news before", event)))
				}
			}
		}
		most := 0
		for event, n := range copies {
			most = max(most, n)
			if news[event] == 0 && open == "" && len(wrong) == 0 {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("all %d copies of %v were duplicates", n, event)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case open != "":
			return harness.Undecided(harness.ReasonUndelivered, "%s", open)
		case most < 2:
			return harness.Undecided(harness.ReasonVacuous, "no callback was delivered twice")
		}
		return harness.Passed("%s: %d events, up to %d copies of one", doc, len(copies), most)
	})
}

// copiesEach is how often each callback is delivered at one barrier.
const copiesEach = 10

const (
	partPrompt   = "prompt"   // captured by the answer
	partPending  = "pending"  // captured after it
	partDeclined = "declined" // declined after it
	partDropped  = "dropped"  // captured when the member has given the hold up
)

func duplicateCallbacks() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/duplicate-callbacks",
		Title: "every callback of several orders comes ten times at the same moment",
		Doc: `Some payments are captured by the answer, some later, some are declined, some captured when their hold was given up. The callbacks of all of them are delivered ten times
each at one barrier, then those of the refunds, and each once more later. Every copy is answered 200; one of each has an effect, and what has to go back goes back once.`,
		Sources: []string{"S-I4", "S-I5", "S-I2", "S-M5", "S-M13"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partPrompt, partPending, partDeclined, partDropped),
		Drive:   driveDuplicates,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "the provider's answer decides one part, the others wait", answers.ByKind,
					answers.Fixed(answers.Tallies{kindCharge: {"201": n, "202": 3 * n}, kindRelease: {"200": n}})),
				oneEffectPerEvent(),
				ends("each callback had one effect", map[string]string{
					partPrompt: "CONFIRMED: CAPTURED", partPending: "CONFIRMED: CAPTURED", partDeclined: "EXPIRED: DECLINED", partDropped: "RELEASED: REFUNDED",
				}))
		},
	}, nil)
}

func driveDuplicates(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	refused := undecided()
	refused.Attempts = []string{payments.Declined}
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{partPending: undecided(), partDeclined: refused, partDropped: undecided()})
	if err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	dropped := playing(buyers, partDropped)
	each(ctx, env, dropped, buyer.drops)
	if err := decide(ctx, env, "", playing(buyers, partPending, partDeclined, partDropped)); err != nil {
		return err
	}
	decided, err := callbacksNow(ctx, env, payments.PaymentCaptured, payments.PaymentDeclined)
	if err != nil {
		return err
	}
	report, err := deliverCopies(ctx, env, "copies", decided, copiesEach)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	if _, err := awaitCount(ctx, env, "what was captured for a hold that was given up went back", len(dropped), countReturned); err != nil {
		return err
	}
	returned, err := callbacksNow(ctx, env, payments.PaymentRefunded)
	if err != nil {
		return err
	}
	if len(returned) > 0 { // the checks say that it should be
		if _, err := deliverCopies(ctx, env, "copies-of-refunds", returned, copiesEach); err != nil {
			return err
		}
	}
	return finish(ctx, env, newCourier(env))
}
