package calendar

import "github.com/overbook/overbook/harness"

// races gives the scenarios in which nothing breaks: many want the same.
func races() []harness.Scenario {
	return []harness.Scenario{
		twoCustomers(), onReplicas(twoCustomers(), "two customers book times that overlap at different replicas"),
	}
}
