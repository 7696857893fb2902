package main

import (
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
)

const keyHelp = `Makes and shows keys. An initiator and a target share a key, with which they prove themselves to each other:
docs/security.md.

Usage:
  pmnbd-target key new --initiator ID [--target NAME]
  pmnbd-target key show FILE

new       makes a key and prints its line, for the key files of both ends.
show      shows which initiator and target share each key, and its fingerprint.
`

var keyCommand = command.Command{
	Name: "key", Help: keyHelp,
	Commands: []command.Command{
		{Name: "new", Help: keyfile.NewHelp, Run: func(call *command.Call) error {
			return keyfile.New(call, (&config{}).name)
		}},
		keyfile.ShowCommand(program),
	},
}

// name returns the name of this target: the host's, unless the operator gave another one.
func (c *config) name() (string, error) {
	if c.Name != "" {
		return c.Name, nil
	}
	host, err := os.Hostname()
	if err == nil {
		err = wire.CheckTarget(host)
	}
	if err != nil {
		return "", fmt.Errorf("the host's name cannot be the target's: %w: name the target", err)
	}
	return host, nil
}

// readKeys reads the keys that initiators share with this target. It warns of those of other
// targets: whoever breaks into this host can then act as those, too.
func readKeys(c *config, log *zap.Logger) (target.Keys, error) {
	f, err := keyfile.Read(c.KeyFile)
	if err != nil {
		return nil, err
	}
	keys := f.OfTarget(c.Name)
	if len(keys) == 0 {
		return nil, fmt.Errorf("key file: %s has no key of target %s, but of %s: name this target with --name, or make a key with pmnbd-target key new",
			c.KeyFile, c.Name, strings.Join(f.Targets(), ", "))
	}
	if names := f.Targets(); len(names) > 1 {
		log.Warn("the key file has keys of other targets: if this host is no initiator that needs them, remove them, since they let it pose as those targets",
			zap.String("file", c.KeyFile), zap.String("name", c.Name), zap.Strings("targets", names))
	}
	return keys, nil
}
