// Package model checks the rules of design §3 to §6 on paper, before they are code: it visits
// every state that three small models can reach, and looks whether a promise is broken in one.
// Models M1, M2 and M3 are of the data path, of sessions and of NBD connections. Each rule is
// also dropped once, and must then break a promise: the table in checks_test.go pins that.
//
// CI visits the small ones, PMNBD_MODEL=all (make soak) all. It imports nothing of ours.
// README.md says what is modelled and what is not.
package model
