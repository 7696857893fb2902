// Package mutants breaks each rule of design §2 to §6, and those of docs/rules.md about what
// people type and write, once and on purpose. The test that holds the rule must fail: a rule
// whose test cannot fail is not tested.
//
// A mutant is an edit of one declaration, or of several. It names the declaration by the
// package's directory and by the name that go doc uses, and quotes what it breaks token by
// token:
//
//	in:  "backend/remote.core.cover",
//	old: "ring.Cover(s.to)", new: "ring.Cover(x.head(i))",
//
// So a mutant does not notice when a function moves to another file of its package, or gets
// another layout or other comments. A method's type has no star. A name can be that of a
// function, a type, a constant, a variable or a function in assembly. A declaration includes
// the head of a function, but not its doc comment. White space, comments and semicolons do not
// count: in old and new, "a(); b()" stands for two lines. Only whole tokens match, so half a
// string finds nothing. It is an error if old occurs in the declaration never or twice: add the
// tokens before or after it. An edit without old adds a declaration after the one that it
// names.
//
// The go command builds a mutant with an overlay, so the tree stays as it is and the product
// needs no hooks. Every run of the tests tries all edits, so that none goes stale, and builds a
// few of the mutants. PMNBD_MUTANTS=all (make soak) builds them all. The package imports no
// other package of this module.
package mutants
