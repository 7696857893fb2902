package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Play sends a recording to addr as a client would. It returns what the server sent until the
// server closed. The server may cut the recording short at any time; that is no error.
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
		_, _ = nc.Write(recording) // the server may close early
		_ = nc.(*net.TCPConn).CloseWrite()
	}()
	answer, _ = io.ReadAll(nc) // the end of the stream and a reset count the same
	_ = nc.SetDeadline(time.Unix(1, 0))
	<-sent
	return answer, ctx.Err()
}
