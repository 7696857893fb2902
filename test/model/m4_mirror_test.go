package model

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// record returns what leg l of f would persist in the product.
func (f *m4found) record(l int, r *rec) persist.Record {
	p := persist.Record{Set: [16]byte{1}, Slot: uint8(l), MinCopies: least(r.el), Ancestor: ancestor(r.g, r.by+1, r.f)}
	p.Torn, p.Arbiter = !p.F.Has(l), f.arb
	for slot := range int(f.n) {
		if of(r.el)&bit(slot) == 0 {
			continue
		}
		p.Members[slot] = persist.Membership{UUID: [16]byte{byte(slot + 1)}, Contents: [16]byte{byte(slot + 1)}, Epoch: 1}
		if r.un&bit(slot) != 0 {
			p.Members[slot].Contents = [16]byte{}
		}
	}
	i := 0
	for g := r.g - 1; g > 0; g-- {
		if by := at(r.hist, g); by != 0 {
			p.Lineage[i] = ancestor(g, by, legsAt(r.hist, g))
			i++
		}
	}
	p.Lineage[i] = persist.Ancestor{Generation: persist.Generation{Count: 1}, F: 1<<f.n - 1} // of the creation of the mirror
	return p
}

func ancestor(g, by, f uint8) persist.Ancestor {
	return persist.Ancestor{Generation: persist.Generation{Life: uint64(by), Count: uint64(g), Nonce: [16]byte{by}}, F: persist.Members(f)}
}

// product returns the situation as the product meets it. Legs of probed are not held yet.
func (f *m4found) product(probed uint8) mirror.Found {
	found := mirror.Found{Degraded: f.force, Prefer: persist.Members(f.read), Read: f.read != 0}
	for l := range int(f.n) {
		if f.reached&bit(l) == 0 || f.r[l].g == 0 {
			continue
		}
		leg := mirror.Leg{Reach: mirror.Held, Record: f.record(l, &f.r[l]), Contents: [16]byte{byte(l + 1)}, Epoch: 1, Clean: f.clean&bit(l) != 0}
		if probed&bit(l) != 0 {
			leg.Reach = mirror.Probed
		}
		if f.gone&bit(l) != 0 {
			leg.Contents = [16]byte{99}
		}
		found.Legs = append(found.Legs, leg)
	}
	if f.arb {
		found.Asked, found.Arbiter = true, f.record(0, &f.aRec)
		found.Arbiter.Torn = false
	}
	return found
}

// compare checks that the product decides as the model does. All legs that were reached are held.
func (f *m4found) compare() error {
	d := f.decide()
	found := f.product(0)
	got := mirror.Decide(found)
	begins := got.Outcome == mirror.Begin || got.Outcome == mirror.Copy
	switch {
	case begins != d.ok:
		return fmt.Errorf("begins %v, the model %v", begins, d.ok)
	case got.SplitBrain != d.split:
		return fmt.Errorf("split brain %v, the model %v", got.SplitBrain, d.split)
	case !begins:
		return nil
	case got.Newest.Ancestor != ancestor(d.m.g, d.m.by+1, d.m.f):
		return fmt.Errorf("the newest is %v, the model has %d{%v}", got.Newest.Ancestor, d.m.g, names(d.m.f))
	case got.Clean != d.cleanEnd:
		return fmt.Errorf("clean %v, the model %v", got.Clean, d.cleanEnd)
	}
	if d.cleanEnd {
		return f.same(&got, &d, d.cand, d.cand, f.gone&of(d.m.el)&^d.cand)
	}
	if uint8(got.Sources) != d.sources {
		return fmt.Errorf("the source is one of %v, in the model one of %v", got.Sources, names(d.sources))
	}
	for l := range int(f.n) { // the model tries every source, the product prefers one
		if d.sources&bit(l) == 0 {
			continue
		}
		found.Prefer = persist.Members(bit(l))
		got = mirror.Decide(found)
		begins := d.cand
		if least(d.m.el) == 1 && !passesBy(d.before, bit(l)) {
			begins = bit(l)
		}
		if err := f.same(&got, &d, begins, bit(l), of(d.m.el)&^bit(l)); err != nil {
			return err
		}
	}
	return nil
}

// same checks what a life begins with.
func (f *m4found) same(got *mirror.Decision, d *m4decision, begins, eq, fill uint8) error {
	want := mirror.Begin
	if count(begins) < least(d.m.el) {
		want, begins = mirror.Copy, 0
	}
	if got.Outcome != want || uint8(got.F) != begins || uint8(got.Equal) != eq || uint8(got.Fill) != fill {
		return fmt.Errorf("%v with F %v, equal %v, fill %v; the model: %v with %v, %v, %v", got.Outcome, got.F, got.Equal, got.Fill, want,
			names(begins), names(eq), names(fill))
	}
	return nil
}

