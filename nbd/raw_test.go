package nbd

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// greet reads the greeting and answers it.
func greet(t testing.TB, nc net.Conn, flags wire.ClientFlags) {
	t.Helper()
	b := make([]byte, wire.GreetingSize)
	_, err := io.ReadFull(nc, b)
	require.NoError(t, err)
	hf, err := wire.DecodeGreeting(b)
	require.NoError(t, err)
	require.Equal(t, wire.FlagFixedNewstyle|wire.FlagNoZeroes, hf)
	_, err = nc.Write(wire.AppendClientFlags(nil, flags))
	require.NoError(t, err)
}

// an optionReply is a reply to an option, whole.
type optionReply struct {
	typ  wire.ReplyType
	data []byte
}

// option sends an option and reads its replies up to the final one.
func option(t testing.TB, nc net.Conn, o wire.Option, data []byte) []optionReply {
	t.Helper()
	_, err := nc.Write(wire.AppendOption(nil, o, data))
	require.NoError(t, err)
	var replies []optionReply
	for {
		b := make([]byte, wire.OptionReplySize)
		_, err := io.ReadFull(nc, b)
		require.NoError(t, err)
		h, err := wire.DecodeOptionReply(b)
		require.NoError(t, err)
		require.Equal(t, o, h.Option)
		require.LessOrEqual(t, h.Len, uint32(64<<10))
		r := optionReply{h.Type, make([]byte, h.Len)}
		_, err = io.ReadFull(nc, r.data)
		require.NoError(t, err)
		replies = append(replies, r)
		if r.typ == wire.RepAck || r.typ.IsError() {
			return replies
		}
	}
}

// enterRaw connects and enters transmission on a plain connection.
func (f *fixture) enterRaw() net.Conn {
	f.t.Helper()
	nc := f.raw()
	greet(f.t, nc, wire.ClientFixedNewstyle)
	replies := option(f.t, nc, wire.OptGo, wire.AppendInfoRequest(nil, "disk"))
	require.Equal(f.t, wire.RepAck, replies[len(replies)-1].typ)
	return nc
}

// recvReply reads one reply without data.
func recvReply(t testing.TB, nc net.Conn) wire.SimpleReply {
	t.Helper()
	b := make([]byte, wire.SimpleReplySize)
	_, err := io.ReadFull(nc, b)
	require.NoError(t, err)
	r, err := wire.DecodeSimpleReply(b)
	require.NoError(t, err)
	return r
}

// closed expects that the server hangs up without another byte.
func closed(t testing.TB, nc net.Conn) {
	t.Helper()
	n, err := nc.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
}
