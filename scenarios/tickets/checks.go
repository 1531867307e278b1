package tickets

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
)

func sqlCheck(id, file string) harness.Check {
	return check.SQL(id, invariants, "invariants/"+file, where)
}

// funcCheck makes a check of a function; file is where it is written.
func funcCheck(id, doc, file string, settled bool, judge func(harness.Record) harness.Verdict) harness.Check {
	return check.Func(check.Rule{ID: id, Doc: doc, Rule: where + "/" + file, NeedsSettled: settled, Judge: judge})
}

// words compares what the clients of each group were told.
func words(id, doc string, group func(harness.Operation) string, want func(harness.Record) answers.Tallies) harness.Check {
	return answers.Words(answers.WordsRule{ID: id, Doc: doc, Rule: where + "/checks.go", Group: group, Want: want})
}

// An allowance is what a scenario can't demand of the standing rules, or
// demands beside them.
type allowance struct {
	repeatedRefunds int  // calls for a payment's refund after the server was told that it went back: it may have died with that answer
	secondAttempts  bool // the scenario is about charges after a decline, and has shown nothing without one
}

// always are the checks that hold in every scenario of this design, whatever
// was injected.
func always(p harness.Params) []harness.Check { return standing(p, allowance{}) }

// standing are the checks of every scenario, with its allowance.
//
// The history's order is trusted in this: a transaction writes its audit rows
// after it has the rows that they are about, so that of two transactions which
// exclude each other the later one's have the higher numbers.
func standing(_ harness.Params, a allowance) []harness.Check {
	return []harness.Check{
		check.Instant(sqlCheck("S-I1", "one_confirmed_per_seat.sql")),
		captureGoesSomewhere(),
		check.Instant(sqlCheck("S-I3", "sold_is_paid.sql")),
		check.Instant(sqlCheck("S-I4", "steps_follow_arrows.sql")),
		check.Instant(sqlCheck("S-I4.seat", "seat_changes_hands.sql")),
		sqlCheck("S-I5", "captured_goes_somewhere.sql"),
		refundedOnce(a.repeatedRefunds),
		sqlCheck("S-I6", "quarantine_is_kept.sql"),
		check.Instant(sqlCheck("S-I7", "one_checkout_per_login.sql")),
		paymentsAreKnown(),
		secondAttempts(a.secondAttempts),
		check.Instant(sqlCheck("S-I10", "own_seat.sql")),
		seatsAddUp(),
		seatsAgree(),
		toldIsStored(),
		nothingOverdue(),
		sqlCheck("history", "history_without_gaps.sql"),
		sqlCheck("history.states", "history_replays.sql"),
		sqlCheck("history.events", "event_per_step.sql"),
		sqlCheck("history.notices", "notice_per_event.sql"),
	}
}

// served are the checks of a scenario in which nothing is broken or held back
// for longer than the server's deadlines: nobody may be told to come again.
func served(p harness.Params) []harness.Check { return append(always(p), noServerErrors()) }

func noServerErrors() harness.Check { return answers.NoServerErrors(where + "/checks.go") }

// dueSlack is how long after its time something may still be open at the end of
// a drive, which has waited for far longer.
const dueSlack = 2 * time.Second

// nothingOverdue judges what a server should have ended by itself: holds that
// have run out with nothing in flight, and charges past the hard timeout.
func nothingOverdue() harness.Check {
	const doc = "at the end no hold has outlived its time without a charge in flight, and no charge its hard timeout"
	return funcCheck("S-I6.due", doc, "checks.go", false, func(rec harness.Record) harness.Verdict {
		now, ok := serverTimeOf(rec)
		holds, ok2 := rec.Find("table:holds")
		charges, ok3 := rec.Find("table:charges")
		if !ok || !ok2 || !ok3 {
			return harness.Undecided(harness.ReasonEnvironment, "the servers' time at the end, the holds or the charges are not known")
		}
		var wrong []harness.Evidence
		flying := map[string]bool{}
		for _, c := range charges.Rows {
			if text(c, "state") == "CHARGING" {
				flying[text(c, "hold_id")] = true
				if sent, err := time.Parse(time.RFC3339Nano, text(c, "sent_at")); err == nil && sent.Add(hardTimeout+dueSlack).Before(now) {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("charge %v of hold %v, sent at %v, is CHARGING at %s", c["charge_id"], c["hold_id"], c["sent_at"], now.Format(time.RFC3339))})
				}
			}
		}
		for _, h := range holds.Rows {
			until, err := time.Parse(time.RFC3339Nano, text(h, "expires_at"))
			if text(h, "state") == "RESERVED" && !flying[text(h, "hold_id")] && err == nil && until.Add(dueSlack).Before(now) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("hold %v, until %v, is RESERVED at %s", h["hold_id"], h["expires_at"], now.Format(time.RFC3339))})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d holds, %d charges", doc, len(holds.Rows), len(charges.Rows))
	})
}

// serverTimeOf is the servers' time at the end of the drive.
func serverTimeOf(rec harness.Record) (now time.Time, ok bool) {
	for _, e := range rec.History.Events {
		if e.Subject == subjectServerTime {
			t, err := time.Parse(time.RFC3339Nano, e.Attrs[attrNow])
			now, ok = t, err == nil
		}
	}
	return now, ok
}

// outputCap is how much of an answer the history keeps.
const outputCap = 16 << 10

// seatsAddUp is S-I11 as told: every answer about a show's seats adds up.
func seatsAddUp() harness.Check {
	const doc = "in every answer about a show the numbers of seats agree with its list: seats = free + held + quarantined + sold"
	return funcCheck("S-I11", doc, "checks.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if op.Method != "GET" || op.Status != 200 || !strings.HasSuffix(op.Path, "/seats") {
				continue
			}
			var s seatsAnswer
			if len(op.Output) >= outputCap {
				continue // a large show's answer is not kept whole
			}
			if err := op.Decode(&s); err != nil {
				wrong = append(wrong, answers.About(op, "can't be read"))
				continue
			}
			judged++
			n := map[string]int{}
			for _, seat := range s.Seats {
				n[seat.State]++
			}
			if n["FREE"] != s.Free || n["HELD"] != s.Held || n["QUARANTINED"] != s.Quarantined || n["SOLD"] != s.Sold || s.Free+s.Held+s.Quarantined+s.Sold != len(s.Seats) {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%d seats listed: %s", len(s.Seats), answers.Text(n))))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d do not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was told of a show's seats")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}

// seatsAgree is S-I11 as stored: what the sampler saw while it was driven.
func seatsAgree() harness.Check {
	const doc = "at every sampled instant each seat is as its hold has it: HELD with a RESERVED one, SOLD with a CONFIRMED and paid one, QUARANTINED with a charge in flight, FREE with none"
	return funcCheck("S-I11.rows", doc, "sampler.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		samples := 0
		for _, e := range rec.History.Events {
			switch e.Subject {
			case subjectTorn:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("between %s and %s: %s", e.At, e.Until, e.Text)})
			case subjectSamples:
				n, _ := strconv.Atoi(e.Attrs[attrSamples]) // what is no number is no sample
				samples += n
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: it was not so at %d or more of %d", doc, len(wrong), samples)
		case samples == 0:
			return harness.Undecided(harness.ReasonVacuous, "no snapshot of the seats was taken")
		}
		return harness.Passed("%s: %d snapshots", doc, samples)
	})
}
