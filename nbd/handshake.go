package nbd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"pmnbd/nbd/wire"
)

// maxOption bounds the data of an option, in bytes. The longest export name and all types
// of information fit many times.
const maxOption = 64 << 10

// errAborted: the client has ended the negotiation, which it may.
var errAborted = errors.New("negotiation aborted by the client")

// A negotiation is the option haggling with one client, until it has chosen an export.
type negotiation struct {
	srv *Server
	log *slog.Logger
	rw  io.ReadWriter
	// startTLS upgrades the client's connection to TLS.
	startTLS func() (io.ReadWriter, error)
	secure   bool // the client has upgraded
	// keepPlace is called before the client hears that it has entered. If it reports
	// false, the negotiation ends.
	keepPlace func() bool

	fixed, noZeroes bool // the client's flags
	terms           terms
}

// run negotiates. It reads no byte after the option that chooses an export.
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
		n.log.Debug("option", slog.String("option", o.String()), slog.Int("reply", len(reply)))
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

// read reads an option and its data.
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

// mayStartTLS reports whether a STARTTLS with this data succeeds. Clients that do not speak
// fixed newstyle get no TLS (proto.md, "Server-side requirements"). The server accepts
// their other options, because go-nbd's client is one of them.
func (n *negotiation) mayStartTLS(data []byte) bool {
	return n.fixed && n.srv.cfg.TLS != nil && !n.secure && len(data) == 0
}

// upgrade replies to STARTTLS and upgrades. It forgets what was agreed in plaintext,
// because somebody else may have sent that.
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
