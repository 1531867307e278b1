package calendar

import (
	"context"
	"fmt"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// handsOfReplica is how many appointments one replica brings at once.
const handsOfReplica = 8

// Parts when the authorisation is over.
const (
	partAtOnce    = "at-once"   // created with a token that had expired
	partMeanwhile = "meanwhile" // booked while there is no authorisation
	partMoved     = "moved"
	partCancelled = "cancelled"
	partElsewhere = "elsewhere" // of another resource

	meanwhile = 4   // appointments each, of the others
	slowToken = 100 // milliseconds that a refresh takes in the waves
)

// Kinds of what is done without an authorisation, and after.
const (
	kindBookMeanwhile = "book-meanwhile"
	kindElsewhere     = "book-elsewhere"
	kindActivateAgain = "activate-again"
	kindLookFailed    = "resource-failed"
	kindLookOther     = "resource-other"
	kindLookResumed   = "resource-resumed"
)

func tokenExpiry() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/token-expiry",
		Title: "fifty appointments at once meet an expired token; later there is no authorisation at all",
		Doc: `Members book at one barrier. Wave by wave, as many creates as the servers make at once are held at the provider, the access token ends, and all of them are let go: each is told
401. That costs one refresh, whoever asks for it, on whatever replica, and no appointment is lost or made twice. Then the refresh token is revoked: creation is FAILED_AUTH after
one refused refresh; bookings, moves and cancellations go on to be taken and wait; another resource goes on. Activation with a new refresh token resumes: everything that
waited is created, moved and deleted.`,
		Sources: []string{"C-I7", "C-I2", "C-I3", "C-M6", "C-M12"},
		Params:  []harness.Param{atMost(paramUsers, 400), paramReplicas, paramContract},
		Choose: chooseRoles(2, func(p harness.Params) []role {
			return []role{{partAtOnce, 0, users(p)}, {partMoved, 0, meanwhile}, {partCancelled, 0, meanwhile}, {partMeanwhile, 0, meanwhile}, {partElsewhere, 1, meanwhile}}
		}),
		Topology: func(p harness.Params) harness.Topology {
			return topology(p, map[string]string{"CALENDAR_TIMEOUT": longCall.String()})
		},
		Drive: driveToken,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), refreshedOnce(),
				kinds("members are served whatever the tokens are", answers.Tallies{
					kindBook: {"201": users(p) + 2*meanwhile}, kindBookMeanwhile: {"201": meanwhile}, kindElsewhere: {"201": meanwhile},
					kindMove: {"200": meanwhile}, kindCancel: {"200": meanwhile}, kindActivateAgain: {"200": 1},
				}),
				resourcesTold("staff see what has failed, and that it goes on", map[string]string{
					kindLookFailed: fmt.Sprintf("FAILED_AUTH, 0 unresolved, %d pending", 3*meanwhile),
					kindLookOther:  "RUNNING, 0 unresolved, 0 pending", kindLookResumed: "RUNNING, 0 unresolved, 0 pending",
				}),
				ends("nothing is lost over a token", map[string]string{partAtOnce: "CREATED", partMoved: "CREATED", partMeanwhile: "CREATED", partElsewhere: "CREATED", partCancelled: "CANCELLED"}))
		},
	}, nil)
}

func driveToken(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	slow := func(b *provider.Behaviour) {
		b.HoldCreates, b.LatencyMS = true, map[string]float64{provider.Token: slowToken}
	} // so that who refreshes beside others does it
	if err := s.behave(ctx, slow, provider.Config{}); err != nil {
		return err
	}
	first := s.playing(partAtOnce, partMoved, partCancelled)
	ops, err := s.released(ctx, "all book", kindBook, first, s.booking)
	if err == nil {
		err = s.keep(first, ops)
	}
	if err != nil {
		return err
	}
	late := s.waves(ctx, len(first))
	if err := declare(ctx, env, s.Resources...); err != nil {
		return err
	}
	if late != nil { // what became of the appointments is for the checks to judge; the rest would show nothing
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "the creates did not come again", Text: late.Error()})
		return finish(ctx, env)
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	if err := s.withoutAuthorisation(ctx); err != nil {
		return err
	}
	return finish(ctx, env)
}

