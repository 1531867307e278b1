package calendar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A racePlace is where among our own steps something else comes: right before
// the step that it is named by. Our steps are always in this order: the booking
// commits; the synchroniser claims the appointment and reads it; the final check
// (free/busy); the create; the look at the events of the time; the store of what
// came of it; reconciliation.
type racePlace string

// The places. raceReconciled is after reconciliation has looked.
const (
	raceNever      racePlace = "never"
	raceBooking    racePlace = "before the booking"
	raceClaim      racePlace = "before the claim"
	raceCheck      racePlace = "before the check"
	raceCreate     racePlace = "before the create"
	raceLook       racePlace = "before the look"
	raceStore      racePlace = "before the store"
	raceStored     racePlace = "after the store"
	raceReconciled racePlace = "after reconciliation"
)

// Where somebody else's event, and where the member's cancellation can come.
var (
	externalPlaces = []racePlace{raceBooking, raceClaim, raceCheck, raceCreate, raceLook, raceStore, raceStored}
	cancelPlaces   = []racePlace{raceClaim, raceCheck, raceCreate, raceLook, raceStore, raceStored, raceReconciled}
)

// Sets of places that rows of the table share.
var (
	raceNowhere = []racePlace{raceNever}
	raceInTime  = []racePlace{raceBooking, raceClaim, raceCheck}          // the final check sees it
	raceLate    = []racePlace{raceStore, raceStored}                      // only reconciliation sees it
	raceMidway  = []racePlace{raceCheck, raceCreate, raceLook, raceStore} // the synchroniser has read the appointment as active, and stores later
	raceAfter   = []racePlace{raceStored, raceReconciled}
)

// What an interleaving comes to.
const (
	raceNoOverlap  = "no overlap"               // nobody else wanted the time, or ours was given up
	raceByUs       = "excluded by us"           // ours gave way before the provider was asked to create it
	raceByProvider = "excluded by the provider" // it refused the create
	raceResidual   = "residual"                 // both stood, or stand, and that is on record
	raceSilence    = "silence"                  // both stand, and nobody says so: no row has this
)

// How a residual conflict is resolved.
const (
	raceByPolicy = "the policy: ours is rejected and deleted"
	raceByStaff  = "staff: kept, or cancelled"
	raceByMember = "the member's cancellation"
)

// A raceEnd is what came of an interleaving.
type raceEnd struct {
	Class    string // one of those above
	Found    string // of a residual conflict: check, look or reconciliation
	Resolved string // likewise: how
	State    string // of the appointment; asDecided when that is up to staff
	Made     bool   // the provider has made our event, if only for a while
	Cancel   string // what the member was told, "" without a cancellation
}

const asDecided = "as staff decide"

// A raceRow says what comes of the interleavings that it is about. "" is either
// contract, or either policy; in which order two come at one place is all one.
type raceRow struct {
	contract, policy string
	external, cancel []racePlace
	end              raceEnd
	why              string
}

const (
	told200 = "200"
	told409 = "409 appointment-over"
)

