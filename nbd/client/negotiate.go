package client

import (
	"fmt"
	"io"

	"pmnbd/internal/plain"
	"pmnbd/nbd/wire"
)

// maxReply bounds the data of an option reply, in bytes.
const maxReply = 16 << 10

func (c *Client) negotiate(rw io.ReadWriter, cfg Config) error {
	var b [wire.GreetingSize]byte
	if _, err := io.ReadFull(rw, b[:]); err != nil {
		return err
	}
	flags, err := wire.DecodeGreeting(b[:])
	if err != nil {
		return err
	}
	if flags&wire.FlagFixedNewstyle == 0 {
		return fmt.Errorf("the server does not speak fixed newstyle: %w", ErrUnexpected)
	}
	if _, err := rw.Write(wire.AppendClientFlags(nil, wire.ClientFixedNewstyle)); err != nil {
		return err
	}
	switch cfg.Replies {
	case Structured:
		err = c.option(rw, wire.OptStructuredReply, nil)
	case Extended:
		err = c.option(rw, wire.OptExtendedHeaders, nil)
	}
	if err == nil && cfg.Allocation {
		err = c.option(rw, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, cfg.Export, wire.ContextAllocation))
	}
	if err == nil {
		err = c.option(rw, wire.OptGo, wire.AppendInfoRequest(nil, cfg.Export, wire.InfoBlockSize, wire.InfoDescription))
	}
	return err
}

// option sends an option and receives the replies to it.
func (c *Client) option(rw io.ReadWriter, o wire.Option, data []byte) error {
	if _, err := rw.Write(wire.AppendOption(nil, o, data)); err != nil {
		return err
	}
	for {
		var b [wire.OptionReplySize]byte
		if _, err := io.ReadFull(rw, b[:]); err != nil {
			return err
		}
		h, err := wire.DecodeOptionReply(b[:])
		if err != nil {
			return err
		}
		if h.Option != o || h.Len > maxReply {
			return fmt.Errorf("reply to %v of %d bytes: %w", h.Option, h.Len, ErrUnexpected)
		}
		data := make([]byte, h.Len)
		if _, err := io.ReadFull(rw, data); err != nil {
			return err
		}
		switch {
		case h.Type == wire.RepAck:
			return nil
		case h.Type.IsError():
			return fmt.Errorf("%v: %w: %v: %s", o, ErrRefused, h.Type, plain.Text(string(data)))
		case h.Type == wire.RepInfo:
			err = c.info(data)
		case h.Type == wire.RepMetaContext:
			c.context, _, err = wire.DecodeMetaContext(data)
		}
		if err != nil {
			return err
		}
	}
}

// info decodes the data of an INFO reply.
func (c *Client) info(data []byte) error {
	t, body, err := wire.DecodeInfo(data)
	if err != nil {
		return err
	}
	switch t {
	case wire.InfoExport:
		c.export, err = wire.DecodeExport(body)
	case wire.InfoBlockSize:
		c.sizes, err = wire.DecodeBlockSizes(body)
	case wire.InfoDescription:
		c.description = plain.Text(string(body))
	}
	return err
}
