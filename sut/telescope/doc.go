// Package telescope is the reference server of the telescope design: members
// reserve thirty-minute slots, staff close and reopen them, and there is one
// authoritative reservation a slot.
//
// Who owns what: [Service] starts and stops everything; operate takes the key
// of an operation, has it decided and keeps its answer; the files named after
// the operations (book, cancel, closure, imports, flagged) decide them inside
// that transaction; record writes history and events; reads answer from the
// authoritative tables; mailer, projection and purger work in the background
// on connections of their own.
//
// What must not happen here: a transaction that is open while anything outside
// Postgres is waited for, sending an answer included; a change of a slot or of
// who has it without its row's lock; a lock taken out of order (key, quota
// row, slot rows by ascending id); an answer that differs from what was stored.
package telescope
