// Command pmnbd-target is the target: it keeps regions of memory and lets
// initiators (pmnbd) write to them by RDMA.
package main

import (
	"io"
	"os"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/version"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const help = `pmnbd-target keeps regions of memory and lets initiators (pmnbd) write to them by RDMA.

Usage:
  pmnbd-target serve --listen iwarp://HOST:PORT --region NAME=PATH[,size=SIZE] [--region …]
  pmnbd-target status [--json]
  pmnbd-target region create NAME PATH [--size SIZE] [--force]
  pmnbd-target region inspect PATH [--json]
  pmnbd-target region list DIR…
  pmnbd-target region remove PATH [--force]
  pmnbd-target region clear PATH --reason TEXT
  pmnbd-target inspect-platform [--config FILE] [--json]

serve     serves regions until SIGTERM. Prints "ready" and its addresses when it does.
status    shows the regions being served here, and how they are.
region    makes regions, finds and shows them, removes them, and gives failed ones back to service.
inspect-platform
          shows memory, adapters and nodes, and which durability methods follow for each region.

Two commands to try it without any hardware:
  pmnbd-target serve --listen iwarp://127.0.0.1:7204 --region log=/dev/shm/log,size=1G --allow-volatile
  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/tmp/log.sock --allow-volatile

"pmnbd-target COMMAND --help" explains a command, "pmnbd-target --version" shows what was built. Exit codes: 0 done, 1 it could not be done, 2 not understood.
`

// run dispatches a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	var err error
	switch command {
	case "serve":
		return runServe(args, stdout, stderr)
	case "status":
		return runStatus(args, stdout, stderr)
	case "region":
		return runRegion(args, stdout, stderr)
	case "inspect-platform":
		return runInspectPlatform(args, stdout, stderr)
	case "help", "--help", "-h":
		_, err = io.WriteString(stdout, help)
	case "version", "--version", "-V":
		_, err = io.WriteString(stdout, version.String("pmnbd-target"))
	case "":
		err = flags.Usagef("a command is missing: use serve, status, region or inspect-platform, or --help")
	default:
		err = flags.Usagef("unknown command %q: use serve, status, region or inspect-platform, or --help", command)
	}
	return flags.Exit(stderr, "pmnbd-target", err)
}
