package e2e

// commandMistakes are mistakes with the other commands.
var commandMistakes = []mistake{
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
		name: "status: nobody", code: 1,
		line: "pmnbd status --control unix:{empty}/",
		says: "no pmnbd is running: looked at unix:{empty}/",
	},
	{
		name: "status: a missing export", code: 1,
		line: "pmnbd status none",
		says: `no pmnbd serves export "none": looked at unix:{home}/run/`,
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
		says: "{home}/run is a directory: write unix:{home}/run/, with a / at its end, for the control sockets in it",
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
		name: "attach: no device", code: 2,
		line: "pmnbd attach",
		says: "/dev/nbdX is missing: give [EXPORT|URI] /dev/nbdX",
	},
	{
		name: "attach: surplus words", code: 2,
		line: "pmnbd attach good /dev/nbd0 now",
		says: `"now" is one argument too many: give [EXPORT|URI] [/dev/nbdX]`,
	},
	{
		name: "attach: no such device", code: 2,
		line: "pmnbd attach good /dev/sda",
		says: `"/dev/sda" is not an nbd device: use /dev/nbd0, /dev/nbd1, …`,
	},
	{
		name: "attach: a client's URI", code: 2,
		line: "pmnbd attach nbd://127.0.0.1/good /dev/nbd0",
		says: `"nbd://127.0.0.1/good" is not served here on a unix socket without TLS: give the name of an export, as pmnbd status shows it, or nbd+unix:///EXPORT?socket=PATH`,
	},
	{
		name: "attach: a URI without a socket", code: 2,
		line: "pmnbd attach nbd+unix:///good /dev/nbd0",
		says: `"nbd+unix:///good" is not the URI of a unix socket: use nbd+unix:///EXPORT?socket=PATH`,
	},
	{
		name: "attach: too many connections", code: 2,
		line: "pmnbd attach good /dev/nbd0 --connections 65",
		says: "--connections 65: use 1 to 64",
	},
	{
		name: "attach: a time without a unit", code: 2,
		line: "pmnbd attach good /dev/nbd0 --timeout 30",
		says: `--timeout: "30" has no unit: use 30s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "attach: a time in parts", code: 2,
		line: "pmnbd attach good /dev/nbd0 --timeout 1500ms",
		says: "--timeout 1.5s: use whole seconds, such as 10m",
	},
	{
		name: "attach: without root", code: 1, nobody: true,
		line: "pmnbd attach good /dev/nbd0",
		says: "/dev/nbd0: attaching and detaching block devices needs root: use sudo (…: permission denied)",
	},
	{
		name: "attach: no control socket", code: 2,
		line: "pmnbd attach good /dev/nbd0 --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "detach: no device", code: 2,
		line: "pmnbd detach",
		says: "/dev/nbdX|/dev/ublkbN is missing: give /dev/nbdX|/dev/ublkbN",
	},
	{
		name: "detach: no such device", code: 2,
		line: "pmnbd detach /dev/sda",
		says: `"/dev/sda" is not an nbd device: use /dev/nbd0, /dev/nbd1, …`,
	},
	{
		name: "detach: no time", code: 2,
		line: "pmnbd detach /dev/nbd0 --timeout 0s",
		says: "--timeout 0s: use a duration, such as 30s",
	},
	{
		name: "detach: a time without a unit", code: 2,
		line: "pmnbd detach /dev/nbd0 --timeout 30",
		says: `--timeout: "30" has no unit: use 30s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "detach: without root", code: 1, nobody: true,
		line: "pmnbd detach /dev/nbd0",
		says: "/dev/nbd0: attaching and detaching block devices needs root: use sudo (…: permission denied)",
	},
	{
		name: "bench: no target", code: 2,
		line: "pmnbd-bench",
		says: "no target: use [LABEL=]nbd+unix:///NAME?socket=/PATH, [LABEL=]nbd://HOST:PORT/NAME or [LABEL=]disk:DIR",
	},
	{
		name: "bench: unknown flag", code: 2,
		line: "pmnbd-bench --rate 1s disk:{disk}",
		says: "unknown flag: --rate (flags here: …)",
	},
	{
		name: "bench: a time without a unit", code: 2,
		line: "pmnbd-bench --time 30 disk:{disk}",
		says: `--time: "30" has no unit: use 30s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "bench: a target of another kind", code: 2,
		line: "pmnbd-bench http://x",
		says: `"http://x" is not a target: use [LABEL=]nbd+unix:///NAME?socket=/PATH, [LABEL=]nbd://HOST:PORT/NAME or [LABEL=]disk:DIR`,
	},
	{
		name: "bench: a missing target", code: 1,
		line: "pmnbd-bench nbd+unix:///x?socket={home}/none",
		says: "nbd+unix:///x?socket={home}/none: dial unix {home}/none: connect: no such file or directory",
	},
	{
		name: "bench: a missing directory", code: 1,
		line: "pmnbd-bench disk:{new}",
		says: "disk:{new}: open {new}/pmnbd-bench-…: no such file or directory",
	},
	{
		name: "bench: a missing export", code: 1,
		line: "pmnbd-bench nbd+unix:///none?socket={goodsocket}",
		says: `nbd+unix:///none?socket={goodsocket}: negotiate for export "none": GO: refused by the server: ERR_UNKNOWN: there is no such export`,
	},
	{
		name: "bench: process ids for an unknown target", code: 2,
		line: "pmnbd-bench --pids x=1 disk:{disk}",
		says: "--pids x=1: use LABEL=PID[,PID...], with the label of a target",
	},
	{
		name: "bench: an invalid process", code: 2,
		line: "pmnbd-bench --pids a=1,x a=disk:{disk}",
		says: `--pids a=1,x: "x" is not the id of a process`,
	},
	{
		name: "bench compare: no place", code: 2,
		line: "pmnbd-bench compare",
		says: "PLACE is missing: give PLACE […]",
	},
	{
		name: "bench compare: a place of another kind", code: 2,
		line: "pmnbd-bench compare http://x",
		says: `"http://x" is neither an NBD URI (nbd://, nbd+unix://) nor a path`,
	},
	{
		name: "bench compare: a file", code: 2,
		line: "pmnbd-bench compare x={data}",
		says: "x: {data} is a file: give its directory, in which compare makes a file of its own",
	},
	{
		name: "bench compare: a missing directory", code: 1,
		line: "pmnbd-bench compare x={new}",
		says: "x: stat {new}: no such file or directory",
	},
	{
		name: "bench compare: a device to overwrite that is no place", code: 2,
		line: "pmnbd-bench compare --overwrite /dev/sdz {disk}",
		says: "--overwrite /dev/sdz: no place of this command line is that device",
	},
	{
		name: "bench methods: no target", code: 2,
		line: "pmnbd-bench methods",
		says: "TARGET is missing: give TARGET […]",
	},
	{
		name: "bench methods: a target of another kind", code: 2,
		line: "pmnbd-bench methods nbd://x/y",
		says: `"nbd://x/y" is not an address: use iwarp://HOST:PORT/REGION`,
	},
}
