package iwarp

import (
	"fmt"
	"sync"
	"time"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A connRequest is a peer's MPA request. Its methods are the responder's side.
type connRequest struct {
	cfg   Config
	frame mpaFrame

	channel *rdma.Channel

	mu   sync.Mutex
	link *link // guarded by mu: Accept changes what it runs on, and Abandon closes what is there
}

// current returns what the request came on.
func (r *connRequest) current() link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.link
}

// takeOver is takeOver of the link.
func (r *connRequest) takeOver(s *setup) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link.takeOver(s, r.cfg.keyBytes)
}

// Channel implements rdma.Request.
func (r *connRequest) Channel() *rdma.Channel { return r.channel }

// PrivateData implements rdma.Request.
func (r *connRequest) PrivateData() []byte { return r.frame.Private }

// RemoteAddr implements rdma.Request.
func (r *connRequest) RemoteAddr() string {
	l := r.current()
	return l.RemoteAddr().String()
}

// OpenDomain implements rdma.Request.
func (r *connRequest) OpenDomain() (rdma.Domain, error) { return newDomain(r.cfg), nil }

// Accept implements rdma.Request.
func (r *connRequest) Accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	c, err := r.accept(d, cfg, recvs)
	if err != nil {
		r.Abandon() // a request is answered once, by hanging up if need be
		return nil, fmt.Errorf("accept %s: %w", r.RemoteAddr(), err)
	}
	return c, nil
}

func (r *connRequest) accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	own, ok := d.(*domain)
	if !ok {
		return nil, fmt.Errorf("a %T is a domain of another provider: %w", d, rdma.ErrNotSupported)
	}
	cfg, err := queue.Complete(cfg, queue.MaxDepth, maxReads)
	if err != nil {
		return nil, err
	}
	s := setup{responder: true, crc: r.frame.CRC || !r.cfg.NoCRC, ord: cfg.MaxReads}
	if err := r.takeOver(&s); err != nil {
		return nil, err
	}
	rep := mpaFrame{CRC: s.crc, Rev: r.frame.Rev, Enhanced: r.frame.Enhanced}
	if rep.Enhanced {
		s.ord = limitReads(s.ord, r.frame.IRD)
		rep.IRD, rep.ORD = uint16(cfg.MaxReadsIn), uint16(s.ord)
		s.emptyRTR = answerRTR(&r.frame, &rep)
	}
	c, err := newConn(own, &s, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return c, r.reply(&rep)
}

// answerRTR chooses, in rep, the first FPDU that an initiator sends in the peer-to-peer
// model (RFC 6581 §4.1), if req offers that model. It prefers a Write or a Read, which
// need no special case, and reports whether it had to choose an FPDU of length 0.
func answerRTR(req, rep *mpaFrame) (empty bool) {
	if req.IRD&ctlPeer == 0 {
		return false
	}
	rep.IRD |= ctlPeer
	switch {
	case req.ORD&ctlWrite != 0:
		rep.ORD |= ctlWrite
	case req.ORD&ctlRead != 0:
		rep.ORD |= ctlRead
	case req.IRD&ctlEmpty != 0:
		rep.IRD |= ctlEmpty
		return true
	}
	return false
}

// Abandon implements rdma.Request. Accept, or the connection that it made, then fails.
func (r *connRequest) Abandon() {
	l := r.current()
	_ = l.Close()
}

// Reject implements rdma.Request.
func (r *connRequest) Reject(privateData []byte) error {
	if len(privateData) > rdma.MaxPrivateData {
		privateData = privateData[:rdma.MaxPrivateData]
	}
	err := r.reply(&mpaFrame{CRC: true, Reject: true, Rev: r.frame.Rev, Enhanced: r.frame.Enhanced, Private: privateData})
	l := r.current()
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	return err
}

// reply sends f. It takes at most the time of a handshake.
func (r *connRequest) reply(f *mpaFrame) error {
	conn := r.current()
	err := conn.SetDeadline(time.Now().Add(r.cfg.HandshakeTimeout))
	if err == nil {
		_, err = conn.Write(f.append(nil, replyKey))
	}
	if err == nil {
		err = conn.SetDeadline(never)
	}
	if err != nil {
		return fmt.Errorf("answer: %w: %w", err, rdma.ErrLost)
	}
	return nil
}
