package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/plain"
	"pmnbd/ublk"
)

// A ublkSpec is what --ublk says: an export, and the block device that it is, too.
type ublkSpec struct {
	export string // "": the only one
	number int
}

// parseUblk reads [EXPORT=]/dev/ublkbN.
func parseUblk(arg string) (s ublkSpec, err error) {
	path := arg
	if i := strings.LastIndex(arg, "="); i >= 0 {
		s.export, path = arg[:i], arg[i+1:]
	}
	if s.number, err = parseUblkDevice(path); err != nil {
		return s, flags.Usagef("--ublk %s: %v", arg, err)
	}
	return s, nil
}

// ublkPrefix begins the path of a ublk block device.
const ublkPrefix = "/dev/ublkb"

// parseUblkDevice returns the N of /dev/ublkbN.
func parseUblkDevice(path string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(path, ublkPrefix), 10, 20) // a minor number
	if err != nil || path != ublk.Path(int(n)) {
		return 0, fmt.Errorf("%q is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …", path)
	}
	return int(n), nil
}

// checkUblk pairs every --ublk with its export.
func (c *config) checkUblk(args []string) error {
	for _, arg := range args {
		s, err := parseUblk(arg)
		if err != nil {
			return err
		}
		switch {
		case s.export == "" && len(c.exports) > 1:
			return flags.Usagef("--ublk %s: say which of the exports, EXPORT=%s", arg, arg)
		case s.export == "":
			s.export = c.exports[0].name
		case !slices.ContainsFunc(c.exports, func(e exportSpec) bool { return e.name == s.export }):
			return flags.Usagef("--ublk %s: no export is called %q", arg, s.export)
		}
		if slices.ContainsFunc(c.ublk, func(o ublkSpec) bool { return o.number == s.number }) {
			return flags.Usagef("--ublk %s: the device is given twice", arg)
		}
		if i := slices.IndexFunc(c.ublk, func(o ublkSpec) bool { return o.export == s.export }); i >= 0 {
			return flags.Usagef("--ublk %s: export %q is to be %s already, and can be one ublk device only", arg, s.export, ublk.Path(c.ublk[i].number))
		}
		c.ublk = append(c.ublk, s)
	}
	return nil
}

// The identity that the kernel keeps of a block device: ublkMark in the upper 16 bits says that a
// pmnbd made it, and the rest stands for the region, or the mirror, and its lineage.
const (
	ublkMark      = 0x706d
	ublkMarkShift = 48
)

// ublkIdentity is the identity of a block device of an export. As long as the lineage stays, no acknowledged
// write can have been lost and nobody else can have had the region, so a pmnbd may go on with the block device.
// It is the same for every member of a mirror: the next start may find another one in sync.
func ublkIdentity(shot *remote.Snapshot) uint64 {
	device, lineage := shot.DeviceUUID(), shot.Lineage
	sum := sha256.Sum256(slices.Concat(device[:], lineage[:]))
	return ublkMark<<ublkMarkShift | binary.BigEndian.Uint64(sum[:])>>(64-ublkMarkShift)
}

// ours reports whether a pmnbd made a block device with that identity.
func ours(identity uint64) bool { return identity>>ublkMarkShift == ublkMark }

// ublkTimeout bounds how long a block device that begins waits for one that is ending, and for the process of
// the former server to end. Kernels older than 6.16 notice the end of a server whose queues were full only
// when its requests time out, which is 30 s later.
const ublkTimeout = 60 * time.Second

// openUblk makes the block device of an export, or continues it. The end of pmnbd cancels it, and waits for it.
func (s *initiator) openUblk(ctx context.Context, x *export, number int) (*ublk.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, ublkTimeout)
	defer cancel()
	stop, err := s.ublks.whileOpen(cancel)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.ublks.admit(ctx, x.name, number); err != nil {
		return nil, err
	}
	shot := x.dev.Snapshot()
	if shot.State != remote.StateOpen {
		return nil, fmt.Errorf("export %q is %s: the block device would wait for its target", x.name, shot.State)
	}
	cfg := ublk.Config{
		Device: x.dev, Number: number, ReadOnly: s.cfg.readOnly, Log: daemon.Slog(s.log),
		Identity: ublkIdentity(&shot),
	}
	if cfg.Recover, err = s.ublks.kernel.continues(x.name, number, cfg.Identity); err != nil {
		return nil, err
	}
	d, err := ublk.Open(ctx, cfg)
	if errors.Is(err, ublk.ErrHalf) {
		err = command.WithCode(fmt.Errorf("%w: let its users see it fail, with pmnbd detach --force, then start again", err), exitLoss)
	}
	if err != nil {
		return nil, err
	}
	return d, s.ublks.add(ublkDevice{d, x.name, make(chan struct{})})
}

