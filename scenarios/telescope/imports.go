package telescope

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/overbook/overbook/harness"
)

func maintenanceImport() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/maintenance-import",
		Title: "an import closes many slots while members book them and staff close some, another one reopens them",
		Doc: `At one barrier an import closes all slots, a member each books them, and somebody else closes every fourth of them; at the next one an import reopens
them all, another member each books them, and every fourth is reopened by somebody else, too. An import is a closure like any other: it takes the slots' rows, in order, before
it looks at one. Each slot is closed once and reopened once; a booking that came before the closure is flagged, named in one answer, and
stands again after the reopening; one that came after it was refused.`,
		Sources: []string{"T-I2", "T-I10", "T-M3", "T-M19"},
		Params:  []harness.Param{with(paramSlots, "40"), paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("slots")
			all := 1 + n + singles(n)
			return choices{Slots: slotsOfOneMonth(rng, n), Orders: [][]int{rng.Perm(all), rng.Perm(all)}}, nil
		},
		Drive: driveImport,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(), importedAll(p.Int("slots")))
		},
	}, nil)
}

// singleEvery: every fourth slot is also closed and reopened by itself.
const singleEvery = 4

func singles(slots int) int { return (slots + singleEvery - 1) / singleEvery }

// The bursts of a maintenance, named by the state that the import asks for.
var maintenance = []string{"closed", "open"}

func driveImport(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	for round, state := range maintenance {
		requests := []harness.Request{importOf(staffProcess, staff(0), c.Slots, now, state, state)}
		for n, s := range c.Slots {
			requests = append(requests, book(1000*round+n, roundMember(round, n), s.ID, "book"))
			if n%singleEvery == 0 && state == "closed" {
				requests = append(requests, closeSlot(staffProcess+1+n, staff(1), s.ID, keyOf("close", n)))
			} else if n%singleEvery == 0 {
				requests = append(requests, reopenSlot(staffProcess+1+n, staff(1), s.ID, keyOf("reopen", n)))
			}
		}
		b := harness.Burst{Name: state}
		for _, i := range c.Orders[round] {
			b.Requests = append(b.Requests, requests[i])
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
		measureRound(env, state, ops)
	}
	return nil
}

// measureRound tells how the race of one burst went.
func measureRound(env harness.Env, state string, ops []harness.Operation) {
	made, alone := 0, 0
	for _, op := range ops {
		made += int(count(op.Kind == kindBook && op.Status == http.StatusCreated))
		alone += int(count((op.Kind == kindClose || op.Kind == kindReopen) && op.Status == http.StatusOK))
	}
	env.Measure(state+"_booked", float64(made))
	env.Measure(state+"_before_import", float64(alone))
}

// A round is what the clients of one of the two bursts were told.
type round struct {
	booked  map[int64]string // booking by slot, of those that were answered 201
	alone   int              // slots that somebody else changed before the import
	flagged []string         // bookings that answers name as flagged
	answers int
	imports []harness.Operation
	wrong   []harness.Evidence
}

// read notes what an answer of the burst says, or what is wrong with it.
func (r *round) read(op harness.Operation, taken map[int64]string) {
	r.answers++
	var a struct {
		Flagged *string `json:"flagged"`
	}
	switch told := word(op); {
	case op.Kind == kindImport:
		r.imports = append(r.imports, op)
	case op.Kind == kindBook && told == "201":
		b, err := bookingOf(op)
		if err != nil || r.booked[slotOf(op)] != "" || taken[slotOf(op)] != "" {
			r.wrong = append(r.wrong, about(op, "a second booking of the slot"))
		}
		r.booked[slotOf(op)] = b.BookingID
	case op.Kind == kindBook && (told == "409 slot-closed" || told == "409 slot-taken" && taken[slotOf(op)] != ""):
	case op.Kind == kindReopen && told == "200":
		r.alone++
	case op.Kind == kindClose && told == "200" && op.Decode(&a) == nil:
		r.alone++
		if a.Flagged != nil {
			r.flagged = append(r.flagged, *a.Flagged)
		}
	case op.Kind == kindClose && told == "409 already-closed", op.Kind == kindReopen && told == "409 already-open":
	default:
		r.wrong = append(r.wrong, about(op, "not an answer that the race allows"))
	}
}

// importSays compares the import's answer with what the others were told.
func (r *round) importSays(op harness.Operation, slots int) {
	var a struct {
		Created, Closed, Reopened, Unchanged int
		Flagged                              []string
	}
	if op.Status != http.StatusOK || op.Decode(&a) != nil || a.Created != 0 {
		r.wrong = append(r.wrong, about(op, "want 200 with nothing created"))
		return
	}
	changed, other := a.Closed, a.Reopened
	if op.Burst == "open" {
		changed, other = other, changed
	}
	if changed != slots-r.alone || a.Unchanged != r.alone || other != 0 {
		r.wrong = append(r.wrong, about(op, fmt.Sprintf("want %d slots changed, as %d had been changed by somebody else", slots-r.alone, r.alone)))
	}
	r.flagged = append(r.flagged, a.Flagged...)
}

// importedAll: each slot was closed once and reopened once, the answers name
// exactly the bookings that came before the closure, and each slot is held by
// who was answered 201.
func importedAll(slots int) harness.Check {
	const doc = "each slot was closed and reopened once, the closures named exactly the bookings that came before them, and who was answered 201 has the slot"
	return funcCheck("T-I2.import", doc, "imports.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		closing, opening := &round{booked: map[int64]string{}}, &round{booked: map[int64]string{}}
		for _, r := range []*round{closing, opening} {
			name, taken := maintenance[0], map[int64]string(nil)
			if r == opening {
				name, taken = maintenance[1], closing.booked
			}
			for _, op := range rec.History.Operations {
				if op.Burst == name && op.Answered != 0 {
					r.read(op, taken)
				}
			}
			for _, op := range r.imports {
				r.importSays(op, slots)
			}
		}
		all := 1 + slots + singles(slots)
		if len(closing.imports) == 0 || len(opening.imports) == 0 || closing.answers < all || opening.answers < all {
			return harness.Undecided(harness.ReasonUndelivered, "%d and %d of %d requests were answered", closing.answers, opening.answers, all)
		}
		wrong := append(closing.wrong, opening.wrong...)
		before := slices.Sorted(maps.Values(closing.booked))
		slices.Sort(closing.flagged)
		if !slices.Equal(before, closing.flagged) || len(opening.flagged) > 0 {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("booked before the closure %v, flagged %v, flagged by the reopening %v", before, closing.flagged, opening.flagged)})
		}
		for _, s := range planned(rec).Slots {
			holder := closing.booked[s.ID] + opening.booked[s.ID] // at most one of them
			if at := stands[s.ID]; at == nil || at.State != "open" || at.Holder != holder || at.FlagState != "" {
				wrong = append(wrong, pairEvidence(fmt.Sprintf("slot %d: answered to %q", s.ID, holder), at))
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(few(wrong), "%s: %d differ", doc, len(wrong))
		}
		return harness.Passed("%s: %d before the closure, %d after the reopening", doc, len(closing.booked), len(opening.booked))
	})
}
