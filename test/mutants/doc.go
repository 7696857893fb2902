// Package mutants breaks each rule of design §2 to §6 once, on purpose, and those of
// docs/rules.md about what people type and write, and sees the test turn red that holds
// it: a rule whose test cannot fail is not tested.
//
// A mutant is an edit of one place, or of several. It is built with an overlay of the go
// command, so that the tree stays as it is, and the product has no hooks for it. The
// edits are tried in every run, so that none goes stale; of the mutants CI builds a few,
// and PMNBD_MUTANTS=all (make soak) all of them. It imports nothing of ours.
package mutants
