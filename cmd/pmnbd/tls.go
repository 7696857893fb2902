package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/keyfile"
)

// The files of --tls-certificates, named as nbdkit and QEMU name them.
const (
	tlsCA   = "ca-cert.pem"
	tlsCRL  = "ca-crl.pem" // optional
	tlsCert = "server-cert.pem"
	tlsKey  = "server-key.pem"
)

// maxKeyFile bounds a file with the key of a certificate, in bytes.
const maxKeyFile = 1 << 20

// serverTLS returns the configuration that --tls, --tls-certificates and --tls-verify-peer ask
// for, nil without TLS, and whether clients must use TLS. It has the files read again for every
// client, so that certificates can be renewed.
func serverTLS(mode, dir string, verifyPeer bool) (cfg *tls.Config, require bool, err error) {
	switch mode {
	case "off":
		if dir != "" || verifyPeer {
			return nil, false, flags.Usagef("--tls-certificates and --tls-verify-peer need --tls=on or --tls=require")
		}
		return nil, false, nil
	case "on", "require":
	default:
		return nil, false, flags.Usagef("--tls %q: use off, on or require", mode)
	}
	if dir == "" {
		return nil, false, flags.Usagef("--tls=%s needs --tls-certificates, a directory with %s and %s, and %s to verify clients by", mode, tlsCert, tlsKey, tlsCA)
	}
	cfg, err = loadTLS(dir, verifyPeer)
	if err != nil {
		return nil, false, fmt.Errorf("--tls-certificates: %w", err)
	}
	leaf, now := cfg.Certificates[0].Leaf, time.Now()
	switch {
	case now.After(leaf.NotAfter):
		return nil, false, fmt.Errorf("%s expired at %v", filepath.Join(dir, tlsCert), leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return nil, false, fmt.Errorf("%s is not valid before %v", filepath.Join(dir, tlsCert), leaf.NotBefore)
	}
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return loadTLS(dir, verifyPeer) }
	return cfg, mode == "require", nil
}

// loadPair reads a certificate and its key, which must be as secret as any key file.
func loadPair(certFile, keyFile string) (pair tls.Certificate, err error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return pair, err
	}
	keyPEM, err := keyfile.Secret(keyFile, maxKeyFile)
	if err != nil {
		return pair, err
	}
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		err = fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, err
}

// loadTLS reads the files in dir, those of the CA only with verifyPeer.
func loadTLS(dir string, verifyPeer bool) (*tls.Config, error) {
	pair, err := loadPair(filepath.Join(dir, tlsCert), filepath.Join(dir, tlsKey))
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		// NBD connections live long, so resuming sessions saves nothing, and without it
		// every client is verified anew. Full records from the start cost the fewest bytes
		// and system calls.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
	if !verifyPeer {
		return cfg, nil
	}
	cas, err := readPEM(filepath.Join(dir, tlsCA), "CERTIFICATE", x509.ParseCertificate)
	if err != nil {
		return nil, err
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	for _, ca := range cas {
		cfg.ClientCAs.AddCert(ca)
	}
	crlFile := filepath.Join(dir, tlsCRL)
	lists, err := readPEM(crlFile, "X509 CRL", x509.ParseRevocationList)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, list := range lists {
		switch {
		case !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return list.CheckSignatureFrom(ca) == nil }):
			return nil, fmt.Errorf("%s: not signed by a CA in %s", crlFile, tlsCA)
		case time.Now().After(list.NextUpdate):
			return nil, fmt.Errorf("%s expired at %v", crlFile, list.NextUpdate)
		}
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error { return checkRevoked(s.VerifiedChains, lists) }
	return cfg, nil
}

// readPEM parses the blocks of file. There must be at least one, and all must be of type t.
func readPEM[T any](file, t string, parse func([]byte) (T, error)) (all []T, err error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != t {
			return nil, fmt.Errorf("%s: a PEM block of type %q where only %q belongs", file, b.Type, t)
		}
		one, err := parse(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no PEM block of type %q", file, t)
	}
	return all, nil
}

// checkRevoked refuses a peer if a certificate that vouches for it is revoked.
func checkRevoked(chains [][]*x509.Certificate, lists []*x509.RevocationList) error {
	for _, cert := range slices.Concat(chains...) {
		for _, list := range lists {
			revoked := func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 }
			if bytes.Equal(list.RawIssuer, cert.RawIssuer) && slices.ContainsFunc(list.RevokedCertificateEntries, revoked) {
				return fmt.Errorf("the certificate of %v is revoked", cert.Subject)
			}
		}
	}
	return nil
}
