package nbd

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// A negotiationModel predicts the result of a negotiation. It is written from proto.md, not
// from the server.
type negotiationModel struct {
	tls, required bool // the server's
	fixed         bool // the client's

	secure    bool
	form      replies
	status    string // of which export; "" is none
	export    string // chosen
	end       bool
	aborted   bool
	said      []wire.ReplyType
	exportOld bool // the last reply is EXPORT_NAME's
}

// read reads the flags and options in in, up to one that is incomplete.
func (m *negotiationModel) read(in []byte) {
	if len(in) < 4 {
		return
	}
	flags := binary.BigEndian.Uint32(in)
	if flags > 3 {
		return
	}
	m.fixed = flags&1 != 0
	for in = in[4:]; len(in) >= wire.OptionHeaderSize && m.export == "" && !m.end; {
		h, err := wire.DecodeOptionHeader(in)
		if err != nil || h.Len > maxOption || int(h.Len) > len(in)-wire.OptionHeaderSize {
			return
		}
		in = in[wire.OptionHeaderSize:]
		m.option(h.Option, in[:h.Len])
		in = in[h.Len:]
	}
}

func (m *negotiationModel) say(types ...wire.ReplyType) { m.said = append(m.said, types...) }

// exportOf returns the export of that name, or "" if there is none.
func exportOf(name []byte) string {
	switch string(name) {
	case "", "disk":
		return "disk"
	case "other":
		return "other"
	}
	return ""
}

func (m *negotiationModel) option(o wire.Option, data []byte) {
	switch {
	case o == wire.OptAbort:
		m.say(ack)
		m.end, m.aborted = true, true
		return
	case m.required && !m.secure && o == wire.OptExportName:
		m.end = true
		return
	case m.required && !m.secure && o != wire.OptStartTLS:
		m.say(wire.RepErrTLSReqd)
		return
	}
	switch o {
	case wire.OptExportName:
		m.end = m.form == extended || exportOf(data) == ""
		if !m.end {
			m.export, m.exportOld = exportOf(data), true
		}
	case wire.OptInfo, wire.OptGo:
		r, err := wire.DecodeInfoRequest(data)
		switch {
		case err != nil || len(r.Name) > 4096:
			m.say(invalid)
		case exportOf(r.Name) == "":
			m.say(unknown)
		default:
			m.say(wire.RepInfo, wire.RepInfo)
			for _, t := range []wire.InfoType{wire.InfoName, wire.InfoDescription} {
				if r.Wants(t) {
					m.say(wire.RepInfo)
				}
			}
			m.say(ack)
			if o == wire.OptGo {
				m.export = exportOf(r.Name)
			}
		}
	case wire.OptListMetaContext, wire.OptSetMetaContext:
		m.meta(o == wire.OptSetMetaContext, data)
	case wire.OptList, wire.OptStartTLS, wire.OptStructuredReply, wire.OptExtendedHeaders:
		m.bare(o, len(data) > 0)
	default:
		m.say(wire.RepErrUnsup)
	}
}

// bare are the options without data.
func (m *negotiationModel) bare(o wire.Option, hasData bool) {
	switch {
	case hasData:
		m.say(invalid)
	case o == wire.OptList:
		m.say(wire.RepServer, wire.RepServer, ack)
	case o == wire.OptStartTLS && !m.tls:
		m.say(wire.RepErrPolicy)
	case o == wire.OptStartTLS && (m.secure || !m.fixed):
		m.say(invalid)
	case o == wire.OptStartTLS:
		m.say(ack)
		m.secure, m.form, m.status = true, simple, ""
	case o == wire.OptStructuredReply && m.form == extended:
		m.say(wire.RepErrExtHdrReqd)
	case o == wire.OptStructuredReply && m.form == structured, o == wire.OptExtendedHeaders && m.form == extended:
		m.say(invalid)
	case o == wire.OptStructuredReply:
		m.say(ack)
		m.form = structured
	default:
		m.say(ack)
		m.form = extended
	}
}

