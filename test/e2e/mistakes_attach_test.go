package e2e

// attachMistakes are mistakes with pmnbd attach and detach.
var attachMistakes = []mistake{
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
		name: "attach: no connection", code: 2,
		line: "pmnbd attach good /dev/nbd0 --connections 0",
		says: "--connections 0: use 1 to 64",
	},
	{
		name: "attach: connections, not a number", code: 2,
		line: "pmnbd attach good /dev/nbd0 --connections two",
		says: `--connections: "two" is not a whole number`,
	},
	{
		name: "attach: the device first", code: 2,
		line: "pmnbd attach /dev/nbd0 good",
		says: `"good" is not an nbd device: use /dev/nbd0, /dev/nbd1, …`,
	},
	{
		name: "attach: a device without a number", code: 2,
		line: "pmnbd attach good /dev/nbd",
		says: `"/dev/nbd" is not an nbd device: use /dev/nbd0, /dev/nbd1, …`,
	},
	{
		name: "attach: a ublk device without --ublk", code: 2,
		line: "pmnbd attach good /dev/ublkb0",
		says: "/dev/ublkb0 is attached with --ublk",
	},
	{
		name: "attach: an nbd device with --ublk", code: 2,
		line: "pmnbd attach --ublk good /dev/nbd0",
		says: `"/dev/nbd0" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …; other devices are attached without --ublk`,
	},
	{
		name: "attach: a ublk device, surplus words", code: 2,
		line: "pmnbd attach --ublk good other",
		says: `"other" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "attach: a ublk device with connections", code: 2,
		line: "pmnbd attach --ublk good --connections 2",
		says: "--connections is for /dev/nbdX: a ublk device has no connection, and waits for its pmnbd for ever",
	},
	{
		name: "attach: a ublk device with a time", code: 2,
		line: "pmnbd attach --ublk good --timeout 5s",
		says: "--timeout is for /dev/nbdX: a ublk device has no connection, and waits for its pmnbd for ever",
	},
	{
		name: "attach: a ublk device of a missing export", code: 1,
		line: "pmnbd attach --ublk none --control {controls}",
		says: `no pmnbd serves export "none": looked at {controls}`,
	},
	{
		name: "attach: a ublk device, and nobody serves", code: 1,
		line: "pmnbd attach --ublk --control unix:{empty}/",
		says: "no pmnbd is running: looked at unix:{empty}/",
	},
	{
		name: "attach: a URI with another query", code: 2,
		line: "pmnbd attach nbd+unix:///good?sock=/x /dev/nbd0",
		says: `"nbd+unix:///good?sock=/x" is not the URI of a unix socket: use nbd+unix:///EXPORT?socket=PATH`,
	},
	{
		name: "detach: surplus words", code: 2,
		line: "pmnbd detach /dev/nbd0 /dev/nbd1",
		says: `"/dev/nbd1" is one argument too many: give /dev/nbdX|/dev/ublkbN`,
	},
	{
		name: "detach: an export", code: 2,
		line: "pmnbd detach good",
		says: `"good" is not an nbd device: use /dev/nbd0, /dev/nbd1, …`,
	},
	{
		name: "detach: a ublk device without a number", code: 2,
		line: "pmnbd detach /dev/ublkb",
		says: `"/dev/ublkb" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "detach: unknown flag", code: 2,
		line: "pmnbd detach --ublk /dev/ublkb0",
		says: "unknown flag: --ublk (flags here: …)",
	},
}
