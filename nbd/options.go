package nbd

import (
	"errors"
	"fmt"

	"pmnbd/nbd/wire"
)

// option returns the reply to one option. A STARTTLS that succeeds does not come here. To
// end the negotiation, option sets the export in the terms or returns an error.
func (n *negotiation) option(o wire.Option, data []byte) (reply []byte, end error) {
	refuse := func(t wire.ReplyType, text string) ([]byte, error) {
		return wire.AppendOptionReply(nil, o, t, text), nil
	}
	switch {
	case o == wire.OptAbort:
		return wire.AppendOptionReply(nil, o, wire.RepAck, ""), errAborted
	case n.srv.cfg.RequireTLS && !n.secure && o == wire.OptExportName:
		return nil, errors.New("EXPORT_NAME without TLS, which is required")
	case n.srv.cfg.RequireTLS && !n.secure && o != wire.OptStartTLS:
		return refuse(wire.RepErrTLSReqd, "this server requires TLS")
	}
	switch o {
	case wire.OptExportName:
		return n.exportName(data)
	case wire.OptInfo, wire.OptGo:
		return n.info(o, data)
	case wire.OptListMetaContext, wire.OptSetMetaContext:
		return n.metaContext(o, data), nil
	case wire.OptList, wire.OptStartTLS, wire.OptStructuredReply, wire.OptExtendedHeaders:
		if len(data) > 0 {
			return refuse(wire.RepErrInvalid, o.String()+" takes no data")
		}
	}
	switch o {
	case wire.OptList:
		for _, x := range n.srv.served() {
			// There is no description: go-nbd's client takes what follows the name for
			// another export. Other clients ask for INFO_DESCRIPTION.
			reply = wire.AppendServer(reply, x.name, "")
		}
	case wire.OptStartTLS:
		if n.secure {
			return refuse(wire.RepErrInvalid, "TLS has already begun")
		}
		if n.srv.cfg.TLS != nil { // the client does not speak fixed newstyle
			return refuse(wire.RepErrInvalid, "TLS needs fixed newstyle")
		}
		return refuse(wire.RepErrPolicy, "this server does not use TLS")
	case wire.OptStructuredReply:
		switch n.terms.replies {
		case extended:
			return refuse(wire.RepErrExtHdrReqd, "extended headers are already agreed on")
		case structured:
			return refuse(wire.RepErrInvalid, "structured replies are already agreed on")
		}
		n.terms.replies = structured
	case wire.OptExtendedHeaders:
		if n.terms.replies == extended {
			return refuse(wire.RepErrInvalid, "extended headers are already agreed on")
		}
		n.terms.replies = extended
	default:
		return refuse(wire.RepErrUnsup, "this option is not supported")
	}
	return wire.AppendOptionReply(reply, o, wire.RepAck, ""), nil
}

// exportName replies to EXPORT_NAME. The server can refuse it only by hanging up.
func (n *negotiation) exportName(name []byte) ([]byte, error) {
	if n.terms.replies == extended {
		return nil, errors.New("EXPORT_NAME after EXTENDED_HEADERS")
	}
	x := n.srv.lookup(string(name))
	if x == nil {
		return nil, fmt.Errorf("unknown export of %d bytes, %.64q", len(name), name)
	}
	n.terms.export = x
	if n.noZeroes {
		return wire.AppendExport(nil, n.terms.offer(x)), nil
	}
	return wire.AppendExportZeroes(nil, n.terms.offer(x)), nil
}

// info replies to INFO and GO with what the client has asked for, the size and flags, and
// the block sizes. The client needs those because the largest payload may be less than the
// 32 MiB that clients assume.
func (n *negotiation) info(o wire.Option, data []byte) ([]byte, error) {
	req, err := wire.DecodeInfoRequest(data)
	if err != nil {
		return wire.AppendOptionReply(nil, o, wire.RepErrInvalid, err.Error()), nil
	}
	x, refusal := n.named(o, req.Name)
	if x == nil {
		return refusal, nil
	}
	b := wire.AppendInfoExport(nil, o, n.terms.offer(x))
	b = wire.AppendInfoBlockSize(b, o, wire.BlockSizes{
		Min: x.info.BlockMin, Preferred: x.info.BlockPreferred, MaxPayload: x.info.MaxRequest,
	})
	if req.Wants(wire.InfoName) {
		b = wire.AppendInfoText(b, o, wire.InfoName, x.name)
	}
	if req.Wants(wire.InfoDescription) {
		b = wire.AppendInfoText(b, o, wire.InfoDescription, x.info.Description)
	}
	if o == wire.OptGo {
		n.terms.export = x
	}
	return wire.AppendOptionReply(b, o, wire.RepAck, ""), nil
}

// metaContext replies to LIST_META_CONTEXT and SET_META_CONTEXT. Even a SET_META_CONTEXT
// that fails ends what was set before. As proto.md demands, it ignores queries that select
// nothing here.
func (n *negotiation) metaContext(o wire.Option, data []byte) []byte {
	set := o == wire.OptSetMetaContext
	if set {
		n.terms.status = nil
	}
	if n.terms.replies == simple {
		return wire.AppendOptionReply(nil, o, wire.RepErrInvalid, "ask for structured replies or extended headers first")
	}
	req, err := wire.DecodeMetaRequest(data)
	if err != nil {
		return wire.AppendOptionReply(nil, o, wire.RepErrInvalid, err.Error())
	}
	x, refusal := n.named(o, req.Name)
	if x == nil {
		return refusal
	}
	selected := !set && req.Count == 0
	for q := range req.Queries() {
		selected = selected || q == wire.ContextAllocation || !set && q == "base:"
	}
	var b []byte
	switch {
	case selected && set:
		n.terms.status = x
		b = wire.AppendMetaContext(b, o, contextID, wire.ContextAllocation)
	case selected:
		b = wire.AppendMetaContext(b, o, 0, wire.ContextAllocation) // the id is reserved here
	}
	return wire.AppendOptionReply(b, o, wire.RepAck, "")
}

// named returns the export that an option names, or the reply that refuses the option.
func (n *negotiation) named(o wire.Option, name []byte) (*export, []byte) {
	if len(name) > wire.MaxString {
		return nil, wire.AppendOptionReply(nil, o, wire.RepErrInvalid, "the export name is too long")
	}
	x := n.srv.lookup(string(name))
	if x == nil {
		return nil, wire.AppendOptionReply(nil, o, wire.RepErrUnknown, "there is no such export")
	}
	return x, nil
}
