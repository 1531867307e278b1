package calendar

import "github.com/overbook/overbook/harness"

// faults gives the scenarios in which the provider, or other people at it, do
// what nobody wishes.
func faults() []harness.Scenario {
	keep := map[string]string{paramPolicy.Name: policyKeep}
	atomic := map[string]string{paramContract.Name: contractAtomic}
	return []harness.Scenario{
		busyAfterCheck(), onReplicas(busyAfterCheck(), "somebody else takes the time between check and create, at three replicas"),
		variant(busyAfterCheck(), "keep-and-flag", "somebody else takes the time between our check and our create, and both stay until staff decide", keep),
		variant(busyAfterCheck(), "atomic-hold", "somebody else takes the time between our check and our create, which the provider refuses", atomic),
		variant(busyAfterCheck(), "atomic-hold-keep", "the provider refuses a create, which the policy wants all the same", plus(atomic, keep)),
		variant(busyAfterCheck(), "after-create", "somebody else writes over our event right after an atomic create", plus(atomic, map[string]string{paramMoment.Name: "after-create"})),
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
	}
}
