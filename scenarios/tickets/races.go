package tickets

import "github.com/overbook/overbook/harness"

// races gives the scenarios in which nothing breaks: many want the same.
func races() []harness.Scenario {
	return []harness.Scenario{
		hundredOnOneSeat(), onReplicas(hundredOnOneSeat(), "a hundred members claim one seat at three replicas"),
		bestAvailable(), onReplicas(bestAvailable(), "more members than seats ask three replicas for the best one"),
		dropAndGrab(), released(dropAndGrab(), "a dropped seat goes back on sale at once, and the late capture does not take it back"),
		onReplicas(dropAndGrab(), "holds are dropped and seats grabbed at three replicas"),
		expiry(), onReplicas(expiry(), "three replicas look at what has run out"),
		seatStorm(), onReplicas(seatStorm(), "the storm over three replicas"),
		twoTabs(), onReplicas(twoTabs(), "the tabs of one login meet at different replicas"),
		badInput(),
	}
}