// raceTable is what each contract and each policy promises of every interleaving:
// docs/provider-race.md has it in words. Each interleaving is in exactly one row.
var raceTable = []raceRow{
	{"", "", raceNowhere, raceNowhere, raceEnd{raceNoOverlap, "", "", "CREATED", true, ""}, "nobody else comes"},
	{"", "", raceNowhere, []racePlace{raceClaim}, raceEnd{raceNoOverlap, "", "", "CANCELLED", false, told200}, "the provider never hears of it"},
	{"", "", raceNowhere, append(slices.Clone(raceMidway), raceAfter...), raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "created, then deleted; no create can come after that, as the id is spent"},
	{"", "", []racePlace{raceBooking, raceClaim, raceStored}, []racePlace{raceClaim}, raceEnd{raceNoOverlap, "", "", "CANCELLED", false, told200}, "the provider never hears of it"},

	{"", policyReject, raceInTime, raceNowhere, raceEnd{raceByUs, "", "", "REJECTED", false, ""}, "the final check sees it"},
	{"", policyReject, raceInTime, []racePlace{raceCheck, raceCreate}, raceEnd{raceNoOverlap, "", "", "CANCELLED", false, told200}, "the final check sees it, and ours is over already"},
	{"", policyReject, raceInTime, raceAfter, raceEnd{raceByUs, "", "", "REJECTED", false, told409}, "the final check sees it; the member is told that it is over"},
	{"", policyKeep, raceInTime, raceNowhere, raceEnd{raceResidual, "check", raceByStaff, asDecided, true, ""}, "the final check sees it, and ours is created all the same"},
	{"", policyKeep, raceInTime, raceMidway, raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "created over it, then deleted"},
	{"", policyKeep, raceInTime, raceAfter, raceEnd{raceResidual, "check", raceByMember, "CANCELLED", true, told200}, "on record until ours is deleted"},

	{contractCheck, policyReject, []racePlace{raceCreate}, raceNowhere, raceEnd{raceResidual, "look", raceByPolicy, "REJECTED", true, ""}, "this provider takes the create; the look finds it"},
	{contractCheck, policyKeep, []racePlace{raceCreate}, raceNowhere, raceEnd{raceResidual, "look", raceByStaff, asDecided, true, ""}, "this provider takes the create; the look finds it"},
	{contractCheck, "", []racePlace{raceCreate}, raceMidway, raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "created over it, then deleted"},
	{contractCheck, policyReject, []racePlace{raceCreate}, raceAfter, raceEnd{raceResidual, "look", raceByPolicy, "REJECTED", true, told409}, "the look finds it; the member is told that it is over"},
	{contractCheck, policyKeep, []racePlace{raceCreate}, raceAfter, raceEnd{raceResidual, "look", raceByMember, "CANCELLED", true, told200}, "on record until ours is deleted"},

	{contractAtomic, policyReject, []racePlace{raceCreate}, raceNowhere, raceEnd{raceByProvider, "", "", "REJECTED", false, ""}, "the provider refuses the create"},
	{contractAtomic, policyReject, []racePlace{raceCreate}, []racePlace{raceCheck, raceCreate, raceLook}, raceEnd{raceNoOverlap, "", "", "CANCELLED", false, told200}, "the provider refuses the create, and ours is over already"},
	{contractAtomic, policyReject, []racePlace{raceCreate}, raceAfter, raceEnd{raceByProvider, "", "", "REJECTED", false, told409}, "the provider refuses the create; the member is told that it is over"},
	{contractAtomic, policyKeep, []racePlace{raceCreate}, raceNowhere, raceEnd{raceResidual, "check", raceByStaff, asDecided, true, ""}, "the provider refuses the create, which tells us; it is created without the condition"},
	{contractAtomic, policyKeep, []racePlace{raceCreate}, raceMidway, raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "created over it, then deleted"},
	{contractAtomic, policyKeep, []racePlace{raceCreate}, raceAfter, raceEnd{raceResidual, "check", raceByMember, "CANCELLED", true, told200}, "on record until ours is deleted"},

	{"", policyReject, []racePlace{raceLook}, raceNowhere, raceEnd{raceResidual, "look", raceByPolicy, "REJECTED", true, ""}, "ours was there first; the look finds it"},
	{"", policyKeep, []racePlace{raceLook}, raceNowhere, raceEnd{raceResidual, "look", raceByStaff, asDecided, true, ""}, "ours was there first; the look finds it"},
	{"", "", []racePlace{raceLook}, raceMidway, raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "the look finds it, and ours is over already"},
	{"", policyReject, []racePlace{raceLook}, raceAfter, raceEnd{raceResidual, "look", raceByPolicy, "REJECTED", true, told409}, "the look finds it; the member is told that it is over"},
	{"", policyKeep, []racePlace{raceLook}, raceAfter, raceEnd{raceResidual, "look", raceByMember, "CANCELLED", true, told200}, "on record until ours is deleted"},

	{"", policyReject, raceLate, raceNowhere, raceEnd{raceResidual, "reconciliation", raceByPolicy, "REJECTED", true, ""}, "the look came before it; reconciliation finds it"},
	{"", policyKeep, raceLate, raceNowhere, raceEnd{raceResidual, "reconciliation", raceByStaff, asDecided, true, ""}, "the look came before it; reconciliation finds it"},
	{"", "", raceLate, append(slices.Clone(raceMidway), raceStored), raceEnd{raceNoOverlap, "", "", "CANCELLED", true, told200}, "ours is over before anybody looks again"},
	{"", policyReject, raceLate, []racePlace{raceReconciled}, raceEnd{raceResidual, "reconciliation", raceByPolicy, "REJECTED", true, told409}, "reconciliation finds it; the member is told that it is over"},
	{"", policyKeep, raceLate, []racePlace{raceReconciled}, raceEnd{raceResidual, "reconciliation", raceByMember, "CANCELLED", true, told200}, "on record until ours is deleted"},
}

