package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Wait waits until the guest has ended and returns the exit code of its command. If the guest
// ended before its command did, Wait returns an error with the end of the kernel's log.
func (m *Machine) Wait() (code int, err error) {
	<-m.done
	rc, err := os.ReadFile(filepath.Join(m.Out, "rc"))
	if err == nil {
		code, err = strconv.Atoi(strings.TrimSpace(string(rc)))
	}
	if err != nil {
		console, _ := m.console.next()
		return 0, fmt.Errorf("the guest died (%w); its console:\n%s", errors.Join(m.ended, err), console)
	}
	return code, nil
}

// WaitFor waits until the command has printed text. It returns an error if ctx ends, or the
// guest does.
func (m *Machine) WaitFor(ctx context.Context, text string) error {
	_, err := m.WaitBehind(ctx, 0, text)
	return err
}

// WaitBehind is WaitFor for a text behind the first from bytes of Log. It returns where in Log the
// text ends.
func (m *Machine) WaitBehind(ctx context.Context, from int, text string) (end int, err error) {
	ended := false
	for {
		log, more := m.log.next()
		if i := strings.Index(log[from:], text); i >= 0 {
			return from + i + len(text), nil
		}
		if ended {
			_, err := m.Wait()
			return 0, errors.Join(fmt.Errorf("the guest ended without %q; the end of what it said:\n%s", text, log[max(from, len(log)-4096):]), err)
		}
		select {
		case <-more:
		case <-m.done:
			ended = true // one more look: the log is complete now
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for %q: %w", text, context.Cause(ctx))
		}
	}
}

// Log returns what the command has printed.
func (m *Machine) Log() string {
	log, _ := m.log.next()
	return log
}

const (
	// monitor is QEMU's control socket, in Out.
	monitor = "qmp"
	// confession is how long a guest that was too slow may take to print its backtraces.
	confession = 15 * time.Second
)

// interrogate ends a guest that takes too long. A non-maskable interrupt makes its kernel panic
// and print what each CPU was doing. If QEMU does not listen, interrogate kills it.
func (m *Machine) interrogate() error {
	conn, err := net.DialTimeout("unix", filepath.Join(m.Out, monitor), time.Second)
	if err != nil {
		return m.cmd.Process.Kill()
	}
	defer conn.Close() //nolint:errcheck // the socket ends with QEMU anyway
	_, err = io.WriteString(conn, `{"execute":"qmp_capabilities"}{"execute":"inject-nmi"}`)
	_ = conn.SetReadDeadline(time.Now().Add(confession))
	_, _ = io.Copy(io.Discard, conn) // until QEMU ends: it drops the commands of a monitor that has closed
	return err
}

// Kill cuts the power and returns when the guest is gone.
func (m *Machine) Kill() {
	_ = m.cmd.Process.Kill() // it fails if the guest has ended, which is fine
	<-m.done
}

// Close kills the guest if it still runs, and removes Out.
func (m *Machine) Close() {
	m.Kill()
	m.cancel(nil)
	_ = os.RemoveAll(m.Out) // our own temporary directory
}

// A journal collects what a guest prints while others read it.
type journal struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{} // closed by the next Write, if somebody waits
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wrote != nil {
		close(j.wrote)
		j.wrote = nil
	}
	return j.buf.Write(p)
}

// ReadFrom implements io.ReaderFrom.
func (j *journal) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{j}, r)
}

// next returns what was written so far, and a channel that closes when there is more.
func (j *journal) next() (string, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wrote == nil {
		j.wrote = make(chan struct{})
	}
	return j.buf.String(), j.wrote
}
