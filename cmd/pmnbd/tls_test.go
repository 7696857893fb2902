package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
)

func TestTLSFlags(t *testing.T) {
	for _, c := range []struct {
		name, mode, dir string
		verify          bool
		err             string
	}{
		{"off", "off", "", false, ""},
		{"off, with certificates", "off", "/pki", false, "need --tls=on or --tls=require"},
		{"off, verifying", "off", "", true, "need --tls=on or --tls=require"},
		{"on, without certificates", "on", "", false, "--tls=on needs --tls-certificates"},
		{"require, without certificates", "require", "", true, "--tls=require needs --tls-certificates"},
		{"nonsense", "yes", "/pki", false, `--tls "yes": use off, on or require`},
		{"nothing", "", "", false, `--tls "": use off, on or require`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, must, err := serverTLS(c.mode, c.dir, c.verify)
			require.Nil(t, cfg)
			require.False(t, must)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, flags.ErrUsage)
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A signer is a CA, or a key with a certificate.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate, by itself if ca is nil; edit may spoil it.
func issue(t *testing.T, ca *signer, name string, serial int64, edit func(c *x509.Certificate)) *signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if edit != nil {
		edit(c)
	}
	parent := ca
	if ca == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
		parent = &signer{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent.cert, key.Public(), parent.key)
	require.NoError(t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return &signer{c, key}
}

func (s *signer) certPEM() string { return toPEM("CERTIFICATE", s.cert.Raw) }

func (s *signer) keyPEM(t *testing.T) string {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	require.NoError(t, err)
	return toPEM("PRIVATE KEY", der)
}

// crlPEM is a list that revokes serial until a moment from now.
func (s *signer) crlPEM(t *testing.T, serial int64, valid time.Duration) string {
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(valid),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(serial), RevocationTime: time.Now()}},
	}, s.cert, s.key)
	require.NoError(t, err)
	return toPEM("X509 CRL", der)
}

func toPEM(t string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: t, Bytes: der}))
}

