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

// A negotiation is fixed newstyle with one client, until it has chosen an export.
type negotiation struct {
	srv *Server
	log *zap.Logger
	rw  io.ReadWriter
	// startTLS goes on with TLS on the client's connection.
	startTLS func() (io.ReadWriter, error)
	secure   bool // it did
	// keepPlace is asked before the client is told that it has entered.
	keepPlace func() bool

	fixed, noZeroes bool // the client's flags
	terms           terms
}

// run negotiates. It reads not a byte beyond the choice of an export.
func (n *negotiation) run() (terms, error) {
	if err := n.greet(); err != nil {
		return terms{}, err
	}
	for n.terms.export == nil {
		o, data, err := n.read()
		if err != nil {
			return terms{}, err
		}
		if o == wire.OptStartTLS && n.mayStartTLS(data) {
			if err := n.upgrade(); err != nil {
				return terms{}, err
			}
			continue
		}
		reply, end := n.option(o, data)
		if n.terms.export != nil && !n.keepPlace() {
			return terms{}, errInterrupted
		}
		if len(reply) > 0 {
			if _, err := n.rw.Write(reply); err != nil {
				return terms{}, fmt.Errorf("reply to %v: %w", o, err)
			}
		}
		n.log.Debug("option", zap.Stringer("option", o), zap.Int("reply", len(reply)))
		if end != nil {
			return terms{}, end
		}
	}
	return n.terms, nil
}

func (n *negotiation) greet() error {
	if _, err := n.rw.Write(wire.AppendGreeting(nil, wire.FlagFixedNewstyle|wire.FlagNoZeroes)); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	var b [wire.ClientFlagsSize]byte
	if _, err := io.ReadFull(n.rw, b[:]); err != nil {
		return fmt.Errorf("read the client's flags: %w", err)
	}
	flags, err := wire.DecodeClientFlags(b[:])
	if err != nil {
		return err
	}
	if flags&^(wire.ClientFixedNewstyle|wire.ClientNoZeroes) != 0 {
		return fmt.Errorf("unknown client flags %#x", uint32(flags))
	}
	n.fixed, n.noZeroes = flags&wire.ClientFixedNewstyle != 0, flags&wire.ClientNoZeroes != 0
	return nil
}

// read reads an option with its data.
func (n *negotiation) read() (wire.Option, []byte, error) {
	var b [wire.OptionHeaderSize]byte
	if _, err := io.ReadFull(n.rw, b[:]); err != nil {
		return 0, nil, fmt.Errorf("read an option: %w", err)
	}
	h, err := wire.DecodeOptionHeader(b[:])
	if err != nil {
		return 0, nil, err
	}
	if h.Len > maxOption {
		return 0, nil, fmt.Errorf("%v with %d bytes of data: at most %d are allowed", h.Option, h.Len, maxOption)
	}
	data := make([]byte, h.Len)
	if _, err := io.ReadFull(n.rw, data); err != nil {
		return 0, nil, fmt.Errorf("read the data of %v: %w", h.Option, err)
	}
	return h.Option, data, nil
}

// mayStartTLS reports whether STARTTLS with data succeeds. To clients that do not
// speak fixed newstyle there is no TLS (proto.md, "Server-side requirements"); other
// options of theirs are answered: go-nbd's client is one.
func (n *negotiation) mayStartTLS(data []byte) bool {
	return n.fixed && n.srv.cfg.TLS != nil && !n.secure && len(data) == 0
}

// upgrade answers STARTTLS. What was agreed in the clear counts no more: somebody
// else may have said it.
func (n *negotiation) upgrade() (err error) {
	if _, err := n.rw.Write(wire.AppendOptionReply(nil, wire.OptStartTLS, wire.RepAck, "")); err != nil {
		return fmt.Errorf("reply to STARTTLS: %w", err)
	}
	if n.rw, err = n.startTLS(); err != nil {
		return err
	}
	n.secure, n.terms = true, terms{}
	return nil
}
