package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Play sends a recording to addr as a client would, and returns what was answered
// when the server has closed. A server may have enough of it at any time: that is no
// error.
func Play(ctx context.Context, addr string, recording []byte) (answer []byte, err error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("play a recording: %w", err)
	}
	defer func() { err = errors.Join(err, nc.Close()) }()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = nc.Write(recording) // it may be cut off
		_ = nc.(*net.TCPConn).CloseWrite()
	}()
	answer, _ = io.ReadAll(nc) // to the end, or a reset: both are one
	_ = nc.SetDeadline(time.Unix(1, 0))
	<-sent
	return answer, ctx.Err()
}
