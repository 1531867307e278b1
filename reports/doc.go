// Package reports turns results into something to read: terminal text, JSON,
// JUnit, Markdown, GitHub annotations and one HTML file that opens offline.
//
// Every function here is pure: the same suite gives the same bytes, and
// nothing is read but the arguments and the embedded templates, style sheet
// and schemas. The package owns wording and layout, not judgement, with one
// exception on the safe side: a result is never shown milder than the worst
// of its checks, and a result without checks is never shown as PASS.
//
// Whatever comes from a server under test (answers, rows, errors) is hostile
// text: control characters never reach a terminal, markup never reaches a
// browser, and workflow commands never reach a CI log.
//
// What must not happen here: reading or writing files, clocks, environment
// variables, terminal detection, and any import besides the words of package
// harness and the standard library.
package reports
