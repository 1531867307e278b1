package tickets

import "github.com/overbook/overbook/harness"

// races gives the scenarios in which nothing breaks: many want the same.
func races() []harness.Scenario {
	return []harness.Scenario{
		hundredOnOneSeat(), onReplicas(hundredOnOneSeat(), "a hundred members claim one seat at three replicas"),
		bestAvailable(), onReplicas(bestAvailable(), "more members than seats ask three replicas for the best one"),
		twoTabs(), onReplicas(twoTabs(), "the tabs of one login meet at different replicas"),
	}
}
