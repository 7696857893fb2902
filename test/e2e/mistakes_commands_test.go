package e2e

// commandMistakes are mistakes with pmnbd status, reload, id and key.
var commandMistakes = []mistake{
	{
		name: "status: nobody", code: 1,
		line: "pmnbd status --control unix:{empty}/",
		says: "no pmnbd is running: looked at unix:{empty}/",
	},
	{
		name: "status: a missing export", code: 1,
		line: "pmnbd status none",
		says: `no pmnbd serves export "none": looked at {controls}`,
	},
	{
		name: "status: surplus words", code: 2,
		line: "pmnbd status good other",
		says: `"other" is one argument too many: give [NAME]`,
	},
	{
		name: "status: unknown flag", code: 2,
		line: "pmnbd status --yaml",
		says: "unknown flag: --yaml (flags here: …)",
	},
	{
		name: "status: a directory for a socket", code: 1,
		line: "pmnbd status --control unix:{home}/run",
		says: "{home}/run is a directory: write {controls}, with a / at its end, for the control sockets in it",
	},
	{
		name: "status: a file for a socket", code: 1,
		line: "pmnbd status --control unix:{data}",
		says: "{data} is not a socket",
	},
	{
		name: "status: another user's directory", code: 1, nobody: true,
		line: "pmnbd status --control unix:{rootonly}/",
		says: "look for control sockets: open {rootonly}: permission denied",
	},
	{
		name: "status: JSON and a check", code: 2,
		line: "pmnbd status --json --check",
		says: "--json and --check: use one of them",
	},
	{
		name: "status: a check and a watch", code: 2,
		line: "pmnbd status --check --watch",
		says: "--check and --watch: use one of them",
	},
	{
		name: "status: a watch without a pause", code: 2,
		line: "pmnbd status --watch=0s",
		says: "--watch=0s: use a duration, such as 2s",
	},
	{
		name: "status: a watch with a negative pause", code: 2,
		line: "pmnbd status --watch=-1s",
		says: "--watch=-1s: use a duration, such as 2s",
	},
	{
		name: "status: a watch without a unit", code: 2,
		line: "pmnbd status --watch=5",
		says: `--watch: "5" has no unit: use 5s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "status: a pause behind the watch", code: 2,
		line: "pmnbd status --watch 5s",
		says: `no pmnbd serves export "5s": looked at {controls}; if 5s is the pause, use --watch=5s`,
	},
	{
		name: "status: a watch of a number", code: 1,
		line: "pmnbd status --watch 0",
		says: `no pmnbd serves export "0": looked at {controls}`,
	},
	{
		name: "status: a check of a missing export", code: 2,
		line: "pmnbd status --check none",
		says: `no pmnbd serves export "none": looked at {controls}`,
	},
	{
		name: "status: a check of nobody", code: 2,
		line: "pmnbd status --check --control unix:{empty}/",
		says: "no pmnbd is running: looked at unix:{empty}/",
	},
	{
		name: "status: an empty control socket", code: 2,
		line: "pmnbd status --control=",
		says: `--control: "" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "reload: surplus words", code: 2,
		line: "pmnbd reload now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "reload: unknown flag", code: 2,
		line: "pmnbd reload --config {new}",
		says: "unknown flag: --config (flags here: …)",
	},
	{
		name: "reload: nothing to read again", code: 1,
		line: "pmnbd reload",
		says: "process …: there is nothing to read again: the process was started without --config and without --key-file",
	},
	{
		name: "reload: nobody", code: 1,
		line: "pmnbd reload --control unix:{empty}/",
		says: "no pmnbd is running: looked at unix:{empty}/",
	},
	{
		name: "reload: no control socket", code: 2,
		line: "pmnbd reload --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "reload: another process", code: 1,
		line: "pmnbd reload --pid 999999999",
		says: "no pmnbd has process id 999999999: looked at {controls}",
	},
	{
		name: "reload: process 0", code: 2,
		line: "pmnbd reload --pid 0",
		says: "--pid 0: use the number of a process",
	},
	{
		name: "reload: a negative process", code: 2,
		line: "pmnbd reload --pid -1",
		says: "--pid -1: use the number of a process",
	},
	{
		name: "reload: a process that is no number", code: 2,
		line: "pmnbd reload --pid me",
		says: `--pid: "me" is not a whole number`,
	},
	{
		name: "id: surplus words", code: 2,
		line: "pmnbd id me",
		says: `"me" is one argument too many: this command takes flags only`,
	},
	{
		name: "id: unknown flag", code: 2,
		line: "pmnbd id --json",
		says: "unknown flag: --json (flags here: …)",
	},
	{
		name: "id: an empty directory", code: 2,
		line: "pmnbd id --state-dir=",
		says: "--state-dir is empty: name a directory, or leave the flag out for …",
	},
	{
		name: "id: a file for a directory", code: 1,
		line: "pmnbd id --state-dir {data}",
		says: "the state directory: mkdir {data}: not a directory",
	},
	{
		name: "id: a directory with another id", code: 1,
		line: "pmnbd id --state-dir {badstate}",
		says: "{badstate}/initiator-id holds no UUID: remove it, and a new one is made",
	},
	{
		name: "id: another user's directory", code: 1, nobody: true,
		line: "pmnbd id --state-dir {rootonly}",
		says: "the state directory: open {rootonly}: permission denied",
	},
	{
		name: "key: no command", code: 2,
		line: "pmnbd key",
		says: "a command is missing: use show, or --help",
	},
	{
		name: "key: unknown command", code: 2,
		line: "pmnbd key new",
		says: `unknown command "new": use show, or --help`,
	},
	{
		name: "key show: no file named", code: 2,
		line: "pmnbd key show",
		says: "FILE is missing: give FILE",
	},
	{
		name: "key show: surplus words", code: 2,
		line: "pmnbd key show {keys} {keys}",
		says: `"{keys}" is one argument too many: give FILE`,
	},
	{
		name: "key show: no file", code: 1,
		line: "pmnbd key show {new}",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "key show: a directory", code: 1,
		line: "pmnbd key show {home}",
		says: "key file: {home} is a directory: name a file in it",
	},
	{
		name: "key show: a file that others read", code: 1,
		line: "pmnbd key show {openkeys}",
		says: "key file: {openkeys} has mode 0644, so others may know the keys: make new ones, with mode 0600",
	},
	{
		name: "key show: another user's file", code: 1, nobody: true,
		line: "pmnbd key show {keys}",
		says: "key file: open {keys}: permission denied",
	},
	{
		name: "key show: no keys", code: 1,
		line: "pmnbd key show {nokeys}",
		says: "key file: {nokeys} has no key: each line is INITIATOR-ID TARGET-NAME KEY, as pmnbd-target key new prints it",
	},
	{
		name: "key show: a short key", code: 1,
		line: "pmnbd key show {shortkey}",
		says: "key file: {shortkey}:1: the key has 2 bytes: use 32 or more, as pmnbd-target key new makes",
	},
	{
		name: "key show: a key that is none", code: 1,
		line: "pmnbd key show {badkey}",
		says: "key file: {badkey}:1: the key is not hexadecimal",
	},
	{
		name: "key show: an initiator that is none", code: 1,
		line: "pmnbd key show {badid}",
		says: "key file: {badid}:1: the first word is not the id of an initiator, a UUID",
	},
	{
		name: "key show: wrong words", code: 1,
		line: "pmnbd key show {wordkeys}",
		says: "key file: {wordkeys}:1: the number of words is 4: use INITIATOR-ID TARGET-NAME KEY",
	},
	{
		name: "key show: a file that is no key file", code: 1,
		line: "pmnbd key show {data}",
		says: "key file: {data} has more than 1048576 bytes",
	},
}
