package calendar

import (
	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// faults gives the scenarios in which the provider, or other people at it, do
// what nobody wishes.
func faults() []harness.Scenario {
	keep := map[string]string{paramPolicy.Name: policyKeep}
	atomic := map[string]string{paramContract.Name: contractAtomic}
	at := func(point string) map[string]string { return map[string]string{paramPoint.Name: point} }
	free := plus(at(pointFree), map[string]string{paramReplicas.Name: "3", paramRounds.Name: "6"})
	return []harness.Scenario{
		busyAfterCheck(), onReplicas(busyAfterCheck(), "somebody else takes the time between check and create, at three replicas"),
		variant(busyAfterCheck(), "keep-and-flag", "somebody else takes the time between our check and our create, and both stay until staff decide", keep),
		variant(busyAfterCheck(), "atomic-hold", "somebody else takes the time between our check and our create, which the provider refuses", atomic),
		variant(busyAfterCheck(), "atomic-hold-keep", "the provider refuses a create, which the policy wants all the same", plus(atomic, keep)),
		variant(busyAfterCheck(), "after-create", "somebody else writes over our event right after an atomic create", plus(atomic, map[string]string{paramMoment.Name: provider.AfterCreate})),
		variant(busyAfterCheck(), "move", "somebody else takes the time between our check and our update", map[string]string{paramBy.Name: byMove}),
		variant(busyAfterCheck(), "move-atomic-hold", "somebody else takes the time right before our update, which the provider refuses", plus(atomic, map[string]string{paramBy.Name: byMove, paramMoment.Name: provider.BeforeCreate})),
		variant(busyAfterCheck(), "move-keep", "somebody else writes over our event right after its update, and both stay until staff decide", plus(keep, map[string]string{paramBy.Name: byMove, paramMoment.Name: provider.AfterCreate})),
		busyBeforeCheck(), variant(busyBeforeCheck(), "keep-and-flag", "the time is somebody else's already, and both stay until staff decide", keep),
		variant(busyBeforeCheck(), "atomic-hold", "the time is somebody else's already, and an atomic create is not even tried", atomic),
		variant(busyBeforeCheck(), "atomic-hold-keep", "the time is somebody else's already, which the policy accepts under an atomic hold, too", plus(atomic, keep)),
		busyAfterCreate(), variant(busyAfterCreate(), "keep-and-flag", "others write over created appointments, which stay until staff decide", keep),
		variant(busyAfterCreate(), "3-replicas", "others write over created appointments, which stay until staff decide, at three replicas", plus(keep, map[string]string{paramReplicas.Name: "3"})),
		createTimeout(), onReplicas(createTimeout(), "the answers to creates are lost at three replicas"),
		variant(createTimeout(), "silence", "the provider makes the event, and says nothing", map[string]string{paramLost.Name: lostSilence}),
		variant(createTimeout(), "second-attempt", "the first call never reaches the provider, the second's answer is lost", map[string]string{paramAttempt.Name: "2"}),
		variant(createTimeout(), "update", "the provider moves the event, and its answer never comes", map[string]string{paramCall.Name: lostUpdate}),
		variant(createTimeout(), "delete", "the provider deletes the event, and its answer never comes", map[string]string{paramCall.Name: lostDelete, paramAttempt.Name: "2"}),
		staleFreebusy(), variant(staleFreebusy(), "keep-and-flag", "free/busy lags behind, and both events stay until staff decide", keep),
		variant(staleFreebusy(), "atomic-hold", "free/busy lags behind, and the provider refuses what it must", atomic),
		tokenExpiry(), onReplicas(tokenExpiry(), "appointments at three replicas meet an expired token; later there is no authorisation at all"),
		cancelVersusCreate(), variant(cancelVersusCreate(), "before-sent", "members cancel before the create of their events is sent", at(pointChecked)),
		variant(cancelVersusCreate(), "after-answer", "members cancel when their events are made and the server has not heard of it", at(pointAnswered)),
		variant(cancelVersusCreate(), "free-3-replicas", "members cancel while three replicas make their events", free),
		moveVersusCreate(), variant(moveVersusCreate(), "before-sent", "members move before the create of their events is sent", at(pointChecked)),
		variant(moveVersusCreate(), "after-answer", "members move when their events are made and the server has not heard of it", at(pointAnswered)),
		variant(moveVersusCreate(), "free-3-replicas", "members move while three replicas make their events", free),
		ownEvents(), variant(ownEvents(), "atomic-hold", "a time is given up and taken again before a provider with an atomic hold has heard of the first", atomic),
		onReplicas(ownEvents(), "a time is given up and taken again at three replicas, before the provider has heard of the first"),
		conflictPause(), onReplicas(conflictPause(), "a resource with too many conflicts creates nothing more, on any of three replicas"),
		providerDown(), onReplicas(providerDown(), "the provider is down for three replicas, and comes back"),
		variant(providerDown(), "unreachable", "the provider can't be reached for a while", map[string]string{paramDown.Name: downUnreachable}),
		variant(providerDown(), "parked", "the provider is down until everything is parked, and staff have it tried again", map[string]string{paramDown.Name: downParked}),
		rateLimit(), onReplicas(rateLimit(), "the provider says 429 to one of three replicas, and none of them calls before the time is over"),
		foreignEvents(), onReplicas(foreignEvents(), "three replicas tell events of others from events of ours that nobody knows"),
	}
}
