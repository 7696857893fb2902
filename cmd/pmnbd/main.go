// Command pmnbd is the initiator: an NBD server whose storage is a region of
// memory at a target (pmnbd-target), reached by RDMA.
package main

import (
	"io"
	"os"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/version"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const help = `pmnbd is a network block device on persistent memory in another machine.

Usage:
  pmnbd serve --target iwarp://HOST:PORT/REGION --listen unix:/PATH|tcp:HOST:PORT
  pmnbd status [NAME] [--json]
  pmnbd attach [EXPORT|URI] /dev/nbdX
  pmnbd detach /dev/nbdX

serve     opens the region and serves it to NBD clients until SIGTERM. Prints "ready" and its URIs when it does.
status    shows what is being served here, and how it is.
attach    makes a block device of an export that is served here.
detach    takes it away again.

Two commands to try it without any hardware:
  pmnbd-target serve --listen iwarp://127.0.0.1:7204 --region log=/dev/shm/log,size=1G --allow-volatile
  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/tmp/log.sock --allow-volatile

"pmnbd COMMAND --help" explains a command, "pmnbd --version" shows what was built. Exit codes: 0 done, 1 it could not be done, 2 not understood,
3 serve needs --accept-loss.
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
		return flags.Exit(stderr, "pmnbd status", showStatus(args, stdout))
	case "attach":
		return flags.Exit(stderr, "pmnbd attach", attach(args, stdout, stderr))
	case "detach":
		return flags.Exit(stderr, "pmnbd detach", detach(args, stdout))
	case "help", "--help", "-h":
		_, err = io.WriteString(stdout, help)
	case "version", "--version", "-V":
		_, err = io.WriteString(stdout, version.String("pmnbd"))
	case "":
		err = flags.Usagef("a command is missing: use serve, status, attach or detach, or --help")
	default:
		err = flags.Usagef("unknown command %q: use serve, status, attach or detach, or --help", command)
	}
	return flags.Exit(stderr, "pmnbd", err)
}
