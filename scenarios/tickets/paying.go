package tickets

import "github.com/overbook/overbook/harness"

// paying gives the scenarios about money: what the provider decides, when the
// server hears of it, and what the hold has become by then.
func paying() []harness.Scenario {
	return []harness.Scenario{
		lateCapture(),
		variant(lateCapture(), "declined", "a hold runs out while its payment is in flight, and the payment is declined after that", map[string]string{"then": thenDeclined}),
		released(lateCapture(), "under the policy release a late capture goes back"),
		variant(lateCapture(), "release-sold", "under the policy release a late capture comes when somebody else has bought the seat",
			map[string]string{"policy": policyRelease, "then": thenSold}),
		hardTimeoutCapture(),
		released(hardTimeoutCapture(), "under the policy release a payment is captured after it was given up"),
		variant(hardTimeoutCapture(), "lost", "a payment is captured after it was given up, and nobody tells it", map[string]string{"told": toldByAsking}),
		variant(hardTimeoutCapture(), "ten", "a payment is captured after it was given up, which is told ten times at once", map[string]string{"told": toldTenTimes}),
		duplicateCallbacks(), onReplicas(duplicateCallbacks(), "three replicas get every callback ten times at the same moment"),
		reorderedCallbacks(), onReplicas(reorderedCallbacks(), "three replicas are told of payments in another order than they happened"),
		lostCallback(),
		twoCharges(), onReplicas(twoCharges(), "two payments are captured for one hold, and three replicas are told"),
		onePaymentTwoOrders(),
		declineThenRetry(),
		refundFails(),
		variant(refundFails(), "answer-lost", "refunds are taken, and their answers are lost", map[string]string{"fails": refundAnswerLost}),
		variant(refundFails(), "parked", "refunds fail so often that they wait for staff", map[string]string{"fails": refusedTooOften}),
		amountDiffers(),
		forgedCallback(),
		expiryVersusCapture(),
		released(expiryVersusCapture(), "under the policy release captures land in the very milliseconds in which the holds run out"),
		variant(expiryVersusCapture(), "race", "ticks and captures meet at three replicas, under the policy release",
			map[string]string{"replicas": "3", "policy": policyRelease, "spread": "0", "rounds": "3"}),
		variant(expiryVersusCapture(), "race-quarantine", "ticks and captures meet at three replicas, under the policy quarantine",
			map[string]string{"replicas": "3", "spread": "0", "rounds": "3"}),
		variant(exactlyAtExpiry(), "exact", "captures land one millisecond before the end of their hold, at it, and one after", nil),
		variant(exactlyAtExpiry(), "exact-release", "under the policy release captures land one millisecond before the end of their hold, at it, and one after",
			map[string]string{"policy": policyRelease}),
		allGoBack(),
		releaseAgain(),
		oddPricesScenario(),
		policyCost(),
	}
}
