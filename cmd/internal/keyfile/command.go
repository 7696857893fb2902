package keyfile

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/wire"
)

const showHelp = `Shows what is in a key file: which initiator and target share each key, and the key's fingerprint. The
fingerprint is the same at both ends, and tells nothing of the key. Log lines and status show it, too.

Usage:
  %[1]s key show FILE

  %[1]s key show /etc/pmnbd/keys
`

// ShowCommand returns the command "key show" of a program.
func ShowCommand(program string) command.Command {
	return command.Command{Name: "show", Help: fmt.Sprintf(showHelp, program), Run: show}
}

func show(call *command.Call) error {
	if err := call.Parse("FILE"); err != nil {
		return err
	}
	f, err := Read(call.Flags.Arg(0))
	if err != nil {
		return err
	}
	_, err = io.WriteString(call.Stdout, f.text())
	return err
}

// text shows f without its keys.
func (f File) text() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "INITIATOR\tTARGET\tFINGERPRINT") // neither a tabwriter nor a Builder fails
	for _, l := range f {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", uuid.UUID(l.Initiator), l.Target, l.Key.Fingerprint(l.Ends))
	}
	_ = w.Flush()
	return out.String()
}

// NewHelp is the help of "pmnbd-target key new".
const NewHelp = `Makes a key that one initiator and one target share, and prints its line: it goes into the key files of both.
Nobody else may see it.

Usage:
  pmnbd-target key new --initiator ID [--target NAME]

  umask 077
  pmnbd-target key new --initiator 6f9619ff-8b86-d011-b42d-00c04fc964ff --target pm1 >> /etc/pmnbd/keys
`

// New runs "pmnbd-target key new". name returns the name of the target that runs on this host.
func New(call *command.Call, name func() (string, error)) error {
	id := call.Flags.String("initiator", "", "the `ID` of the initiator, which pmnbd id prints on its host")
	target := call.Flags.String("target", "", "the `NAME` of the target, as --name of pmnbd-target serve (default the host's name)")
	err := call.Parse()
	if err != nil {
		return err
	}
	if *id == "" {
		return flags.Usagef("--initiator is missing: give the id of the initiator, which pmnbd id prints on its host")
	}
	u, err := uuid.Parse(*id)
	if err != nil || u == uuid.Nil {
		return flags.Usagef("--initiator %q is not the id of an initiator: use a UUID, as pmnbd id prints it", *id)
	}
	if *target == "" {
		if *target, err = name(); err != nil {
			return err
		}
	}
	if err := wire.CheckTarget(*target); err != nil {
		return flags.Usagef("--target: %v", err)
	}
	var key [wire.MinKey]byte
	if _, err := rand.Read(key[:]); err != nil {
		return fmt.Errorf("draw a key: %w", err)
	}
	_, err = fmt.Fprintln(call.Stdout, u, *target, hex.EncodeToString(key[:]))
	return err
}
