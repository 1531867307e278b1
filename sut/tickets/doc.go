// Package tickets is the reference server of the ticket shop: seats of a show
// are held for some minutes and paid through an external provider, which tells
// what became of a payment at least once, perhaps late. A hold owns the seat, a
// charge owns the money; each may succeed after the other gave up.
//
// Who owns what: [Service] starts and stops everything; claim takes a seat;
// changeOrder has whatever happens to an order done under its hold's row lock;
// order and outcome know the rules, whoever brings the news (the provider's
// answer, a callback, reconciliation); history writes every transition down;
// provider is the one that speaks to the payment provider; reads answer from
// the tables; expiry, reconciler, refunder and notices work in the background
// on connections of their own.
//
// What must not happen here: a transaction that is open while the provider is
// waited for; a change of an order without its hold's lock; a seat that becomes
// HELD but by the conditional update; a capture that is neither the winning one
// nor refunded; money in anything but integers.
package tickets
