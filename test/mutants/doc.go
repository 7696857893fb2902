// Package mutants breaks each rule of design §2 to §6 once, on purpose, and those of
// docs/rules.md about what people type and write, and sees the test turn red that holds
// it: a rule whose test cannot fail is not tested.
//
// A mutant is an edit of one declaration, or of several. It names the declaration by the
// package's directory and as go doc writes it, and what it breaks there token by token:
//
//	in:  "backend/remote.core.cover",
//	old: "ring.Cover(s.to)", new: "ring.Cover(x.head(i))",
//
// So no mutant notices that a function moves to another file of its package, or that
// someone lays it out anew or comments it. A method's type is written without the star. A
// name can be that of a function, a type, a constant, a variable or a function in
// assembly; the head of a function belongs to it, its doc comment does not. White space,
// comments and semicolons do not count: in old and new, "a(); b()" stands for two lines.
// Whole tokens are compared, so that half a string finds nothing. It is an error if old
// occurs in the declaration never or twice: add what stands before it or behind it. An
// edit without old adds a declaration behind the one that it names.
//
// The go command builds a mutant with an overlay: the tree stays as it is, and the
// product has no hooks. Every run of the tests tries all edits, so that none goes stale,
// and builds a few of the mutants; PMNBD_MUTANTS=all (make soak) builds them all. The
// package imports nothing of ours.
package mutants
