package client

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// TestReadIsComplete: a READ succeeds only if all of its data has come, however the reply ends.
func TestReadIsComplete(t *testing.T) {
	const size = 100
	chunk := func(typ wire.ChunkType, flags wire.ReplyFlags, payload []byte) []byte {
		h := wire.Chunk{Type: typ, Flags: flags, Len: uint64(len(payload))}
		return append(put(wire.StructuredReplySize, func(b []byte) { wire.PutStructuredReply(b, h) }), payload...)
	}
	data := func(from, to int, flags wire.ReplyFlags) []byte {
		p := put(wire.OffsetSize+to-from, func(b []byte) { wire.PutOffset(b, uint64(from)) })
		return chunk(wire.ChunkOffsetData, flags, p)
	}
	failed := func(flags wire.ReplyFlags) []byte {
		return chunk(wire.ChunkError, flags, put(wire.ErrorSize, func(b []byte) { wire.PutError(b, 5, 0) }))
	}
	none := chunk(wire.ChunkNone, wire.ReplyFlagDone, nil)
	for name, tt := range map[string]struct {
		reply []byte
		errno uint32
		err   error
	}{
		"one chunk":                       {reply: data(0, size, wire.ReplyFlagDone)},
		"two chunks":                      {reply: slices.Concat(data(60, size, 0), data(0, 60, wire.ReplyFlagDone))},
		"an end of its own":               {reply: slices.Concat(data(0, size, 0), none)},
		"too little":                      {reply: data(0, 60, wire.ReplyFlagDone), err: ErrUnexpected},
		"too little, an end of its own":   {reply: slices.Concat(data(0, 60, 0), none), err: ErrUnexpected},
		"nothing":                         {reply: none, err: ErrUnexpected},
		"a simple reply":                  {reply: wire.AppendSimpleReply(nil, wire.SimpleReply{}), err: ErrUnexpected},
		"a simple error":                  {reply: wire.AppendSimpleReply(nil, wire.SimpleReply{Errno: 5}), errno: 5},
		"an error":                        {reply: failed(wire.ReplyFlagDone), errno: 5},
		"an error after data":             {reply: slices.Concat(data(0, 60, 0), failed(wire.ReplyFlagDone)), errno: 5},
		"an error before data":            {reply: slices.Concat(failed(0), data(60, size, wire.ReplyFlagDone)), errno: 5},
		"an error, and an end of its own": {reply: slices.Concat(data(0, 60, 0), failed(0), none), errno: 5},
	} {
		t.Run(name, func(t *testing.T) {
			server, nc := socketpair(t)
			defer func() { require.NoError(t, server.Close()) }()
			_, err := server.Write(slices.Concat(wire.AppendGreeting(nil, wire.FlagFixedNewstyle),
				wire.AppendOptionReply(nil, wire.OptStructuredReply, wire.RepAck, ""),
				wire.AppendInfoExport(nil, wire.OptGo, wire.Export{Size: 1 << 20}), wire.AppendOptionReply(nil, wire.OptGo, wire.RepAck, ""), tt.reply))
			require.NoError(t, err)
			c, err := New(nc, Config{Export: "disk", Depth: 1, Replies: Structured})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			c.Read(0, 0, make([]byte, size))
			require.NoError(t, c.Send())
			_, errno, err := c.Recv()
			require.ErrorIs(t, err, tt.err)
			if err == nil {
				require.Equal(t, tt.errno, errno)
			}
		})
	}
}
