package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.pem, a.cert, a.key = (&authority{}).issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue makes a certificate by template. Without an authority it signs itself.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (chain []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert, key
}

// directory makes a directory with the CA's certificate and one for end, in files that begin
// with end.
func (a *authority) directory(t *testing.T, end string, usage x509.ExtKeyUsage) string {
	t.Helper()
	chain, _, key := a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"ca-cert.pem": a.pem, end + "-cert.pem": chain,
		end + "-key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

// TestTLSClients uses libnbd and QEMU as clients, with certificates required at both ends. Data
// go in and come out. A client without a certificate, or with one of another CA, gets nothing.
func TestTLSClients(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo, nbdcopy, qemuImg)
	h := newHost(t)
	_, target := h.target(t, "r="+h.region(t, "r", "16M"))
	ca := newAuthority(t)
	server := ca.directory(t, "server", x509.ExtKeyUsageServerAuth)
	client := ca.directory(t, "client", x509.ExtKeyUsageClientAuth)
	stranger := newAuthority(t).directory(t, "client", x509.ExtKeyUsageClientAuth)
	require.NoError(t, os.WriteFile(filepath.Join(stranger, "ca-cert.pem"), ca.pem, 0o600)) // so it trusts the server

	pmnbd := start(t, h.home, "pmnbd", "serve", "--target", target+"/r", "--listen", "tcp:127.0.0.1:0",
		"--tls=require", "--tls-certificates", server, "--tls-verify-peer")
	u, err := url.Parse(pmnbd.waitReady(t)[0])
	require.NoError(t, err)
	uri := func(certificates string) string {
		return "nbds://localhost:" + u.Port() + "/r?tls-certificates=" + certificates
	}
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, noise(t, 16<<20), 0o600))

	nbdcopy.run(t, "--flush", image, uri(client))
	require.Contains(t, nbdinfo.run(t, "--json", uri(client)), `"TLS": true`)
	nbdcopy.run(t, uri(client), image+".copy")
	sameFile(t, image, image+".copy")

	qemu := []string{
		"--object", "tls-creds-x509,id=tls,endpoint=client,dir=" + client,
		"--image-opts", "driver=nbd,host=localhost,port=" + u.Port() + ",export=r,tls-creds=tls",
	}
	require.Contains(t, qemuImg.run(t, append([]string{"info"}, qemu...)...), "16 MiB")
	qemuImg.run(t, append([]string{"convert", "-O", "raw", qemu[0], qemu[1], qemu[2], qemu[3]}, image+".qemu")...)
	sameFile(t, image, image+".qemu")

	for name, args := range map[string][]string{
		"without TLS":                   {"nbdinfo", "nbd://localhost:" + u.Port() + "/r"},
		"without a certificate":         {"nbdinfo", uri(server)},
		"with a certificate of another": {"nbdinfo", uri(stranger)},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			require.Error(t, err)
			require.NotContains(t, string(out), "export-size")
		})
	}
	require.Contains(t, nbdinfo.run(t, "--size", uri(client)), "16777216", "the server must go on")
	pmnbd.stop(t)
}

// sameFile compares two files.
func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	require.NoError(t, err)
	y, err := os.ReadFile(b)
	require.NoError(t, err)
	require.True(t, string(x) == string(y), "%s differs from %s", b, a)
}
