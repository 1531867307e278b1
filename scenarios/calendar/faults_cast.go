package calendar

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// hands is how many members book at once where that is not what is tried.
const hands = 8

// A part is one appointment of a scenario about the provider, what is to happen
// to it, and when somebody else's event is that is to be in its way. Each has a
// day of its own, and a member: the n-th part is member n's.
type part struct {
	Name     string `json:"part"`
	Resource int    `json:"resource"` // of the choices
	Span     span   `json:"span"`
	To       span   `json:"to"` // where it is moved, if it is
	Zone     string `json:"zone"`
	External string `json:"external"` // id of the other's event
	Over     span   `json:"over"`     // its time
}

// castChoices are what the seed decides for scenarios of that kind.
type castChoices struct {
	Resources []resource `json:"resources"`
	Parts     []part     `json:"parts"`
}

// paramEach is how many appointments play each part.
var paramEach = harness.Param{
	Name: "each", Kind: harness.IntParam, Default: "3", Min: 1, Max: 8,
	Doc: "appointments to which each of the things happens that the scenario tells of",
}

// partTouching is an appointment with somebody else's events right before and
// right after it, which are in nobody's way.
const partTouching = "touching"

// A role is a part, and how many appointments of which resource play it.
type role struct {
	Name            string
	Resource, Count int
}

// chooseRoles draws the parts of resources that have no appointment yet, in an
// order of its own.
func chooseRoles(resources int, roles func(harness.Params) []role) func(*rand.Rand, harness.Params) (any, error) {
	return func(rng *rand.Rand, p harness.Params) (any, error) { return drawCast(rng, p, resources, roles(p)), nil }
}

func drawCast(rng *rand.Rand, p harness.Params, resources int, roles []role) castChoices {
	c := castChoices{Resources: chooseResources(rng, p, resources)}
	for _, r := range roles {
		for range r.Count {
			c.Parts = append(c.Parts, part{Name: r.Name, Resource: r.Resource})
		}
	}
	rng.Shuffle(len(c.Parts), func(i, j int) { c.Parts[i], c.Parts[j] = c.Parts[j], c.Parts[i] })
	for n := range c.Parts {
		c.Parts[n] = drawPart(rng, c.Parts[n], n)
	}
	return c
}

// chooseParts draws the parts, each as often as the parameters say, of one
// resource.
func chooseParts(parts func(harness.Params) []string) func(*rand.Rand, harness.Params) (any, error) {
	return chooseRoles(1, func(p harness.Params) (list []role) {
		for _, name := range parts(p) {
			list = append(list, role{name, 0, p.Int(paramEach.Name)})
		}
		return list
	})
}

// theParts gives the same parts whatever the parameters are.
func theParts(names ...string) func(harness.Params) []string {
	return func(harness.Params) []string { return names }
}

// drawPart draws the times of a part: its own, and those of somebody else, that
// are the same, inside, around it, or share its first or its last minute.
func drawPart(rng *rand.Rand, p part, n int) part {
	from := 9*60 + rng.IntN(6*60)
	p.Span, p.Zone, p.External = day(n, from, from+30+rng.IntN(60)), chooseZone(rng), fmt.Sprintf("other-%d-%d", n, rng.IntN(1000))
	p.To = p.Span
	shift := []int{-120, -15, 15, 120}[rng.IntN(4)] // some of them overlap where it was
	p.To.From, p.To.To = p.To.From+shift, p.To.To+shift
	switch p.Over = p.Span; rng.IntN(5) {
	case 0:
		p.Over.From, p.Over.To = p.Span.From+5, p.Span.To-5
	case 1:
		p.Over.From, p.Over.To = p.Span.From-10, p.Span.To+10
	case 2:
		p.Over.From, p.Over.To = p.Span.From-30, p.Span.From+1
	case 3:
		p.Over.From, p.Over.To = p.Span.To-1, p.Span.To+30
	}
	return p
}

// playing are the numbers of the appointments that play one of the parts.
func (c castChoices) playing(names ...string) (list []int) {
	for n, p := range c.Parts {
		if slices.Contains(names, p.Name) {
			list = append(list, n)
		}
	}
	return list
}

// all are the numbers of all appointments.
func (c castChoices) all() []int {
	list := make([]int, len(c.Parts))
	for n := range list {
		list[n] = n
	}
	return list
}

// partOf is the part of an appointment's member, "" for somebody else's.
func (c castChoices) partOf(memberName string) string {
	for n, p := range c.Parts {
		if member(n) == memberName {
			return p.Name
		}
	}
	return ""
}

