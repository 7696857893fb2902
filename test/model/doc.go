// Package model checks the rules of design §3 to §6 on paper, before they are code. It visits
// every state that three small models can reach and checks in each whether a promise is broken.
// M1 models the data path, M2 sessions, M3 NBD connections. The table in checks_test.go also
// drops each rule once, and a promise must then break.
//
// CI explores the small models, PMNBD_MODEL=all (make soak) all. The package imports no other
// package of this module. README.md says what the models leave out.
package model