func (m *negotiationModel) meta(set bool, data []byte) {
	if set {
		m.status = ""
	}
	r, err := wire.DecodeMetaRequest(data)
	switch {
	case m.form == simple, err != nil, len(r.Name) > 4096:
		m.say(invalid)
		return
	case exportOf(r.Name) == "":
		m.say(unknown)
		return
	}
	queries := slices.Collect(r.Queries())
	if slices.Contains(queries, alloc) || !set && (len(queries) == 0 || slices.Contains(queries, "base:")) {
		m.say(wire.RepMetaContext)
		if set {
			m.status = exportOf(r.Name)
		}
	}
	m.say(ack)
}

// FuzzNegotiation: whatever a client sends, the result is what the model predicts, and the
// server's replies are not much longer than what the client has sent.
func FuzzNegotiation(f *testing.F) {
	flags := wire.AppendClientFlags(nil, fixed)
	sr, eh, starttls := opt(wire.OptStructuredReply), opt(wire.OptExtendedHeaders), opt(wire.OptStartTLS)
	set, list := wire.OptSetMetaContext, wire.OptListMetaContext
	for _, seed := range [][]byte{
		nil,
		info(wire.OptGo, "disk", wire.InfoBlockSize, wire.InfoName),
		opt(wire.OptExportName, "other"),
		slices.Concat(opt(wire.OptList), opt(wire.OptAbort)),
		slices.Concat(sr, meta(set, "disk", "x:", alloc), meta(list, "", "base:"), info(wire.OptGo, "")),
		slices.Concat(eh, sr, meta(set, "other", alloc), info(wire.OptInfo, "disk"), info(wire.OptGo, "disk")),
		slices.Concat(sr, meta(set, "disk", alloc), starttls, starttls, meta(set, "disk", alloc), eh, info(wire.OptGo, "disk", 2)),
		slices.Concat(eh, opt(99, "data"), opt(wire.OptExportName, "")),
		slices.Concat(opt(wire.OptStartTLS, "x"), starttls, opt(wire.OptExportName, "disk")),
	} {
		for mode := range uint8(3) {
			f.Add(append(slices.Clip(flags), seed...), mode)
		}
	}
	f.Add(slices.Concat(wire.AppendClientFlags(nil, wire.ClientNoZeroes), starttls, opt(wire.OptExportName, "disk")), uint8(1))
	dev := newMem(f, 1<<20)
	var servers []*Server
	for _, cfg := range []Config{{}, {TLS: &tls.Config{}}, {TLS: &tls.Config{}, RequireTLS: true}} {
		srv, err := New(cfg, Export{Name: "disk", Device: dev}, Export{Name: "other", Device: dev, ReadOnly: true})
		require.NoError(f, err)
		servers = append(servers, srv)
	}
	f.Cleanup(func() { require.NoError(f, dev.Close()) })
	f.Fuzz(func(t *testing.T, in []byte, mode uint8) {
		mode %= 3
		var out bytes.Buffer
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), &out}
		n := negotiation{srv: servers[mode], log: servers[mode].cfg.Log, rw: rw, keepPlace: func() bool { return true }}
		n.startTLS = func() (io.ReadWriter, error) { return rw, nil } // plaintext stands for TLS
		agreed, err := n.run()
		want := negotiationModel{tls: mode > 0, required: mode == 2}
		want.read(in)

		require.Equal(t, want.export == "", err != nil)
		require.Equal(t, want.aborted, errors.Is(err, errAborted))
		if err == nil {
			require.Equal(t, want.export, agreed.export.name)
			require.Equal(t, want.form, agreed.replies)
			require.Equal(t, want.status == want.export, agreed.hasStatus())
			require.Equal(t, want.secure, n.secure)
			require.True(t, want.secure || mode != 2)
		}
		b := out.Bytes()[wire.GreetingSize:]
		require.LessOrEqual(t, len(b), 400*(1+len(in)/wire.OptionHeaderSize), "bounded by what was asked")
		for _, typ := range want.said {
			h, err := wire.DecodeOptionReply(b)
			require.NoError(t, err)
			require.Equal(t, typ, h.Type)
			b = b[wire.OptionReplySize+h.Len:]
		}
		if want.exportOld {
			e, err := wire.DecodeExport(b[:wire.ExportReplySize])
			require.NoError(t, err)
			require.Equal(t, agreed.offer(agreed.export), e)
			b = b[len(b):]
		}
		require.Empty(t, b)
	})
}