// mustCompare fails t with the situation, if they differ.
func (f m4found) mustCompare(t *testing.T) {
	t.Helper()
	err := f.compare()
	if err == nil {
		return
	}
	for l := range int(f.n) {
		r := f.record(l, &f.r[l])
		t.Logf("%s: reached %v, gone %v, clean %v: %v%v after %v", legName(l), f.reached&bit(l) != 0, f.gone&bit(l) != 0, f.clean&bit(l) != 0,
			r.Generation, names(uint8(r.F)), r.Lineage[:4])
	}
	t.Logf("M %d, force %v, arbiter %v %v, clients have read from %v", f.m, f.force, f.arb, f.aRec, names(f.read))
	t.Logf("product: %s", mirror.Decide(f.product(0)).Why)
	require.NoError(t, err)
}

// TestMirrorDecidesAsTheModel compares Decide of internal/mirror with the model's own decision, in
// every situation that starts meet in these checks.
func TestMirrorDecidesAsTheModel(t *testing.T) {
	list := []struct {
		name string
		cfg  m4cfg
	}{
		{"T5", m4t5}, {"T7", m4t7}, {"F3", m4f3}, {"L2", m4l2}, {"S9", m4s9}, {"T4", m4t4}, {"A1", m4a1}, {"V3", m4v3}, {"V4", m4v4}, {"F2", m4f2}, {"S7", m4s7}, {"E1", m4e1}, {"E2", m4e2}, {"D5", m4d5}, {"D6", m4d6}, {"C1", m4c1}, {"C2", m4c2}, {"C3", m4c3}, {"I2", m4cfg{n: 3, m: 2, nb: 1, lives: 2, drops: 2, crashes: 1, changes: 3}},
	}
	most := 5_000
	if os.Getenv("PMNBD_MODEL") == "all" {
		most = limit
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			met := map[m4found]bool{}
			c.cfg.live = false
			c.cfg.meets = func(f m4found) { met[f] = true }
			explore(m4model(c.cfg), most)
			for f := range met {
				f.mustCompare(t)
			}
			t.Logf("%d situations", len(met))
		})
	}
}

// TestMirrorDecidesAsTheModelAnywhere compares them in small situations of any kind, most of which no
// mirror can meet.
func TestMirrorDecidesAsTheModelAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 13))
	times := 3_000
	if os.Getenv("PMNBD_MODEL") == "all" {
		times = 1_000_000
	}
	begun := 0
	for range times {
		f := anywhere(rng)
		f.mustCompare(t)
		d := f.decide()
		if d.ok {
			begun++
		}
		// With sessions missing, the product opens them first, if that leads anywhere.
		probed := uint8(rng.IntN(1 << f.n))
		got := mirror.Decide(f.product(probed))
		usable := probed & f.reached &^ f.gone
		for l := range int(f.n) { // one that it passed over is opened later, and differently (mirror §5.1)
			r := f.record(l, &f.r[l])
			if g := got.Newest.Generation; !r.Before(g) && r.Generation != g {
				usable &^= bit(l)
			}
		}
		switch got.Outcome {
		case mirror.Open:
			require.True(t, d.ok || d.waits)
			require.NotZero(t, usable)
		case mirror.Begin, mirror.Copy:
			require.True(t, d.ok)
			require.Zero(t, usable)
		default:
			require.False(t, d.ok)
		}
	}
	t.Logf("%d begin", begun)
	require.Greater(t, begun, times/20)
}

// anywhere returns a situation. Each life begins at a generation of another, and goes on from it.
func anywhere(rng *rand.Rand) m4found {
	n := 2 + uint8(rng.IntN(2))
	all := uint8(1<<n - 1)
	f := m4found{n: n, m: 1 + uint8(rng.IntN(int(n))), force: rng.IntN(3) == 0, arb: rng.IntN(6) == 0}
	tree := []rec{{g: 1, f: all, hist: put(0, 1, 1, all), el: elect(all, f.m)}}
	for by := range uint8(ni) {
		r := tree[rng.IntN(len(tree))]
		if by == 0 {
			r = tree[0]
		}
		for range rng.IntN(3) {
			r.g, r.by, r.f = r.g+1, by, 1+uint8(rng.IntN(int(all)))
			r.hist = put(r.hist, r.g, by+1, r.f)
			tree = append(tree, r)
		}
	}
	for l := range int(n) {
		f.r[l] = tree[rng.IntN(len(tree))]
		f.r[l].torn = f.r[l].f&bit(l) == 0
	}
	f.reached = all &^ uint8(rng.IntN(1<<n)&rng.IntN(1<<n))
	f.held = f.reached
	f.gone = uint8(rng.IntN(1<<n)&rng.IntN(1<<n)) & f.reached
	f.clean = uint8(rng.IntN(1<<n)) & f.reached
	if f.arb {
		f.aRec = tree[rng.IntN(len(tree))]
	}
	if rng.IntN(2) == 0 {
		f.read = uint8(rng.IntN(1 << n))
	}
	return f
}