// waves has the creates of n appointments meet an expired token, as many at
// once as there are hands for.
func (s *cast) waves(ctx context.Context, n int) error {
	calendar := s.Resources[0].Calendar
	for left := n; left > 0; {
		wave := min(left, handsOfReplica*len(s.env.Servers()))
		if err := awaitWaiting(ctx, s.env, calendar, wave); err != nil {
			return err
		}
		if err := configure(ctx, s.env, provider.Config{ExpireTokens: []string{calendar}, Release: []string{calendar}}); err != nil {
			return err
		}
		if err := awaitWaiting(ctx, s.env, calendar, wave); err != nil { // with the next token
			return err
		}
		if err := configure(ctx, s.env, provider.Config{Release: []string{calendar}}); err != nil {
			return err
		}
		left -= wave
	}
	refused := map[string]bool{}
	for _, c := range s.env.Upstream(provider.Name).Calls() {
		if c.Method == http.MethodPost && c.Path == "/events" && c.Status == http.StatusUnauthorized {
			refused[aboutOf(c)] = true
		}
	}
	s.env.Witness("met_an_expired_token", float64(n), float64(len(refused)), "appointments whose create was told that the token had expired")
	return nil
}

// withoutAuthorisation goes on when the refresh token is worth nothing, until
// staff give another one.
func (s *cast) withoutAuthorisation(ctx context.Context) error {
	r := s.Resources[0]
	if err := configure(ctx, s.env, provider.Config{Revoke: []string{r.Calendar}}); err != nil {
		return err
	}
	if err := s.book(ctx, kindBookMeanwhile, s.playing(partMeanwhile)); err != nil {
		return err
	}
	const countFailed = `select count(*) as n from accounts where state = 'FAILED_AUTH'`
	if err := awaitCount(ctx, s.env, "the authorisation is over", 1, countFailed); err != nil {
		return err
	}
	s.each(ctx, kindMove, s.playing(partMoved), s.moving)
	s.each(ctx, kindCancel, s.playing(partCancelled), s.cancelling)
	if err := s.book(ctx, kindElsewhere, s.playing(partElsewhere)); err != nil {
		return err
	}
	if err := awaitCount(ctx, s.env, "the other resource's are created", meanwhile, countSynced, s.ids(partElsewhere)); err != nil {
		return err
	}
	if err := awaitSynced(ctx, s.env); err != nil { // whoever had a claim has given it back
		return err
	}
	s.look(ctx, kindLookFailed, 0)
	s.look(ctx, kindLookOther, 1)
	fresh := r.RefreshToken + "-fresh"
	if err := configure(ctx, s.env, provider.Config{Grant: []provider.Grant{{Calendar: r.Calendar, RefreshToken: fresh}}}); err != nil {
		return err
	}
	s.env.Do(ctx, answers.As(kindActivateAgain, activate(staffProcess, staff(0), r, fresh)))
	if err := awaitSynced(ctx, s.env); err != nil {
		return err
	}
	s.look(ctx, kindLookResumed, 0)
	return nil
}

// refreshedOnce is C-I7 with nothing to spare: each access token that ended was
// met, and cost one refresh; a refresh token that was revoked one that was refused.
func refreshedOnce() harness.Check {
	const doc = "each access token that ended cost exactly one refresh, and a refresh token that was revoked exactly one that was refused"
	return bookCheckOfParts("C-I7.once", doc, func(b books, c castChoices) (wrong []harness.Evidence, judged int) {
		for n, r := range c.Resources {
			l := b.provider.Of(r.Calendar)
			ended, revoked := 0, 0
			for _, call := range l.Calls {
				switch call.Call {
				case provider.Expire:
					ended++
				case provider.Revoke:
					revoked++
				}
			}
			if n == 0 && ended == 0 || len(l.Calendars) != 1 {
				continue
			}
			judged++
			if got := l.Calendars[0]; got.Refreshes != 1+ended+revoked || got.Refused != revoked {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("calendar %s: %d refreshes and %d refused, of %d tokens that ended and %d that were revoked", r.Calendar, got.Refreshes, got.Refused, ended, revoked)})
			}
		}
		return wrong, judged
	})
}
