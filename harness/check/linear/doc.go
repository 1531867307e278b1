// Package linear judges whether what clients saw of one thing (a slot, a
// seat) can be explained by some order of their calls in which each call takes
// effect at one instant between its being sent and its being answered:
// linearizability, key by key.
//
// It owns the decision procedure and the words for a violation. Why the
// procedure is right, and why it is quick where a plain search is not, is in
// docs/decisions/0007-linearizability.md. What a call means is the model's
// business; where calls come from is the scenario's. A history that could not
// be decided is Unknown, never Pass; nothing here may read a run's clock into
// a verdict, so that a stored record is judged the same again.
//
// Start reading at [Check], then at the search in search.go.
package linear
