// Command pmnbd is the initiator: an NBD server whose storage is a region of
// memory at a target (pmnbd-target), reached by RDMA.
package main

import (
	"fmt"
	"io"
	"os"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/cmd/internal/reload"
	"pmnbd/cmd/pmnbd/internal/report"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

var root = command.Command{
	Name: report.Program, Formats: fmt.Sprintf("window file %d", remote.WindowVersion),
	Help: `pmnbd is a network block device on persistent memory in another machine.

Usage:
  pmnbd serve --target iwarp://HOST:PORT/REGION --listen unix:/PATH|tcp:HOST:PORT
  pmnbd status [NAME] [--json]
  pmnbd reload
  pmnbd mirror create|status|verify|add|remove|replace|set|discard|forget
  pmnbd attach [EXPORT|URI] /dev/nbdX
  pmnbd attach --ublk [EXPORT] [/dev/ublkbN]
  pmnbd detach /dev/nbdX|/dev/ublkbN
  pmnbd id
  pmnbd key show FILE

serve     opens regions and serves them to NBD clients until SIGTERM. Prints "ready" and the URIs once it serves.
status    shows the exports that are served on this machine, and their state.
reload    has a pmnbd that serves read its file and its keys again.
mirror    makes regions of several targets one device with several copies, shows such a device, and changes it.
attach    makes a block device of an export that is served on this machine.
detach    takes the block device away again.
id        prints the id of this initiator.
key       shows the keys that this initiator and targets share.

Two commands to try it without special hardware:
  pmnbd-target serve --listen iwarp://127.0.0.1:7204 --region log=/dev/shm/log,size=1G --allow-volatile
  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/tmp/log.sock --allow-volatile

"pmnbd COMMAND --help" explains a command, "pmnbd --version" shows what was built. Exit codes: 0 done, 1 failed, 2 a mistake on the command line,
3 going on would lose data: a person has to decide (docs/durability.md, docs/mirror.md).
`,
	Commands: []command.Command{
		{Name: "serve", Help: serveHelp, Run: serve},
		{Name: "status", Help: statusHelp, Run: showStatus},
		{Name: "reload", Help: reloadHelp, Run: func(call *command.Call) error { return reload.Run(call, report.Program) }},
		{Name: "mirror", Help: mirrorHelp, Commands: []command.Command{
			{Name: "create", Help: mirrorCreateHelp, Run: createMirror},
			{Name: "status", Help: mirrorStatusHelp, Run: mirrorStatus},
			{Name: "verify", Help: mirrorVerifyHelp, Run: verifyMirror},
			{Name: "add", Help: mirrorAddHelp, Run: addMember},
			{Name: "remove", Help: mirrorRemoveHelp, Run: removeMember},
			{Name: "replace", Help: mirrorReplaceHelp, Run: replaceMember},
			{Name: "set", Help: mirrorSetHelp, Run: setMirror},
			{Name: "discard", Help: mirrorDiscardHelp, Run: discardMember},
			{Name: "forget", Help: mirrorForgetHelp, Run: forgetMirror},
		}},
		{Name: "attach", Help: attachHelp, Run: runAttach},
		{Name: "detach", Help: detachHelp, Run: runDetach},
		{Name: "id", Help: idHelp, Run: showID},
		{Name: "key", Help: keyHelp, Commands: []command.Command{keyfile.ShowCommand(report.Program)}},
	},
}

// run runs a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int { return root.Main(args, stdout, stderr) }