// write puts files into dir; an empty one is removed.
func write(t *testing.T, dir string, files map[string]string) {
	for name, text := range files {
		if text == "" {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// meet is a handshake, and a byte each way: in TLS 1.3 the client's own handshake
// succeeds before the server has seen its certificate.
func meet(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	a, b := net.Pipe()
	done := make(chan error)
	go func() {
		s := tls.Server(a, server)
		_, err := s.Write([]byte{1})
		_ = a.Close() // as the server does with what failed
		done <- err
	}()
	c := tls.Client(b, client)
	_, clientErr = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, b.Close())
	return <-done, clientErr
}

func TestTLSFiles(t *testing.T) {
	ca := issue(t, nil, "ca", 1, nil)
	good := issue(t, ca, "server", 2, nil)
	other := issue(t, ca, "server", 3, nil)
	late := issue(t, ca, "server", 4, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	early := issue(t, ca, "server", 5, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	stranger := issue(t, nil, "ca", 1, nil)
	const exposed = "exposed" // instead of a key: the good one, in a file that others read
	for _, c := range []struct {
		name   string
		files  map[string]string // instead of the good ones
		verify bool
		err    string
	}{
		{"a key that others know", map[string]string{tlsKey: exposed}, false, tlsKey + " has mode 0640, so others may know the keys"},
		{"good", nil, true, ""},
		{"text before the blocks", map[string]string{tlsCA: "CN=ca\n" + ca.certPEM() + stranger.certPEM(), tlsCert: "CN=server\n" + good.certPEM() + ca.certPEM()}, true, ""},
		{"a list", map[string]string{tlsCRL: ca.crlPEM(t, 9, time.Hour)}, true, ""},
		{"no CA, and nobody to verify", map[string]string{tlsCA: ""}, false, ""},
		{"no CA", map[string]string{tlsCA: ""}, true, tlsCA + ": no such file"},
		{"no certificate", map[string]string{tlsCert: ""}, false, tlsCert + ": no such file"},
		{"no key", map[string]string{tlsKey: ""}, false, tlsKey + ": no such file"},
		{"not PEM", map[string]string{tlsCert: "certificate"}, false, tlsCert},
		{"a broken certificate", map[string]string{tlsCert: toPEM("CERTIFICATE", []byte("x"))}, false, tlsCert},
		{"a broken key", map[string]string{tlsKey: toPEM("PRIVATE KEY", []byte("x"))}, false, tlsKey},
		{"another's key", map[string]string{tlsKey: other.keyPEM(t)}, false, "private key does not match public key"},
		{"expired", map[string]string{tlsCert: late.certPEM(), tlsKey: late.keyPEM(t)}, false, tlsCert + " expired at 20"},
		{"not yet valid", map[string]string{tlsCert: early.certPEM(), tlsKey: early.keyPEM(t)}, false, tlsCert + " is not valid before 20"},
		{"an empty CA file", map[string]string{tlsCA: "\n"}, true, tlsCA + `: no PEM block of type "CERTIFICATE"`},
		{"a key for a CA", map[string]string{tlsCA: ca.keyPEM(t)}, true, tlsCA + `: a PEM block of type "PRIVATE KEY" where only "CERTIFICATE" belongs`},
		{"a broken CA", map[string]string{tlsCA: toPEM("CERTIFICATE", []byte("x"))}, true, tlsCA + ": x509: "},
		{"a broken list", map[string]string{tlsCRL: toPEM("X509 CRL", []byte("x"))}, true, tlsCRL + ": x509: "},
		{"a stranger's list", map[string]string{tlsCRL: stranger.crlPEM(t, 9, time.Hour)}, true, tlsCRL + ": not signed by a CA in " + tlsCA},
		{"an old list", map[string]string{tlsCRL: ca.crlPEM(t, 9, -time.Minute)}, true, tlsCRL + " expired at 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{tlsCA: ca.certPEM(), tlsCert: good.certPEM(), tlsKey: good.keyPEM(t)})
			if c.files[tlsKey] == exposed {
				require.NoError(t, os.Chmod(filepath.Join(dir, tlsKey), 0o640))
			} else {
				write(t, dir, c.files)
			}
			cfg, must, err := serverTLS("on", dir, c.verify)
			require.False(t, must)
			if c.err == "" {
				require.NoError(t, err)
				require.NotNil(t, cfg)
				return
			}
			require.Nil(t, cfg)
			require.ErrorContains(t, err, c.err)
			require.NotErrorIs(t, err, flags.ErrUsage)
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, 1, strings.Count(strings.ReplaceAll(err.Error(), " and "+dir, ""), dir), "the file is named once")
		})
	}
}

func TestTLSClients(t *testing.T) {
	ca := issue(t, nil, "ca", 1, nil)
	server := issue(t, ca, "server", 2, nil)
	alice := issue(t, ca, "alice", 3, nil)
	mallory := issue(t, ca, "mallory", 4, nil)
	old := issue(t, ca, "old", 5, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	wrong := issue(t, ca, "wrong", 6, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	stranger := issue(t, issue(t, nil, "ca", 1, nil), "alice", 3, nil)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	client := func(s *signer, max uint16) *tls.Config {
		cfg := &tls.Config{RootCAs: roots, ServerName: "server", MinVersion: tls.VersionTLS10, MaxVersion: max}
		if s != nil {
			pair := tls.Certificate{Certificate: [][]byte{s.cert.Raw}, PrivateKey: s.key}
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return cfg
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{
		tlsCA: ca.certPEM(), tlsCert: server.certPEM(), tlsKey: server.keyPEM(t), tlsCRL: ca.crlPEM(t, 4, time.Hour),
	})
	anyone, must, err := serverTLS("on", dir, false)
	require.NoError(t, err)
	require.False(t, must)
	verified, must, err := serverTLS("require", dir, true)
	require.NoError(t, err)
	require.True(t, must)
	for _, c := range []struct {
		name   string
		server *tls.Config
		client *signer
		max    uint16
		err    string
	}{
		{"anyone", anyone, nil, 0, ""},
		{"a certificate that nobody asks for", anyone, stranger, 0, ""},
		{"TLS 1.2", anyone, nil, tls.VersionTLS12, ""},
		{"TLS 1.1", anyone, nil, tls.VersionTLS11, "unsupported versions"},
		{"verified", verified, alice, 0, ""},
		{"verified, TLS 1.2", verified, alice, tls.VersionTLS12, ""},
		{"no certificate", verified, nil, 0, "didn't provide a certificate"},
		{"of another CA", verified, stranger, 0, "unknown authority"},
		{"expired", verified, old, 0, "expired"},
		{"a server's", verified, wrong, 0, "incompatible key usage"},
		{"revoked", verified, mallory, 0, "the certificate of CN=mallory is revoked"},
		{"revoked, TLS 1.2", verified, mallory, tls.VersionTLS12, "the certificate of CN=mallory is revoked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			serverErr, clientErr := meet(t, c.server, client(c.client, c.max))
			if c.err == "" {
				require.NoError(t, serverErr)
				require.NoError(t, clientErr)
				return
			}
			require.ErrorContains(t, serverErr, c.err)
			require.Error(t, clientErr)
		})
	}

	t.Run("renewed", func(t *testing.T) {
		// The next client meets the new files; a half-renewed pair is an error that
		// is seen, not an old certificate that is not.
		renewed := issue(t, ca, "renewed", 7, nil)
		write(t, dir, map[string]string{tlsCert: renewed.certPEM()})
		serverErr, _ := meet(t, verified, client(alice, 0))
		require.ErrorContains(t, serverErr, "private key does not match public key")
		write(t, dir, map[string]string{tlsKey: renewed.keyPEM(t), tlsCRL: ca.crlPEM(t, 3, time.Hour)})
		cfg := client(mallory, 0)
		cfg.ServerName = "renewed"
		serverErr, clientErr := meet(t, verified, cfg)
		require.NoError(t, serverErr)
		require.NoError(t, clientErr)
		cfg = client(alice, 0)
		cfg.ServerName = "renewed"
		serverErr, _ = meet(t, verified, cfg)
		require.ErrorContains(t, serverErr, "the certificate of CN=alice is revoked")
	})
}
