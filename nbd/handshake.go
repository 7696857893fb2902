package nbd

import (
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"

	"pmnbd/nbd/wire"
)

// maxOption bounds the data of an option, in bytes: an export name of the greatest
// length and every information type there will ever be fit many times.
const maxOption = 64 << 10

// errAborted: the client ended the negotiation, as it may.
var errAborted = errors.New("negotiation aborted by the client")

// negotiate speaks fixed newstyle on rw until the client has chosen an export. It
// reads not a byte beyond that.
func (s *Server) negotiate(rw io.ReadWriter, log *zap.Logger) (*export, error) {
	if _, err := rw.Write(wire.AppendGreeting(nil, wire.FlagFixedNewstyle|wire.FlagNoZeroes)); err != nil {
		return nil, fmt.Errorf("greet: %w", err)
	}
	buf := make([]byte, wire.OptionHeaderSize)
	if _, err := io.ReadFull(rw, buf[:wire.ClientFlagsSize]); err != nil {
		return nil, fmt.Errorf("read the client's flags: %w", err)
	}
	flags, err := wire.DecodeClientFlags(buf)
	if err != nil {
		return nil, err
	}
	if flags&^(wire.ClientFixedNewstyle|wire.ClientNoZeroes) != 0 {
		return nil, fmt.Errorf("unknown client flags %#x", uint32(flags))
	}
	for {
		if _, err := io.ReadFull(rw, buf[:wire.OptionHeaderSize]); err != nil {
			return nil, fmt.Errorf("read an option: %w", err)
		}
		h, err := wire.DecodeOptionHeader(buf)
		if err != nil {
			return nil, err
		}
		if h.Len > maxOption {
			return nil, fmt.Errorf("%v with %d bytes of data: at most %d are allowed", h.Option, h.Len, maxOption)
		}
		data := make([]byte, h.Len)
		if _, err := io.ReadFull(rw, data); err != nil {
			return nil, fmt.Errorf("read the data of %v: %w", h.Option, err)
		}
		reply, chosen, end := s.option(h.Option, data, flags)
		if len(reply) > 0 {
			if _, err := rw.Write(reply); err != nil {
				return nil, fmt.Errorf("reply to %v: %w", h.Option, err)
			}
		}
		log.Debug("option", zap.Stringer("option", h.Option), zap.Int("reply", len(reply)))
		if chosen != nil || end != nil {
			return chosen, end
		}
	}
}

// option answers one option. It ends the negotiation with an export or an error.
func (s *Server) option(o wire.Option, data []byte, flags wire.ClientFlags) (reply []byte, chosen *export, end error) {
	refuse := func(t wire.ReplyType, text string) ([]byte, *export, error) {
		return wire.AppendOptionReply(nil, o, t, text), nil, nil
	}
	switch o {
	case wire.OptExportName:
		// There is no way to say no but to hang up.
		x := s.lookup(string(data))
		if x == nil {
			return nil, nil, fmt.Errorf("unknown export of %d bytes, %.64q", len(data), data)
		}
		if flags&wire.ClientNoZeroes != 0 {
			return wire.AppendExport(nil, x.wire()), x, nil
		}
		return wire.AppendExportZeroes(nil, x.wire()), x, nil

	case wire.OptAbort:
		return wire.AppendOptionReply(nil, o, wire.RepAck, ""), nil, errAborted

	case wire.OptList:
		if len(data) > 0 {
			return refuse(wire.RepErrInvalid, "LIST takes no data")
		}
		for _, x := range s.exports {
			// The description is for those who ask for INFO_DESCRIPTION: go-nbd's
			// client takes whatever follows the name for another export.
			reply = wire.AppendServer(reply, x.name, "")
		}
		return wire.AppendOptionReply(reply, o, wire.RepAck, ""), nil, nil

	case wire.OptInfo, wire.OptGo:
		req, err := wire.DecodeInfoRequest(data)
		if err != nil {
			return refuse(wire.RepErrInvalid, err.Error())
		}
		if len(req.Name) > wire.MaxString {
			return refuse(wire.RepErrInvalid, "the export name is too long")
		}
		x := s.lookup(string(req.Name))
		if x == nil {
			return refuse(wire.RepErrUnknown, "there is no such export")
		}
		reply = x.appendInfo(reply, o, req)
		reply = wire.AppendOptionReply(reply, o, wire.RepAck, "")
		if o == wire.OptGo {
			return reply, x, nil
		}
		return reply, nil, nil
	}
	return refuse(wire.RepErrUnsup, "this option is not supported")
}

// wire is what a client must know of x.
func (x *export) wire() wire.Export { return wire.Export{Size: x.info.Size, Flags: x.flags} }

// appendInfo appends what a client asked for, and what it needs in any case: the
// block sizes too, for the largest payload may be less than the 32 MiB that
// clients assume.
func (x *export) appendInfo(b []byte, o wire.Option, req wire.InfoRequest) []byte {
	b = wire.AppendInfoExport(b, o, x.wire())
	b = wire.AppendInfoBlockSize(b, o, wire.BlockSizes{
		Min: x.info.BlockMin, Preferred: x.info.BlockPreferred, MaxPayload: x.info.MaxRequest,
	})
	if req.Wants(wire.InfoName) {
		b = wire.AppendInfoText(b, o, wire.InfoName, x.name)
	}
	if req.Wants(wire.InfoDescription) {
		b = wire.AppendInfoText(b, o, wire.InfoDescription, x.info.Description)
	}
	return b
}