// continueUblk continues a block device of this process whose server the kernel took for ended.
func (s *initiator) continueUblk(name string, number int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop, err := s.ublks.whileOpen(cancel)
	if err != nil {
		return err
	}
	defer stop()
	end, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	x := s.exportNamed(name)
	if x == nil || s.ublks.of(name) != "" {
		return nil // a reload has taken the export away, or somebody was faster
	}
	_, err = s.openUblk(ctx, x, number)
	return err
}

// exportNamed returns the export of that name, or nil.
func (s *initiator) exportNamed(name string) *export {
	for _, x := range s.exports() {
		if x.name == name {
			return x
		}
	}
	return nil
}

// beginUblks opens the block devices of --ublk, unless a signal comes first, which it returns.
func (s *initiator) beginUblks(signals <-chan os.Signal) (os.Signal, error) {
	begun := make(chan error, 1)
	go func() { begun <- s.beginUblk(context.Background()) }()
	select {
	case err := <-begun:
		return nil, err
	case sig := <-signals:
		return sig, nil // drain ends what has begun, and waits for what is beginning
	}
}

func (s *initiator) beginUblk(ctx context.Context) error {
	for _, spec := range s.cfg.ublk {
		x := s.exportNamed(spec.export)
		if x == nil {
			return fmt.Errorf("--ublk %s: no export is called %q any more", ublk.Path(spec.number), spec.export)
		}
		d, err := s.openUblk(ctx, x, spec.number)
		if err != nil {
			return fmt.Errorf("--ublk %s: %w", ublk.Path(spec.number), err)
		}
		x.uris = append(x.uris, d.Path())
	}
	return nil
}

// ublkPath is where the control socket takes the command of pmnbd attach --ublk.
const ublkPath = "/ublk"

// attachUblk runs that command: it says the path of the block device.
func (s *initiator) attachUblk(ctx context.Context, query url.Values, say func(any) error) error {
	name, device := query.Get("export"), query.Get("device")
	number := ublk.Any
	if device != "" {
		var err error
		if number, err = parseUblkDevice(device); err != nil {
			return err
		}
	}
	if !s.shown.serving() {
		return errors.New("it does not serve yet")
	}
	end, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	x := s.exportNamed(name)
	if x == nil {
		return fmt.Errorf("it serves no export %q", name)
	}
	d, err := s.openUblk(ctx, x, number)
	if err != nil {
		return err
	}
	return say(d.Path())
}

// runAttachUblk runs `pmnbd attach --ublk`: the pmnbd that serves the export makes the block device.
func runAttachUblk(call *command.Call, control *status.Place, args []string) error {
	device, name := "", ""
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "/dev/") {
		device, args = args[n-1], args[:n-1]
		if _, err := parseUblkDevice(device); err != nil {
			return flags.Usagef("%v; other devices are attached without --ublk", err)
		}
	}
	switch len(args) {
	case 0:
	case 1:
		name = args[0]
	default:
		_, err := parseUblkDevice(args[1])
		return flags.Usagef("%v", err)
	}
	socket, name, err := exportAt(control, name)
	if err != nil {
		return err
	}
	return status.Do(context.Background(), socket, ublkPath, url.Values{"export": {name}, "device": {device}}, func(line json.RawMessage) error {
		var path string
		if err := json.Unmarshal(line, &path); err != nil {
			return err
		}
		_, err := fmt.Fprintf(call.Stdout, "attached %s to %s\n", plain.Text(path), name)
		return err
	})
}

// exportAt finds the export of that name, or the only one, and the control socket of its process.
func exportAt(control *status.Place, name string) (socket, export string, err error) {
	found, unheard := findExports(context.Background(), control, name)
	starts := func(f status.Found[report.Document]) bool { return len(f.Document.Starting) > 0 }
	var names []string
	for _, f := range found {
		for i := range f.Document.Exports {
			socket = f.Socket
			names = append(names, f.Document.Exports[i].Name)
		}
	}
	switch {
	case len(names) == 0 && unheard == nil && !slices.ContainsFunc(found, starts):
		return "", "", errors.New("a reload removes the export: pmnbd status shows what it waits for")
	case len(names) == 0 && unheard == nil:
		return "", "", errors.New("the export does not serve yet: pmnbd status shows why")
	case len(names) == 0:
		return "", "", unheard
	case len(names) > 1:
		return "", "", fmt.Errorf("several could be meant, name one: %s", strings.Join(names, " "))
	case unheard != nil && name == "":
		return "", "", fmt.Errorf("name the export: it could be another than %s: %w", names[0], unheard)
	}
	return socket, names[0], nil
}