// has says whether the row is about an interleaving under a contract and a policy.
func (r raceRow) has(contract, policy string, il interleaving) bool {
	return (r.contract == "" || r.contract == contract) && (r.policy == "" || r.policy == policy) &&
		slices.Contains(r.external, il.External) && slices.Contains(r.cancel, il.Cancel)
}

// raceRowsOf are the rows about an interleaving: one.
func raceRowsOf(contract, policy string, il interleaving) (rows []raceRow) {
	for _, r := range raceTable {
		if r.has(contract, policy, il) {
			rows = append(rows, r)
		}
	}
	return rows
}

// An interleaving says where somebody else's event comes, and where the
// cancellation; when both come at one place, which is first.
type interleaving struct {
	External    racePlace `json:"external"`
	Cancel      racePlace `json:"cancel"`
	CancelFirst bool      `json:"cancel_first,omitempty"`
}

// String says it in a line.
func (il interleaving) String() string {
	text := fmt.Sprintf("external event %s, cancellation %s", il.External, il.Cancel)
	switch {
	case il.External != il.Cancel || il.External == raceNever:
		return text
	case il.CancelFirst:
		return text + ", first"
	}
	return text + ", after it"
}

// interleavings are all of a contract and a policy.
func interleavings(contract, policy string) (list []interleaving) {
	for _, external := range append([]racePlace{raceNever}, externalPlaces...) {
		for _, cancel := range append([]racePlace{raceNever}, cancelPlaces...) {
			if !cameAbout(contract, policy, external, cancel) {
				continue
			}
			list = append(list, interleaving{external, cancel, false})
			if external == cancel && external != raceNever {
				list = append(list, interleaving{external, cancel, true})
			}
		}
	}
	return list
}

// cameAbout says whether there are such places: a synchroniser that finds the
// appointment cancelled takes no further step, nor does one that gives way.
func cameAbout(contract, policy string, external, cancel racePlace) bool {
	switch {
	case cancel == raceClaim:
		return !slices.Contains(raceMidway, external)
	case policy == policyReject && slices.Contains(raceInTime, external): // no create
		return cancel != raceLook && cancel != raceStore
	case policy == policyReject && contract == contractAtomic && external == raceCreate: // nothing was made that is looked at
		return cancel != raceStore
	}
	return true
}

// line is the row as docs/provider-race.md has it.
func (r raceRow) line() string {
	either := func(s string) string {
		if s == "" {
			return "either"
		}
		return "`" + s + "`"
	}
	comes := r.end.Class
	if r.end.Class == raceResidual {
		comes += ", found by " + r.end.Found
	}
	event := "never made"
	if r.end.Made {
		event = map[string]string{"CREATED": "stands", asDecided: "stands or is deleted"}[r.end.State]
		if event == "" {
			event = "made and deleted"
		}
	}
	state := r.end.State
	if r.end.Cancel == told409 {
		state += ", the cancellation is " + r.end.Cancel
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", either(r.contract), either(r.policy), placesText(r.external), placesText(r.cancel),
		comes, orDash(r.end.Resolved), state, event, r.why, r.shownBy())
}

// shownBy names the scenarios that walk through the row, as patterns that
// `overbook run` takes.
func (r raceRow) shownBy() string {
	return "`" + raceName(cmp.Or(r.contract, "*"), cmp.Or(r.policy, "*")) + "`"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func placesText(places []racePlace) string {
	parts := make([]string, len(places))
	for i, p := range places {
		parts[i] = string(p)
	}
	return strings.Join(parts, "; ")
}
