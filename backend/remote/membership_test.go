package remote

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A member that is removed becomes an ordinary region, with its contents lost. The device goes on, and
// its next life does without the member (mirror §4.9).
func TestRemoveMember(t *testing.T) {
	for _, slot := range []int{0, 2} {
		t.Run(persist.Member(slot).String(), func(t *testing.T) {
			s := fakesOf(t, 3, 2, rdmafake.Config{})
			d := s.dialImpatient(t, 2)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			contents := s[slot].region.Superblock().Contents
			told, err := d.RemoveMember(context.Background(), slot)
			require.NoError(t, err)
			require.NoError(t, told)
			sb := s[slot].region.Superblock()
			require.Zero(t, sb.Record)
			require.Zero(t, sb.Life)
			require.True(t, sb.Clean)
			require.NotEqual(t, contents, sb.Contents)
			rest := persist.Members(7) &^ persist.Member(slot)
			for i := range s {
				if i != slot {
					r := s.record(i)
					require.Equal(t, rest, r.F)
					require.Equal(t, rest, r.Present())
				}
			}
			require.Len(t, d.Snapshot().Mirror.Legs, 2)
			read := c.Read(0, block, 0)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
			require.NoError(t, c.Do(read))
			require.Equal(t, backendtest.Pattern(block, 2), read.Got)
			require.True(t, string(backendtest.Pattern(block, 1)) == string(s[slot].region.Data()[:block]), "it gets no more")
			_, err = d.RemoveMember(context.Background(), slot)
			require.ErrorIs(t, err, mirror.ErrNoMember)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())

			d = s.dial(t, 1) // which names it still
			require.Equal(t, rest, d.equal())
			require.NoError(t, d.Close())
			require.Zero(t, s[slot].region.Superblock().Record)
		})
	}
}

// A member whose target is away is removed all the same. When it comes back, nobody writes to it, and a
// start does not take it for a member.
func TestRemoveAMemberThatIsAway(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	told, err := d.RemoveMember(context.Background(), 2)
	require.NoError(t, err)
	require.Error(t, told)
	require.NoError(t, d.Close())
	s.network(2).Up()
	was := s.record(2)
	require.Equal(t, persist.Members(7), was.F)
	d = s.dial(t, 1)
	require.Equal(t, persist.Members(3), d.equal())
	require.NoError(t, d.Close())
	require.Equal(t, was, s.record(2))
}

// What a mirror cannot do without stays.
func TestRemoveIsRefused(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	_, err := d.RemoveMember(context.Background(), 1)
	require.ErrorIs(t, err, mirror.ErrBelowMin)
	require.ErrorContains(t, err, "set --min-copies")
	require.NoError(t, d.SetMinCopies(context.Background(), 1))
	require.EqualValues(t, 1, s.record(0).MinCopies)
	require.EqualValues(t, 1, s.record(1).MinCopies)
	require.ErrorIs(t, d.SetMinCopies(context.Background(), 3), mirror.ErrBelowMin)
	told, err := d.RemoveMember(context.Background(), 1)
	require.NoError(t, err)
	require.NoError(t, told)
	_, err = d.RemoveMember(context.Background(), 2)
	require.ErrorIs(t, err, mirror.ErrTwo)
	require.NoError(t, d.Close())
	s.network(2).Up()
}

// A region that is added is copied in full, and is a copy from then on.
func TestAddMember(t *testing.T) {
	s := fakesOf(t, 2, 1, rdmafake.Config{})
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(3<<20, backendtest.Pattern(block, 1), 0), c.Flush()))
	s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{}))
	cfg := s[2:].config(t)
	p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
	require.NoError(t, err)
	slot, err := d.AddMember(context.Background(), cfg.Members[0], p)
	require.NoError(t, err)
	require.Equal(t, 2, slot)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	require.NoError(t, d.Sync(context.Background()))
	require.True(t, string(s[0].region.Data()) == string(s[2].region.Data()))
	require.Equal(t, persist.Members(7), s.record(2).F)
	_, err = d.AddMember(context.Background(), cfg.Members[0], p)
	require.ErrorContains(t, err, "a member already")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	d = s.dial(t, 1)
	require.Equal(t, persist.Members(7), d.equal())
	require.NoError(t, d.Close())
}

// A member that is added is reached by encrypted connections alone if its target says so, as one of the start.
func TestAddedMemberIsEncrypted(t *testing.T) {
	s := fakesOf(t, 2, 1, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	cfg := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}.config(t)
	p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
	require.NoError(t, err)
	demanding := cfg.Members[0]
	demanding.Encrypted = true
	_, err = d.AddMember(context.Background(), demanding, p)
	require.ErrorIs(t, err, errClear)
	require.Equal(t, "AB", d.Snapshot().Mirror.Members)
	_, err = d.AddMember(context.Background(), cfg.Members[0], p) // the place forgets what the other Target demanded
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// A start opens the region that is a member now, and not one that was removed and keeps the record of a
// member in the same slot.
func TestASlotHasAnotherMember(t *testing.T) {
	s := fakesOf(t, 3, 1, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(0).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	told, err := d.RemoveMember(context.Background(), 0)
	require.NoError(t, err)
	require.Error(t, told)
	s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{}))
	cfg := s[3:].config(t)
	p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
	require.NoError(t, err)
	slot, err := d.AddMember(context.Background(), cfg.Members[0], p)
	require.NoError(t, err)
	require.Equal(t, 0, slot)
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	require.NoError(t, d.Close())
	s.network(0).Up()
	removed := s[0].region.Superblock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d, err = Dial(ctx, s.config(t)) // which names both
	require.NoError(t, err)
	require.Equal(t, persist.Members(7), d.equal())
	require.NoError(t, d.Close())
	require.Equal(t, removed, s[0].region.Superblock(), "nobody opens it")
	require.True(t, s[3].region.Superblock().Clean)
}

// A change whose asker has left before it began does not begin.
func TestChangeThatNobodyAwaits(t *testing.T) {
	s := fakes(t, 3, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	left, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := d.RemoveMember(left, 2)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, errNotActive)
	require.NoError(t, d.SetMinCopies(context.Background(), 3), "no other change is under way, and no member has left")
	require.NoError(t, d.Close())
	r := s.record(0)
	require.Equal(t, persist.Members(7), r.Present())
}
