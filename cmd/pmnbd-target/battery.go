package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/plain"
	"pmnbd/persist/target"
)

const (
	// batteryAnswers is how long the command of --battery-command may take.
	batteryAnswers = 5 * time.Second
	// maxBattery bounds what it may print, in bytes. upsc prints about 2 KiB.
	maxBattery = 64 << 10
	// maxRuntime bounds battery.runtime. A larger number is no time.
	maxRuntime = 365 * 24 * time.Hour
)

// A batteryCommand is the program that prints how the UPS is, with its arguments. The zero one is
// none.
type batteryCommand struct{ words []string }

// UnmarshalText reads a command line of words between spaces. No shell reads it.
func (b *batteryCommand) UnmarshalText(text []byte) error {
	if b.words = strings.Fields(string(text)); len(b.words) == 0 {
		return flags.Usagef("it names no command: use one such as 'upsc ups@localhost'")
	}
	return nil
}

// asks returns what asks the battery, nil if there is no command.
func (b *batteryCommand) asks() func(context.Context) (target.Battery, error) {
	if b.words == nil {
		return nil
	}
	return b.ask
}

// ask runs the command and reads what it prints.
func (b *batteryCommand) ask(ctx context.Context) (target.Battery, error) {
	ctx, cancel := context.WithTimeout(ctx, batteryAnswers)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.words[0], b.words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // a script's children, too
	cmd.WaitDelay = time.Second                                                          // one of them may hold the pipe
	said, complained := bounded{left: maxBattery}, bounded{left: 1 << 10}
	cmd.Stdout, cmd.Stderr = &said, &complained
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return target.Battery{}, fmt.Errorf("%s took more than %v", b.words[0], batteryAnswers)
	case errors.As(err, &exit):
		return target.Battery{}, fmt.Errorf("%s: %w: %s", b.words[0], err, plain.Text(strings.TrimSpace(complained.kept.String())))
	case err != nil:
		return target.Battery{}, err
	case said.more:
		return target.Battery{}, fmt.Errorf("%s printed more than %d bytes", b.words[0], maxBattery)
	}
	return parseBattery(said.kept.String())
}

// A bounded keeps the first bytes that it is given, and takes the rest. It embeds no Buffer, whose
// ReadFrom would keep everything.
type bounded struct {
	kept bytes.Buffer
	left int
	more bool
}

// Write implements io.Writer. It never fails: the command would end by a signal then.
func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.more = b.more || n < len(p)
	b.left -= n
	b.kept.Write(p[:n])
	return len(p), nil
}

// weakStatus are the words of NUT's ups.status with which a UPS says that it may not carry the
// host for long: low battery, forced shutdown, off, and a bypass around the battery.
var weakStatus = []string{"LB", "FSD", "OFF", "BYPASS"}

// parseBattery reads what upsc prints: lines "ups.status: OL CHRG" and "battery.runtime: 1234",
// the latter in seconds, among others. Of several UPSs in one text the worst counts, and one of them that says no
// time may last for none.
func parseBattery(text string) (b target.Battery, err error) {
	statuses, runtimes := 0, 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ups.status":
			words := strings.Fields(value)
			on, off := slices.Contains(words, "OB"), slices.Contains(words, "OL")
			weak := slices.IndexFunc(words, func(w string) bool { return slices.Contains(weakStatus, w) })
			if !on && !off && weak < 0 {
				return target.Battery{}, fmt.Errorf("ups.status is %s: neither OL (on line) nor OB (on battery)", plain.Text(strconv.Quote(value)))
			}
			statuses++
			b.OnBattery = b.OnBattery || on
			if weak >= 0 {
				b.Weak = words[weak]
			}
		case "battery.runtime":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > maxRuntime.Seconds() {
				return target.Battery{}, fmt.Errorf("battery.runtime is %s: not a number of seconds", plain.Text(strconv.Quote(value)))
			}
			runtimes++
			left := time.Duration(seconds * float64(time.Second))
			if !b.Known || left < b.Runtime {
				b.Runtime, b.Known = left, true
			}
		}
	}
	if runtimes < statuses {
		b.Runtime, b.Known = 0, false
	}
	if statuses == 0 {
		return target.Battery{}, errors.New("it prints no line ups.status: OL (on line) or OB (on battery)")
	}
	return b, nil
}
