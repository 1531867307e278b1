package tickets

import (
	"context"
	"fmt"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// How refunds fail.
const (
	refusedForAWhile = "refused"     // 503, some times for each
	refundAnswerLost = "answer-lost" // taken, then the connection reset
	refusedTooOften  = "parked"      // until they are parked
)

var paramFails = harness.Param{
	Name: "fails", Kind: harness.ChoiceParam, Default: refusedForAWhile, Values: []string{refusedForAWhile, refundAnswerLost, refusedTooOften},
	Doc: "how the refunds fail",
}

// Kinds of looks at ops/desync: while money is owed, and when it went back.
const (
	kindDesyncOwed   = "desync-owed"
	kindDesyncParked = "desync-parked"
	kindDesyncDone   = "desync-done"
)

const (
	refundParkAfter = 3         // attempts, in this scenario
	refundPause     = time.Hour // between two attempts: none begins by itself while the clock is being turned on
)

func refundFails() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/refund-fails",
		Title: "refunds fail, and the money goes back all the same, once",
		Doc: `Payments are captured when their holds were given up, and have to go back. The provider refuses refunds for a while; or takes them, and the answers are lost; or refuses them
so often that they are parked, until staff try them again. As long as money is owed GET /tickets/ops/desync lists it, with what became of its refund; in the end the list is empty,
and each payment went back once.`,
		Sources: []string{"S-I2", "S-I5", "S-M5", "S-M8"},
		Params:  []harness.Param{with(paramOrders, "4"), paramFails, paramReplicas},
		Choose:  chooseCast(partDropped),
		Drive:   driveRefundFails,
		Topology: func(p harness.Params) harness.Topology {
			t := topology(p, map[string]string{"TICKETS_REFUND_BACKOFF": refundPause.String()})
			if p[paramFails.Name] == refusedTooOften {
				t.Server["TICKETS_REFUND_PARK_AFTER"] = fmt.Sprint(refundParkAfter)
			}
			return t
		},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			want := answers.Tallies{kindCharge: {"202": n}, kindRelease: {"200": n}, kindDesyncOwed: {"200": 1}, kindDesyncDone: {"200": 1}}
			if p[paramFails.Name] == refusedTooOften {
				want[kindRefund], want[kindDesyncParked] = map[string]int{"202": n}, map[string]int{"200": 1}
			}
			return append(served(p),
				words("answers", "staff see what is owed, and can have it tried", answers.ByKind, answers.Fixed(want)),
				desyncTells(n, p[paramFails.Name] == refusedTooOften),
				ends("what was captured for a hold that was given up went back", map[string]string{partDropped: "RELEASED: REFUNDED"}))
		},
	}, nil)
}

func driveRefundFails(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	fails, n := env.Params()[paramFails.Name], len(buyers)
	how := undecided()
	how.Callbacks = payments.Held // of the refunds, so that each is tried again
	all, some := -1, 2*n
	change := payments.Config{RefundFailFirst: &all}
	if fails == refundAnswerLost {
		change = payments.Config{RefundAnswer: payments.Reset, RefundFirst: &some}
	}
	if err := behave(ctx, env, buyers, map[string]payments.Behaviour{partDropped: how}); err != nil {
		return err
	}
	if err := configure(ctx, env, change); err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	each(ctx, env, buyers, buyer.drops)
	if err := decide(ctx, env, payments.Captured, buyers); err != nil {
		return err
	}
	captured, err := callbacksNow(ctx, env, payments.PaymentCaptured)
	if err != nil {
		return err
	}
	if _, err := deliverCopies(ctx, env, "captures", captured, 1); err != nil {
		return err
	}
	return owedUntilDone(ctx, env, buyers)
}

