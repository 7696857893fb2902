package e2e

// targetCommandMistakes are mistakes with the other commands of pmnbd-target.
var targetCommandMistakes = []mistake{
	{
		name: "platform: unknown flag", code: 2,
		line: "pmnbd-target inspect-platform --yaml",
		says: "unknown flag: --yaml (flags here: …)",
	},
	{
		name: "target status: surplus words", code: 2,
		line: "pmnbd-target status r",
		says: `"r" is one argument too many: this command takes flags only`,
	},
	{
		name: "target status: nobody", code: 1,
		line: "pmnbd-target status --control unix:{empty}/",
		says: "no pmnbd-target is running: looked at unix:{empty}/",
	},
	{
		name: "target status: unknown flag", code: 2,
		line: "pmnbd-target status --watch",
		says: "unknown flag: --watch (flags here: …)",
	},
	{
		name: "target status: JSON and a check", code: 2,
		line: "pmnbd-target status --json --check",
		says: "--json and --check: use one of them",
	},
	{
		name: "target status: a check of nobody", code: 2,
		line: "pmnbd-target status --check --control unix:{empty}/",
		says: "no pmnbd-target is running: looked at unix:{empty}/",
	},
	{
		name: "target status: no control socket", code: 2,
		line: "pmnbd-target status --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "target status: another user's directory", code: 1, nobody: true,
		line: "pmnbd-target status --control unix:{rootonly}/",
		says: "look for control sockets: open {rootonly}: permission denied",
	},
	{
		name: "target reload: surplus words", code: 2,
		line: "pmnbd-target reload now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "target reload: nothing to read again", code: 1,
		line: "pmnbd-target reload",
		says: "process …: there is nothing to read again: the process was started without --config and without --key-file",
	},
	{
		name: "target reload: nobody", code: 1,
		line: "pmnbd-target reload --control unix:{empty}/",
		says: "no pmnbd-target is running: looked at unix:{empty}/",
	},
	{
		name: "target reload: another process", code: 1,
		line: "pmnbd-target reload --pid 999999999",
		says: "no pmnbd-target has process id 999999999: looked at {controls}",
	},
	{
		name: "target reload: process 0", code: 2,
		line: "pmnbd-target reload --pid 0",
		says: "--pid 0: use the number of a process",
	},
	{
		name: "save: surplus words", code: 2,
		line: "pmnbd-target save now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "save: unknown flag", code: 2,
		line: "pmnbd-target save --region good",
		says: "unknown flag: --region (flags here: …)",
	},
	{
		name: "save: nobody", code: 1,
		line: "pmnbd-target save --control unix:{empty}/",
		says: "no pmnbd-target is running: looked at unix:{empty}/",
	},
	{
		name: "save: no control socket", code: 2,
		line: "pmnbd-target save --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "save: no file", code: 1,
		line: "pmnbd-target save --config {new}",
		says: "configuration: open {new}: no such file or directory",
	},
	{
		name: "save: a directory", code: 1,
		line: "pmnbd-target save --config {home}",
		says: "configuration: read {home}: is a directory",
	},
	{
		name: "save: a file with a mistake", code: 2,
		line: "pmnbd-target save --config {toml:listen = [}",
		says: "{toml}:1: array is incomplete",
	},
	{
		name: "resume: surplus words", code: 2,
		line: "pmnbd-target resume now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "resume: unknown flag", code: 2,
		line: "pmnbd-target resume --config {new}",
		says: "unknown flag: --config (flags here: …)",
	},
	{
		name: "resume: nobody", code: 1,
		line: "pmnbd-target resume --control unix:{empty}/",
		says: "no pmnbd-target is running: looked at unix:{empty}/",
	},
	{
		name: "resume: nothing to resume", code: 1,
		line: "pmnbd-target resume",
		says: "process …: nothing to resume: the target grants sessions, unless status says why not",
	},
	{
		name: "platform: surplus words", code: 2,
		line: "pmnbd-target inspect-platform now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "platform: a region without a path", code: 2,
		line: "pmnbd-target inspect-platform --region r",
		says: `--region: region "r": use NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted]`,
	},
	{
		name: "platform: no file", code: 1,
		line: "pmnbd-target inspect-platform --config {new}",
		says: "configuration: open {new}: no such file or directory",
	},
	{
		name: "platform: an unknown key", code: 2,
		line: "pmnbd-target inspect-platform --config {toml:alow-volatile = true}",
		says: `{toml}:1: unknown key "alow-volatile": docs/configuration.md has all of them`,
	},
	{
		name: "target key: no command", code: 2,
		line: "pmnbd-target key",
		says: "a command is missing: use new or show, or --help",
	},
	{
		name: "target key: unknown command", code: 2,
		line: "pmnbd-target key make",
		says: `unknown command "make": use new or show, or --help`,
	},
	{
		name: "target key new: no initiator", code: 2,
		line: "pmnbd-target key new",
		says: "--initiator is missing: give the id of the initiator, which pmnbd id prints on its host",
	},
	{
		name: "target key new: an initiator that is none", code: 2,
		line: "pmnbd-target key new --initiator me",
		says: `--initiator "me" is not the id of an initiator: use a UUID, as pmnbd id prints it`,
	},
	{
		name: "target key new: an empty initiator", code: 2,
		line: "pmnbd-target key new --initiator=",
		says: "--initiator is empty: give it a value, or leave the flag out",
	},
	{
		name: "target key new: an invalid target", code: 2,
		line: "pmnbd-target key new --initiator {id} --target p:m",
		says: `--target: "p:m" is no target's name: use letters, digits, dots, hyphens and underscores`,
	},
	{
		name: "target key new: surplus words", code: 2,
		line: "pmnbd-target key new {id}",
		says: `"{id}" is one argument too many: this command takes flags only`,
	},
	{
		name: "target key show: no file named", code: 2,
		line: "pmnbd-target key show",
		says: "FILE is missing: give FILE",
	},
	{
		name: "target key show: no file", code: 1,
		line: "pmnbd-target key show {new}",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "target key show: a file that others read", code: 1,
		line: "pmnbd-target key show {openkeys}",
		says: "key file: {openkeys} has mode 0644, so others may know the keys: make new ones, with mode 0600",
	},
	{
		name: "target status: a control socket of the other program", code: 1,
		line: "pmnbd-target status --control {mirrors}",
		says: "no pmnbd-target is running: looked at {mirrors}",
	},
}
