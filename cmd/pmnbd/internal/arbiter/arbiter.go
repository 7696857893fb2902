// Package arbiter is the arbiter of mirrors in etcd (mirror §4.8).
//
// It exists so that nothing else knows etcd. Below a prefix each mirror has two keys, named for the UUID
// of its set:
//
//	PREFIX/SET/record   the newest generation, as JSON; it stays
//	PREFIX/SET/active   which initiator has the mirror, as JSON; bound to that initiator's lease
//
// Every change of the record is a transaction on the record's revision and on that of the active key: an
// initiator whose lease is over changes nothing, whatever it believes.
package arbiter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of Config.Lease. etcd itself grants no less than one and a half of its election timeout, which
// is a second by default.
const (
	MinLease = 2 * time.Second
	MaxLease = time.Minute
)

const (
	// asking bounds one request to etcd. It is longer than an election of a new leader takes.
	asking = 3 * time.Second
	// pause is how long to wait before etcd is asked again that did not answer.
	pause = 500 * time.Millisecond
	// pinging is how long a connection may be silent before it is tested, and how long that may take.
	pinging = 2 * time.Second
)

// A Config says where etcd is, and how to use it.
type Config struct {
	Endpoints      []string    // HOST:PORT
	Prefix         string      // of all keys, such as "/pmnbd"
	TLS            *tls.Config // nil: none
	User, Password string      // "": no authentication but that of TLS
	// Lease is how long another initiator waits for one that is silent, from MinLease to MaxLease.
	Lease time.Duration
	// Standby has Join wait for an initiator that has the mirror. Without it Join fails.
	Standby bool
}

// An Etcd implements remote.Arbiter.
type Etcd struct {
	cfg    Config
	client *clientv3.Client
	host   string
	boot   uuid.UUID // of this host
}

// New makes an Etcd. It reaches nobody yet, unless there is a user.
func New(cfg Config) (*Etcd, error) {
	scheme := "http://"
	if cfg.TLS != nil {
		scheme = "https://"
	}
	var endpoints []string
	for _, e := range cfg.Endpoints {
		endpoints = append(endpoints, scheme+e)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: cfg.TLS, Username: cfg.User, Password: cfg.Password, Logger: zap.NewNop(),
		DialTimeout: asking, DialKeepAliveTime: pinging, DialKeepAliveTimeout: pinging,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{ // the usual pause grows to two minutes
			Backoff:           backoff.Config{BaseDelay: pause / 5, Multiplier: 1.6, Jitter: 0.2, MaxDelay: pause},
			MinConnectTimeout: asking,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("the client of etcd: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	boot, err := bootID()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tell which processes are of this boot: %w", err), client.Close())
	}
	return &Etcd{cfg, client, host, boot}, nil
}

// bootID is the id of this boot of the host.
func bootID() (uuid.UUID, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.ParseBytes(bytes.TrimSpace(b))
}

// Close ends the connections. All terms have ended.
func (e *Etcd) Close() error { return e.client.Close() }

// key returns a key of the mirror of set.
func (e *Etcd) key(set [16]byte, name string) string {
	return path.Join("/", e.cfg.Prefix, uuid.UUID(set).String(), name)
}

// final reports whether an error of etcd does not go away by itself.
func final(err error) bool {
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	switch code {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return errors.Is(err, errDocument)
}

// rest waits for pause, or until ctx ends.
func rest(ctx context.Context) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