// orElse stands between ends of which each is right.
const orElse = " | "

// ends compares how the appointments of each part ended: their state, and their
// conflicts as "kind/found by/resolution", in order. Where it may be one of
// several, these stand beside each other with a bar between them.
func ends(doc string, want map[string]string) harness.Check {
	return funcCheck("ends", doc, "faults_cast.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		var c castChoices
		switch {
		case missing != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		case rec.Plan.Decode(&c) != nil:
			return harness.Undecided(harness.ReasonAssumption, "the plan has no parts")
		}
		var wrong []harness.Evidence
		seen := map[string]int{}
		for id, a := range b.appointments {
			name := c.partOf(text(a, "member"))
			if _, judged := want[name]; !judged {
				continue
			}
			seen[name]++
			if got := b.end(a); !slices.Contains(strings.Split(want[name], orElse), got) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s of %s (%s) ended as %q, want %q", id, text(a, "member"), name, got, want[name]), Ops: opOf(a)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d did not; %s", doc, len(wrong), wrong[0].Text)
		}
		for name := range want {
			if n := len(c.playing(name)); n == 0 || seen[name] != n {
				return harness.Undecided(harness.ReasonVacuous, "%d of %d appointments play %s", seen[name], n, name)
			}
		}
		return harness.Passed("%s: %s", doc, answers.Text(seen))
	})
}

// end is how an appointment ended, in words.
func (b books) end(a harness.Row) string {
	list := slices.SortedFunc(slices.Values(b.conflicts[text(a, "appointment_id")]), func(x, y harness.Row) int {
		return strings.Compare(text(x, "found_at")+text(x, "conflict_id"), text(y, "found_at")+text(y, "conflict_id"))
	})
	words := []string{text(a, "state")}
	for _, c := range list {
		resolution := text(c, "resolution")
		if c["resolved_at"] == nil {
			resolution = "open"
		}
		words = append(words, text(c, "kind")+"/"+text(c, "found_by")+"/"+resolution)
	}
	return strings.Join(words, " ")
}

// saw compares what the provider was asked to do with the event of each part's
// appointments: the outcomes of the creates and updates that it decided, in
// order, "" for none. Repetitions that changed nothing don't count: whoever
// loses a claim may have one.
func saw(doc string, want map[string][]string) harness.Check {
	return bookCheckOfParts("saw", doc, func(b books, c castChoices) (wrong []harness.Evidence, judged int) {
		got := map[string][]string{}
		for _, call := range b.provider.Calls {
			if (call.Call == provider.Create || call.Call == provider.Update) && call.Outcome != "exists" && call.Outcome != "stale" {
				got[call.EventID] = append(got[call.EventID], call.Call+" "+call.Outcome)
			}
		}
		for id, a := range b.appointments {
			may, is := want[c.partOf(text(a, "member"))]
			if !is {
				continue
			}
			judged++
			if told := strings.Join(got[text(a, "event_id")], ", "); !slices.Contains(may, told) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("the provider was told %q of appointment %s (%s), want one of %q", told, id, c.partOf(text(a, "member")), may), Ops: opOf(a)})
			}
		}
		return wrong, judged
	})
}

// bookCheckOfParts is a check of both sides that knows the parts. That it
// judged nothing leaves it open.
func bookCheckOfParts(id, doc string, judge func(b books, c castChoices) (wrong []harness.Evidence, judged int)) harness.Check {
	return funcCheck(id, doc, "faults_cast.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		var c castChoices
		switch {
		case missing != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		case rec.Plan.Decode(&c) != nil:
			return harness.Undecided(harness.ReasonAssumption, "the plan has no parts")
		}
		wrong, judged := judge(b, c)
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d are not so; %s", doc, len(wrong), wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "there was nothing to judge")
		}
		return harness.Passed("%s: %d judged", doc, judged)
	})
}

// groupByKind groups the operations of the kinds that are told of.
func groupByKind(want answers.Tallies) func(harness.Operation) string {
	return func(op harness.Operation) string {
		if _, is := want[op.Kind]; is {
			return op.Kind
		}
		return ""
	}
}

// kinds compares what was told to the operations of each kind.
func kinds(doc string, want answers.Tallies) harness.Check {
	return words("answers", doc, groupByKind(want), answers.Fixed(want))
}

// plus adds to a map.
func plus[V any](m map[string]V, more map[string]V) map[string]V {
	m = maps.Clone(m)
	maps.Copy(m, more)
	return m
}

// atMost is a parameter with a lower bound above.
func atMost(p harness.Param, n int) harness.Param {
	p.Max = n
	return p
}
