// Package calendar is the reference server of the calendar design: customers
// book appointments with a resource, whose calendar also lives at an external
// provider that other people write to and that may have no atomic hold.
//
// Who owns what: [Service] starts and stops everything; operate takes the key
// of an operation, has it decided and keeps its answer; a change is the one
// transaction in which a resource or its appointments change, with history and
// events; the files named after the operations (book, move, series, cancel,
// resolution) decide them inside it; civil turns wall-clock times into
// instants; reads answer from the tables; provider is the one that speaks to
// the calendar provider; the synchroniser brings it to what the rows say, the
// reconciler looks at what others wrote there, on connections of their own.
//
// What must not happen here: two active appointments of a resource that
// overlap, whoever wrote them; a judgement on that which is not the
// constraint's; a transaction that is open while the provider is waited for; a
// lock taken out of order (key, resources ascending, appointments ascending,
// syncs); an event at the provider under an id that its appointment does not
// have; a conflict with somebody else's event that is no row.
package calendar