// owedUntilDone goes through the failures: staff look while the money is owed,
// when it is parked, and in the end.
func owedUntilDone(ctx context.Context, env harness.Env, buyers []buyer) error {
	fails, n, post, none := env.Params()[paramFails.Name], len(buyers), newCourier(env), 0
	tried, err := restingCount(ctx, env, `select count(*) as n from refunds where state = 'PENDING' and attempts >= 1`)
	if err != nil {
		return err
	}
	env.Witness("refunds_failed", float64(n), float64(tried), "refunds whose first attempt had failed, as the server knows")
	env.Do(ctx, answers.As(kindDesyncOwed, desync()))
	if fails == refusedForAWhile { // a second time
		if err := env.Advance(ctx, refundPause+time.Second); err != nil {
			return err
		}
		again, err := restingCount(ctx, env, `select count(*) as n from refunds where state = 'PENDING' and attempts >= 2`)
		if err != nil {
			return err
		}
		env.Witness("refunds_failed_again", float64(n), float64(again), "refunds whose second attempt had failed, too")
	}
	if fails == refusedTooOften {
		const countParked = `select count(*) as n from refunds where parked_at is not null`
		if err := turning(ctx, env, "every refund is parked", n, countParked); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindDesyncParked, desync()))
	}
	if fails != refundAnswerLost {
		if err := configure(ctx, env, payments.Config{RefundFailFirst: &none}); err != nil {
			return err
		}
	}
	if fails == refusedTooOften {
		ledger, err := ledgerNow(ctx, env)
		if err != nil {
			return err
		}
		for _, p := range ledger.Payments {
			env.Do(ctx, refundNow(staffProcess, staff(0), p.PaymentID, p.Captured))
		}
	}
	if err := turning(ctx, env, "every refund is done", n, countReturned); err != nil {
		return err
	}
	env.Do(ctx, answers.As(kindDesyncDone, desync()))
	if err := letGo(ctx, env, buyers); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// turning turns the clock on, by the longest pause between two attempts, until
// the query counts so many. That it never does is left to the checks.
func turning(ctx context.Context, env harness.Env, what string, want int, sql string) error {
	for range refundParkAfter + 2 {
		got, err := restingCount(ctx, env, sql)
		if err != nil || got == want {
			return err
		}
		if err := env.Advance(ctx, refundPause+time.Second); err != nil {
			return err
		}
	}
	_, err := awaitCount(ctx, env, what, want, sql)
	return err
}

// restingCount counts once every refund rests: it is done, parked, or has failed
// and is not due for long.
func restingCount(ctx context.Context, env harness.Env, sql string) (int, error) {
	now, err := serverNow(ctx, env)
	if err != nil {
		return 0, err
	}
	const countBusy = `select count(*) as n from refunds where state = 'PENDING' and parked_at is null and next_attempt_at <= $1`
	if _, err := awaitCount(ctx, env, "no refund is being tried or due", 0, countBusy, now.Add(refundPause/2)); err != nil {
		return 0, err
	}
	rows, err := env.Database().Query(ctx, sql)
	if err != nil {
		return 0, fmt.Errorf("count refunds: %w", err)
	}
	return int(whole(rows[0], "n")), nil
}

// desyncTells compares what staff saw with what was owed then.
func desyncTells(n int, parks bool) harness.Check {
	const doc = "staff see every payment that is owed, with its refund and whether that is parked, and nothing when all went back"
	return funcCheck("desync", doc, "refund_fails.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			owed, looks := map[string]int{kindDesyncOwed: n, kindDesyncParked: n, kindDesyncDone: 0}[op.Kind]
			if !looks || op.Status != 200 {
				continue
			}
			judged++
			if problem := desyncProblem(op, owed, op.Kind == kindDesyncParked); problem != "" {
				wrong = append(wrong, answers.About(op, problem))
			}
		}
		want := 2
		if parks {
			want = 3
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged < want:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d looks were answered", judged, want)
		}
		return harness.Passed("%s: %d looks", doc, judged)
	})
}

// desyncProblem says what is wrong with a list of what is owed.
func desyncProblem(op harness.Operation, owed int, parked bool) string {
	var told struct {
		Without []struct {
			Payment string `json:"payment_id"`
			Amount  int64  `json:"amount"`
			Refund  *struct {
				State    string `json:"state"`
				Attempts int    `json:"attempts"`
				Error    string `json:"last_error"`
				Parked   bool   `json:"parked"`
			} `json:"refund"`
		} `json:"captured_without_seat"`
	}
	if err := op.Decode(&told); err != nil {
		return "can't be read"
	}
	seen := map[string]bool{}
	for _, c := range told.Without {
		seen[c.Payment] = true
		switch {
		case c.Amount < 1 || c.Refund == nil || c.Refund.State != "PENDING":
			return c.Payment + " has no amount or no refund that is pending"
		case c.Refund.Parked != parked:
			return fmt.Sprintf("%s is parked: %t", c.Payment, c.Refund.Parked)
		case c.Refund.Attempts < 1 || c.Refund.Error == "":
			return c.Payment + " does not tell of the attempt that failed"
		}
	}
	if len(seen) != owed || len(told.Without) != owed {
		return fmt.Sprintf("lists %d payments, and %d are owed", len(told.Without), owed)
	}
	return ""
}
