package calendar

import "github.com/overbook/overbook/harness"

// races gives the scenarios in which nothing breaks: many want the same, or somebody is late.
func races() []harness.Scenario {
	return []harness.Scenario{
		twoCustomers(), onReplicas(twoCustomers(), "two customers book times that overlap at different replicas"),
		partialOverlaps(), halfOnReplicas(partialOverlaps(), "fifty customers book random times of one day at three replicas"),
		backToBack(), halfOnReplicas(backToBack(), "appointments that follow each other are booked at three replicas"),
		cancelledDoesNotBlock(), halfOnReplicas(cancelledDoesNotBlock(), "a time is given up and taken again at three replicas"),
		rescheduleSwap(), halfOnReplicas(rescheduleSwap(), "appointments swap their times while others wait at three replicas"),
		crossedReschedules(), halfOnReplicas(crossedReschedules(), "customers move appointments with two consultants together, in opposite orders, at three replicas"),
		moveVersusBook(), halfOnReplicas(moveVersusBook(), "an appointment is moved at one replica while others book at two more"),
		weeklyCourses(), onReplicas(weeklyCourses(), "weekly courses are booked and moved at three replicas"),
		bookingStorm(), onReplicas(bookingStorm(), "the storm over three replicas"),
		sameKeyRetries(), onReplicas(sameKeyRetries(), "copies of one request meet at three replicas"),
		dst(), badInput(), lateWorker(),
		activation(), halfOnReplicas(activation(), "resources are activated at once at three replicas"),
	}
}
