package daemon

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// Ready prints the line that tells scripts that clients can connect, with the addresses
// actually bound, and calls Started.
func Ready(log *zap.Logger, stdout io.Writer, uris []string, status string) error {
	_, err := fmt.Fprintf(stdout, "ready %s\n", strings.Join(uris, " "))
	Started(log, status)
	return err
}

// Started tells systemd that the service has started, with status for people.
func Started(log *zap.Logger, status string) { notify(log, daemon.SdNotifyReady, "STATUS="+status) }

// Waiting tells systemd what a service that has not started waits for.
func Waiting(log *zap.Logger, status string) { notify(log, "STATUS="+status) }

// stopMargin is how long the process takes to end, apart from draining.
const stopMargin = 5 * time.Second

// Stopping tells systemd that the process is ending and may need drain for that. systemd then
// waits that long, if its own timeout is shorter (sd_notify(3), EXTEND_TIMEOUT_USEC).
func Stopping(log *zap.Logger, drain time.Duration) {
	notify(log, daemon.SdNotifyStopping, "STATUS=ending", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (drain+stopMargin).Microseconds()))
}

// notify tells systemd, if it started us with Type=notify. The daemon serves its clients even
// if systemd cannot be told.
func notify(log *zap.Logger, state ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(state, "\n")); err != nil {
		log.Warn("systemd cannot be told", zap.String("state", state[0]), zap.Error(err))
	}
}
