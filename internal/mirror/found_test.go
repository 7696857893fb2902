package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// What a start believes of a member outside F, here C of {AB}, which is not there.
func TestNamesOutside(t *testing.T) {
	for name, c := range map[string]struct {
		a, b persist.Membership // what A and B name of C: contents and epoch
		d    persist.Membership // and D, which is half copied
		want persist.Membership
	}{
		"all of F name a later session": {
			a: persist.Membership{Contents: contents(2), Epoch: 7}, b: persist.Membership{Contents: contents(2), Epoch: 7},
			d: persist.Membership{Contents: contents(2), Epoch: 5}, want: persist.Membership{Contents: contents(2), Epoch: 7},
		},
		"one of F does": {
			a: persist.Membership{Contents: contents(2), Epoch: 5}, b: persist.Membership{Contents: contents(2), Epoch: 7},
			d: persist.Membership{Contents: contents(2), Epoch: 5}, want: persist.Membership{Contents: contents(2), Epoch: 7},
		},
		"all of F know that it lost its contents": {
			a: persist.Membership{Epoch: 5}, b: persist.Membership{Epoch: 5},
			d: persist.Membership{Contents: contents(2), Epoch: 5}, want: persist.Membership{Epoch: 5},
		},
		"one of F knows": {
			a: persist.Membership{Contents: contents(2), Epoch: 5}, b: persist.Membership{Contents: contents(9), Epoch: 6},
			d: persist.Membership{Contents: contents(2), Epoch: 5}, want: persist.Membership{Epoch: 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			legs := mirrorOf{n: 4, m: 1}.legs("A held 1.1{ABCD} 1.2{AB}", "B held 1.1{ABCD} 1.2{AB}", "C away", "D held 1.1{ABCD} 1.2{AB}")
			for i, says := range map[int]persist.Membership{0: c.a, 1: c.b, 3: c.d} {
				says.UUID = uuid(2)
				legs[i].Record.Members[2] = says
			}
			c.want.UUID = uuid(2)
			for _, arbiter := range []bool{false, true} {
				found := Found{Legs: legs, Asked: arbiter}
				found.Arbiter = legs[3].Record
				found.Arbiter.Torn = false
				d := Decide(found)
				require.Equal(t, Begin, d.Outcome, d.Why)
				require.Equal(t, c.want, d.Newest.Members[2])
			}
		})
	}
}
