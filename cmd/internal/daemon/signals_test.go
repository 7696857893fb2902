package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a child of TestSignals does with its signals is said by this variable.
const childOf = "PMNBD_TEST_SIGNALS"

func TestMain(m *testing.M) {
	if how := os.Getenv(childOf); how != "" {
		child(how)
		return
	}
	os.Exit(m.Run())
}

// child sends itself signals and tells, on standard output, what comes of them. Its
// standard error is a pipe that nobody reads.
func child(how string) {
	if how == "reload" {
		HoldReload()
	}
	signals, stop := Signals()
	defer stop()
	send := func(s syscall.Signal) { _ = syscall.Kill(syscall.Getpid(), s) }
	switch how {
	case "reload":
		send(syscall.SIGHUP) // no harm
		called := make(chan struct{})
		defer OnHangup(func(context.Context) { called <- struct{}{} })()
		for range 3 {
			send(syscall.SIGHUP)
			<-called
			fmt.Println("reload")
		}
	case "power":
		held := HoldPowerFailure()
		send(syscall.SIGPWR) // while the daemon still starts
		called := make(chan struct{})
		defer held.Take(func() { called <- struct{}{} })()
		<-called
		fmt.Println("saved")
	default:
		send(syscall.SIGHUP)
		if how == "hang up" {
			fmt.Println(<-signals)
		}
	}
	for range 2 {
		_, err := os.Stderr.WriteString("somebody there?\n")
		fmt.Println(err)
	}
	send(syscall.SIGTERM)
	fmt.Println(<-signals)
}

// TestSignals runs a process for each row, which signals would end.
func TestSignals(t *testing.T) {
	const broken = "write /dev/stderr: broken pipe\n"
	for how, want := range map[string]string{
		"hang up": "hangup\n" + broken + broken + "terminated\n",
		"nohup":   broken + broken + "terminated\n",
		"power":   "saved\n" + broken + broken + "terminated\n",
		"reload":  "reload\nreload\nreload\n" + broken + broken + "terminated\n",
	} {
		t.Run(how, func(t *testing.T) {
			if how == "hang up" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("SIGHUP is ignored here, which children inherit")
			}
			args := []string{os.Args[0]}
			if how == "nohup" {
				args = []string{"/bin/sh", "-c", `trap "" HUP; exec "$0"`, os.Args[0]}
			}
			r, w, err := os.Pipe()
			require.NoError(t, err)
			require.NoError(t, r.Close())
			var out strings.Builder
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), childOf+"="+how)
			cmd.Stdout, cmd.Stderr = &out, w
			require.NoError(t, cmd.Start())
			require.NoError(t, w.Close())
			late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			defer late.Stop()
			require.NoError(t, cmd.Wait(), out.String())
			require.Equal(t, want, out.String())
		})
	}
}
