package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEncrypted serves an encrypted region and another one, on both schemes, to an initiator that makes
// its id and its key before it first serves. Who comes in clear, or without a key, does not get the
// encrypted one. Status shows at both ends which key has proven the session, and what encrypts it.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := strings.TrimSpace(h.run(t, "pmnbd", "id", "--state-dir", h.home))
	require.Equal(t, id, strings.TrimSpace(h.run(t, "pmnbd", "id", "--state-dir", h.home)), "it stays")
	line := h.run(t, "pmnbd-target", "key", "new", "--initiator", id, "--target", "pm1")
	keys := filepath.Join(h.home, "keys")
	require.NoError(t, os.WriteFile(keys, []byte(line), 0o600))
	fingerprint := strings.Fields(h.run(t, "pmnbd", "key", "show", keys))[5]
	require.Contains(t, h.run(t, "pmnbd-target", "key", "show", keys), fingerprint)
	require.NotContains(t, h.run(t, "pmnbd-target", "key", "show", keys), strings.Fields(line)[2])

	target := start(t, h.home, "pmnbd-target", "serve", "--name", "pm1", "--key-file", keys, "--listen", "iwarps://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0",
		"--region", "log="+h.region(t, "log", "4M")+",encrypted", "--region", "other="+h.region(t, "other", "4M"))
	at := target.waitReady(t)
	require.Len(t, at, 2)
	require.Regexp(t, "^iwarps://", at[0])
	require.Regexp(t, "^iwarp://", at[1])
	named := func(uri string) string { return strings.Replace(uri, "://", "://pm1@", 1) }

	refused := func(says string, args ...string) {
		t.Helper()
		code, _, errs := h.result(t, "pmnbd", append([]string{"serve", "--listen", "unix:" + filepath.Join(h.home, "x.sock")}, args...)...)
		require.NotZero(t, code)
		require.Contains(t, errs, says)
	}
	refused("connection not encrypted: the target demands it for this region; use iwarps://", "--key-file", keys, "--target", named(at[1])+"/log")
	refused("needs --key-file: without a key nobody knows who is at the other end", "--target", at[0]+"/log")
	refused("the peer does not speak TLS: does it listen at iwarps://?", "--key-file", keys, "--target", strings.Replace(named(at[1]), "iwarp:", "iwarps:", 1)+"/other")
	refused("hung up instead of answering, as one at iwarps:// does", "--key-file", keys, "--target", strings.Replace(named(at[0]), "iwarps:", "iwarp:", 1)+"/other")
	target.waitLog(t, "connection not encrypted")

	p, socket, _ := h.initiator(t, named(at[0]), "log", "--key-file", keys, "--lanes", "3")
	data := noise(t, 1<<20)
	c := dialNBD(t, socket)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	got := make([]byte, len(data))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
	p.waitLog(t, `"key":"`+fingerprint+`","cipher":"TLS 1.3, `)
	says := "proven by key " + fingerprint + ", encrypted with TLS 1.3, TLS_"
	require.Contains(t, h.run(t, "pmnbd", "status"), says)
	require.Contains(t, h.run(t, "pmnbd-target", "status"), says)
	var all []struct {
		Regions []struct {
			Name    string
			Session *struct{ Key, Cipher string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(h.run(t, "pmnbd-target", "status", "--json")), &all))
	require.Equal(t, fingerprint, all[0].Regions[0].Session.Key)
	require.Regexp(t, "X25519MLKEM768$", all[0].Regions[0].Session.Cipher)
	require.Nil(t, all[0].Regions[1].Session)
	p.stop(t)
	target.stop(t)
}
