// Package explore owns the systematic search of a scenario's state: crash
// points today, interleavings later. It numbers every moment that the wires
// saw of one request, and then runs the request once for each of them with a
// fault there.
//
// It sees the world through [harness.Env] alone. What must not happen here:
// luck (no random choice, no pause), judgement of stored rows (checks do
// that), or a point that is counted as tried although nothing struck.
package explore
