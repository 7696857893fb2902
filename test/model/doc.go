// Package model checks the rules of design §3 to §6, and those of the mirror, on paper, before they
// are code. It visits every state that four small models can reach and checks in each whether a
// promise is broken. M1 models the data path, M2 sessions, M3 NBD connections, M4 the mirror. The
// tables in checks_test.go and m4_checks_test.go also drop each rule once, and a promise must then
// break.
//
// CI explores the small models, PMNBD_MODEL=all (make soak) all. The models import no other package
// of this module, but m4_mirror_test.go compares M4 with internal/mirror. README.md says what the
// models leave out.
package model
