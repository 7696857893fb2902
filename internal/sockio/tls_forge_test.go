package sockio

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Types of records and messages (RFC 8446 §5.1, §4).
const (
	typeHandshake = 22
	typeData      = 23
)

// askKeyUpdate is a KeyUpdate with update_requested (RFC 8446 §4.6.3).
var askKeyUpdate = []byte{24, 0, 0, 1, 1}

// A forger is a TLS 1.3 client that writes records that no library would write. It reads
// with crypto/tls.
type forger struct {
	t      testing.TB
	nc     net.Conn
	reader *tls.Conn
	secret []byte // client_application_traffic_secret_N
	seq    uint64
}

// forge connects a server and a forger by unix sockets: what one end has sent, the other
// can read at once.
func forge(t testing.TB) (*TLS, *forger) {
	server, client := identity()
	client = client.Clone()
	var log bytes.Buffer
	client.KeyLogWriter = &log
	f := &forger{t: t}
	s, c := secure(t, "unix", server, client, goClient)
	if c.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("the forger knows TLS_AES_128_GCM_SHA256 alone; no AES instructions here?")
	}
	f.reader, f.nc = c, c.NetConn()
	for line := range strings.Lines(log.String()) {
		if w := strings.Fields(line); w[0] == "CLIENT_TRAFFIC_SECRET_0" {
			var err error
			f.secret, err = hex.DecodeString(w[2])
			require.NoError(t, err)
		}
	}
	require.NotNil(t, f.secret)
	return s, f
}

// expand is HKDF-Expand-Label without context (RFC 8446 §7.1).
func (f *forger) expand(label string, n int) []byte {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(append(info, byte(len(label))), label...), 0)
	key, err := hkdf.Expand(sha256.New, f.secret, string(info), n)
	require.NoError(f.t, err)
	return key
}

// record makes the next record.
func (f *forger) record(typ byte, content []byte) []byte {
	block, err := aes.NewCipher(f.expand("key", 16))
	require.NoError(f.t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(f.t, err)
	nonce := f.expand("iv", 12)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^f.seq)
	f.seq++
	plain := append(bytes.Clone(content), typ)
	head := binary.BigEndian.AppendUint16([]byte{typeData, 3, 3}, uint16(len(plain)+aead.Overhead()))
	return aead.Seal(head, nonce, plain, head)
}

// keyUpdate makes a KeyUpdate that asks for one in return. Later records use the next key.
func (f *forger) keyUpdate() []byte {
	b := f.record(typeHandshake, askKeyUpdate)
	f.secret, f.seq = f.expand("traffic upd", sha256.Size), 0
	return b
}

func (f *forger) send(records ...[]byte) {
	_, err := f.nc.Write(bytes.Join(records, nil))
	require.NoError(f.t, err)
}
