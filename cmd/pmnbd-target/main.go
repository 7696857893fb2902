// Command pmnbd-target is the target: it keeps regions of memory and lets
// initiators (pmnbd) write to them by RDMA.
package main

import (
	"fmt"
	"io"
	"os"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/reload"
	"pmnbd/persist/region"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

var root = command.Command{
	Name: program, Formats: fmt.Sprintf("region %d", region.Version),
	Help: `pmnbd-target keeps regions of memory and lets initiators (pmnbd) write to them by RDMA.

Usage:
  pmnbd-target serve --listen iwarp://HOST:PORT --region NAME=PATH[,size=SIZE] [--region …]
  pmnbd-target status [--json]
  pmnbd-target reload
  pmnbd-target save [--config FILE]
  pmnbd-target resume
  pmnbd-target region create NAME PATH [--size SIZE] [--force]
  pmnbd-target region inspect PATH [--json]
  pmnbd-target region list DIR…
  pmnbd-target region remove PATH [--force]
  pmnbd-target region clear PATH --reason TEXT
  pmnbd-target inspect-platform [--config FILE] [--json]
  pmnbd-target key new --initiator ID [--target NAME]
  pmnbd-target key show FILE

serve     serves regions until SIGTERM. Prints "ready" and its addresses once it serves.
status    shows the regions that are served on this machine, and their state.
reload    has a pmnbd-target that serves read its file and its keys again.
save      writes regions of class protected to their images, before the power goes.
resume    has a pmnbd-target serve them again after a save.
region    makes regions, finds and shows them, removes them, and returns failed ones to service.
inspect-platform
          shows memory, adapters and nodes, and which durability methods each region can have.
key       makes and shows the keys that initiators and targets share.

Two commands to try it without special hardware:
  pmnbd-target serve --listen iwarp://127.0.0.1:7204 --region log=/dev/shm/log,size=1G --allow-volatile
  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/tmp/log.sock --allow-volatile

"pmnbd-target COMMAND --help" explains a command, "pmnbd-target --version" shows what was built. Exit codes: 0 done, 1 failed, 2 a mistake on the command
line or in the configuration file.
`,
	Commands: []command.Command{
		{Name: "serve", Help: serveHelp, Run: serve},
		{Name: "status", Help: statusHelp, Run: showStatus},
		{Name: "reload", Help: reloadHelp, Run: func(call *command.Call) error { return reload.Run(call, program) }},
		{Name: "save", Help: saveHelp, Run: saveRegions},
		{Name: "resume", Help: resumeHelp, Run: resumeRegions},
		regionCommand,
		{Name: "inspect-platform", Help: inspectPlatformHelp, Run: inspectPlatform},
		keyCommand,
	},
}

// run runs a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int { return root.Main(args, stdout, stderr) }
