package tickets

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// paramOrders is of scenarios whose orders play different parts.
var paramOrders = harness.Param{Name: "orders", Kind: harness.IntParam, Default: "3", Min: 1, Max: 100, Doc: "orders of each part"}

// A cast says which part each order plays: order i is member i's, for seat i.
type cast struct {
	Show  show     `json:"show"`
	Parts []string `json:"parts"`
}

// chooseCast gives each part as many orders as the parameters say, and mixes them.
func chooseCast(parts ...string) func(*rand.Rand, harness.Params) (any, error) {
	return func(rng *rand.Rand, p harness.Params) (any, error) {
		c := cast{}
		for range p.Int(paramOrders.Name) {
			c.Parts = append(c.Parts, parts...)
		}
		rng.Shuffle(len(c.Parts), func(i, k int) { c.Parts[i], c.Parts[k] = c.Parts[k], c.Parts[i] })
		c.Show = chooseShow(rng, p, len(c.Parts))
		return c, nil
	}
}

// others is the part of members who are in no cast: they have higher numbers.
const others = "others"

// partOf is the part of a login.
func (c cast) partOf(login string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(login, "member-"))
	if err != nil || n < 1 || n > len(c.Parts) {
		return others
	}
	return c.Parts[n-1]
}

// A buyer is a member with a hold.
type buyer struct {
	n    int // process and member
	part string
	hold holdAnswer
}

func (b buyer) who() string { return member(b.n) }

// card is the one with which the buyer pays: each has its own.
func (b buyer) card() string { return fmt.Sprintf("%s-%d", b.part, b.n) }

// pays charges the buyer's card; second charges another one.
func (b buyer) pays() harness.Request { return charge(b.n, b.who(), b.hold.HoldID, b.card()) }

func (b buyer) second() harness.Request {
	return charge(b.n, b.who(), b.hold.HoldID, "second-"+b.card())
}

func (b buyer) drops() harness.Request { return release(b.n, b.who(), b.hold.HoldID) }

// hands is how many calls are in flight when orders are prepared.
const hands = 8

// seated puts the show of a cast on sale and gives every order its hold.
func seated(ctx context.Context, env harness.Env) (cast, []buyer, error) {
	var c cast
	if err := env.Plan().Decode(&c); err != nil {
		return c, nil, err
	}
	if err := onSale(ctx, env, c.Show); err != nil {
		return c, nil, err
	}
	requests := make([]harness.Request, len(c.Parts))
	for i := range c.Parts {
		requests[i] = claim(i, member(i), c.Show.ID, c.Show.Seats[i])
	}
	buyers := make([]buyer, len(c.Parts))
	for i, op := range env.DoAll(ctx, requests, hands) {
		h, err := holdOf(op)
		if err != nil {
			return c, nil, err
		}
		buyers[i] = buyer{i, c.Parts[i], h}
	}
	return c, buyers, ctx.Err()
}

// playing gives the buyers of some parts.
func playing(buyers []buyer, parts ...string) []buyer {
	var list []buyer
	for _, b := range buyers {
		if slices.Contains(parts, b.part) {
			list = append(list, b)
		}
	}
	return list
}

// each does a request of every buyer, a few at once.
func each(ctx context.Context, env harness.Env, buyers []buyer, request func(buyer) harness.Request) []harness.Operation {
	requests := make([]harness.Request, len(buyers))
	for i, b := range buyers {
		requests[i] = request(b)
	}
	return env.DoAll(ctx, requests, hands)
}

// cardsOf are the first cards of the buyers.
func cardsOf(buyers []buyer) []string {
	list := make([]string, len(buyers))
	for i, b := range buyers {
		list[i] = b.card()
	}
	return list
}

// behave gives the cards of each part a behaviour.
func behave(ctx context.Context, env harness.Env, buyers []buyer, parts map[string]payments.Behaviour) error {
	c := payments.Config{Cards: map[string]payments.Behaviour{}}
	for _, b := range buyers {
		if how, ok := parts[b.part]; ok {
			c.Cards[b.card()] = how
		}
	}
	return configure(ctx, env, c)
}

// decide has the provider decide on the buyers' payments, or make its next
// attempt; without an outcome it is what the card is to come to.
func decide(ctx context.Context, env harness.Env, outcome string, buyers []buyer) error {
	var c payments.Config
	for _, card := range cardsOf(buyers) {
		c.Decide = append(c.Decide, payments.Decision{Card: card, Outcome: outcome})
	}
	return configure(ctx, env, c)
}

// letGo makes the callbacks due that were held back for the buyers' cards.
func letGo(ctx context.Context, env harness.Env, buyers []buyer) error {
	return configure(ctx, env, payments.Config{Release: cardsOf(buyers)})
}

// lastHold is the hold that ends last.
func lastHold(buyers []buyer) holdAnswer {
	return slices.MaxFunc(buyers, func(a, b buyer) int { return a.hold.ExpiresAt.Compare(b.hold.ExpiresAt) }).hold
}

// awaitCount waits until the query, which counts as n, counts so many, and gives
// what it counted last. That it never does is no trouble of the environment:
// the drive goes on, and the checks say what is wrong then.
func awaitCount(ctx context.Context, env harness.Env, what string, want int, sql string, args ...any) (got int, err error) {
	var broken error
	late := env.Await(ctx, what, patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, sql, args...)
		if err != nil {
			if ctx.Err() == nil {
				broken = err
			}
			return false, "", err
		}
		got = int(whole(rows[0], "n"))
		return got == want, fmt.Sprintf("%d, want %d", got, want), nil
	})
	switch {
	case ctx.Err() != nil:
		return got, context.Cause(ctx)
	case late != nil && broken != nil:
		return got, late
	case late != nil:
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "did not come", Text: late.Error()})
	}
	return got, nil
}

// What drives count.
const (
	countFree        = `select count(*) as n from seats where state = 'FREE'`
	countQuarantined = `select count(*) as n from seats where state = 'QUARANTINED'`
	countCharging    = `select count(*) as n from charges where state = 'CHARGING'`
	countGivenUp     = `select count(*) as n from charges where state = 'REFUND_RESOLVED'`
	countReturned    = `select count(*) as n from refunds where state = 'DONE'`
	countOwed        = `select count(*) as n from refunds where state = 'PENDING' and parked_at is null`
)

// calm waits until no refund is being tried or due. A clock that is turned on
// over a call makes it a call that took that long, which the server must take
// for lost and make again: no scenario here is about that.
func calm(ctx context.Context, env harness.Env) error {
	_, err := awaitCount(ctx, env, "no refund is under way", 0, countOwed)
	return err
}

// endOf is how an order ended: its hold, then its charges. A charge that was
// captured and is not the winner has a refund, which is named unless the
// charge's own state says that it is done.
func endOf(hold harness.Row, charges []harness.Row, refunds map[string]harness.Row) string {
	var parts []string
	for _, c := range charges {
		end := text(c, "state")
		if r, ok := refunds[text(c, "charge_id")]; ok && end != "REFUNDED" {
			end += "+" + text(r, "state")
		}
		parts = append(parts, end)
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return text(hold, "state")
	}
	return text(hold, "state") + ": " + strings.Join(parts, " ")
}

// ends compares how the orders of each part ended. want has the ends that are
// lawful for a part, apart from each other by " or ", such as "CONFIRMED: CAPTURED" or
// "EXPIRED: REFUND_RESOLVED+DONE". A part that is not in it must have no order.
func ends(doc string, want map[string]string) harness.Check {
	return funcCheck("ends", doc, "orders.go", true, func(rec harness.Record) harness.Verdict {
		var c cast
		if err := rec.Plan.Decode(&c); err != nil {
			return harness.Undecided(harness.ReasonChecker, "the plan has no cast: %s", err)
		}
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		charges, refunds := l.byHold(rec)
		var wrong []harness.Evidence
		got := map[string]map[string]int{}
		for _, id := range slices.Sorted(maps.Keys(l.holds)) {
			h := l.holds[id]
			part, end := c.partOf(text(h, "login")), endOf(h, charges[id], refunds)
			if got[part] == nil {
				got[part] = map[string]int{}
			}
			got[part][end]++
			if lawful, ok := want[part]; !ok || !slices.Contains(strings.Split(lawful, " or "), end) {
				e := harness.Evidence{Text: fmt.Sprintf("order %s of %s, %s, ended as %s; want %s", id, text(h, "login"), part, end, orNone(lawful))}
				if op := text(h, "overbook_op"); op != "" {
					e.Ops = []string{op}
				}
				wrong = append(wrong, e)
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d did not, such as: %s", doc, len(wrong), wrong[0].Text)
		}
		var told []string
		for _, part := range slices.Sorted(maps.Keys(want)) {
			if got[part] == nil {
				return harness.Undecided(harness.ReasonVacuous, "there is no order of %s", part)
			}
			told = append(told, part+" "+answers.Text(got[part]))
		}
		return harness.Passed("%s: %s", doc, strings.Join(told, "; "))
	})
}

// byHold gives the charges of each hold, and the refund of each charge.
func (l ledgers) byHold(rec harness.Record) (charges map[string][]harness.Row, refunds map[string]harness.Row) {
	charges, refunds = map[string][]harness.Row{}, map[string]harness.Row{}
	for _, c := range l.charges {
		charges[text(c, "hold_id")] = append(charges[text(c, "hold_id")], c)
	}
	found, _ := rec.Find("table:refunds") // looked for by ledgersOf
	for _, r := range found.Rows {
		refunds[text(r, "charge_id")] = r
	}
	return charges, refunds
}

// instant reads a timestamp of a row; the zero time when it is null.
func instant(r harness.Row, column string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text(r, column))
	if err != nil {
		return time.Time{}
	}
	return t
}
