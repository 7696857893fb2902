package e2e

// targetMistakes are mistakes with pmnbd-target serve.
var targetMistakes = []mistake{
	{
		name: "target: no command", code: 2,
		line: "pmnbd-target",
		says: "a command is missing: use serve, status, reload, save, resume, region, inspect-platform or key, or --help",
	},
	{
		name: "target: unknown command", code: 2,
		line: "pmnbd-target swerve",
		says: `unknown command "swerve": use serve, status, reload, save, resume, region, inspect-platform or key, or --help`,
	},
	{
		name: "target: unknown flag", code: 2,
		line: "pmnbd-target serve --regoin r={good}",
		says: "unknown flag: --regoin (flags here: …)",
	},
	{
		name: "target: unknown short flag", code: 2,
		line: "pmnbd-target serve -x",
		says: "unknown shorthand flag: 'x' in -x (flags here: …)",
	},
	{
		name: "target: a flag without its value", code: 2,
		line: "pmnbd-target serve --region",
		says: "flag needs an argument: --region (flags here: …)",
	},
	{
		name: "target: a switch with a value", code: 2,
		line: "pmnbd-target serve --region r={good} --allow-volatile=perhaps",
		says: `--allow-volatile: "perhaps" is neither true nor false`,
	},
	{
		name: "target: surplus words", code: 2,
		line: "pmnbd-target serve --region r={good} now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "target: no region", code: 2,
		line: "pmnbd-target serve",
		says: "nothing to serve: name a region with --region NAME=PATH, or in the file of --config",
	},
	{
		name: "target: a region twice", code: 2,
		line: "pmnbd-target serve --region r={good} --region r={free}",
		says: "region r is named twice: each needs a name of its own",
	},
	{
		name: "target: an address of another kind", code: 2,
		line: "pmnbd-target serve --region r={good} --listen tcp://127.0.0.1:7204",
		says: `--listen: "tcp://127.0.0.1:7204" is not an address: use iwarp://HOST:PORT`,
	},
	{
		name: "target: an address without a scheme", code: 2,
		line: "pmnbd-target serve --region r={good} --listen 127.0.0.1:7204",
		says: `--listen: "127.0.0.1:7204" is not an address: use iwarp://HOST:PORT`,
	},
	{
		name: "target: an address with a region", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarp://127.0.0.1:7204/r",
		says: `--listen: listener "iwarp://127.0.0.1:7204/r" names a region: use iwarp://HOST:PORT, and --region for regions`,
	},
	{
		name: "target: an address without a host", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarp://:7204",
		says: `--listen: "iwarp://:7204" names no host: use iwarp://HOST:PORT (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)`,
	},
	{
		name: "target: an invalid port", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarp://127.0.0.1:72040",
		says: `--listen: "iwarp://127.0.0.1:72040" has no port of 0 to 65535: use iwarp://HOST:PORT`,
	},
	{
		name: "target: beyond loopback", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarp://0.0.0.0:7204",
		says: "iwarp://0.0.0.0:7204 is not a loopback address: use --key-file, so that sessions authenticate, or --insecure-no-auth on a network of your own",
	},
	{
		name: "target: an address of another host", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://192.0.2.1:7204 --insecure-no-auth",
		says: "listen on iwarp://192.0.2.1:7204: listen on 192.0.2.1:7204: listen tcp4 192.0.2.1:7204: bind: cannot assign requested address: this host has no such address",
	},
	{
		name: "target: a port in use", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://{targetport}",
		says: "listen on {uri}: listen on {targetport}: listen tcp4 {targetport}: bind: address already in use: another process listens there: end it, or use another port",
	},
	{
		name: "target: an invalid node", code: 2,
		line: "pmnbd-target serve --region r={good} --numa x",
		says: `--numa: "x" is not a node: use auto, off or the number of a node`,
	},
	{
		name: "target: a missing node", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --numa 99",
		says: "numa 99: node 99 has no CPUs, or does not exist",
	},
	{
		name: "target: a time without a unit", code: 2,
		line: "pmnbd-target serve --region r={good} --spin 50",
		says: `--spin: "50" has no unit: use 50s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "target: a negative time", code: 2,
		line: "pmnbd-target serve --region r={good} --spin -1s",
		says: `--spin: "-1s" is negative: use 0 or a time such as 50us`,
	},
	{
		name: "target: no control socket", code: 2,
		line: "pmnbd-target serve --region r={good} --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "target: a directory for a control socket", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --control unix:{home}",
		says: "control socket: {home} is a directory: write unix:{home}/, with a / at its end, for the control sockets in it; --control unix:/PATH puts it elsewhere",
	},
	{
		name: "target: no address for metrics", code: 2,
		line: "pmnbd-target serve --region r={good} --metrics pm1",
		says: `--metrics: "pm1" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "target: metrics where a port is in use", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --metrics {taken}",
		says: "metrics: listen tcp4 {taken}: bind: address already in use; --metrics HOST:PORT puts them elsewhere",
	},
	{
		name: "target: no file", code: 1,
		line: "pmnbd-target serve --region r={new} --listen iwarp://127.0.0.1:0",
		says: "region r: open {new}: no such file or directory: make it with `pmnbd-target region create NAME PATH --size SIZE`",
	},
	{
		name: "target: a directory", code: 1,
		line: "pmnbd-target serve --region r={disk} --listen iwarp://127.0.0.1:0",
		says: "region r: open {disk}: is a directory",
	},
	{
		name: "target: no region in the file", code: 1,
		line: "pmnbd-target serve --region r={zeroes} --listen iwarp://127.0.0.1:0",
		says: "region r: {zeroes}: no pmnbd superblock: make a region with `pmnbd-target region create`",
	},
	{
		name: "target: another region's name", code: 1,
		line: "pmnbd-target serve --region good={free} --listen iwarp://127.0.0.1:0",
		says: `region good: {free}: region name: it is "free", not "good"`,
	},
	{
		name: "target: a region that is served already", code: 1,
		line: "pmnbd-target serve --region good={good} --listen iwarp://127.0.0.1:0",
		says: "region good: {good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "target: a volatile region", code: 1,
		line: "pmnbd-target serve --region vol={vol} --listen iwarp://127.0.0.1:0",
		says: "region vol: {vol}: region is volatile: it loses its contents with the power; --allow-volatile permits that",
	},
	{
		name: "target: a missing device", code: 1,
		line: "pmnbd-target serve --region r=/dev/dax9.9 --listen iwarp://127.0.0.1:0",
		says: "region r: open /dev/dax9.9: no such file or directory",
	},
	{
		name: "target: another user's file", code: 1, nobody: true,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0",
		says: "region free: open {free}: permission denied: it belongs to uid 0, its mode is 0600, and this process runs as uid 65534: run pmnbd-target as its owner, or give that user access",
	},
	{
		name: "target: no key file", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {new}",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "target: a key file that others read", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {openkeys}",
		says: "key file: {openkeys} has mode 0644, so others may know the keys: make new ones, with mode 0600",
	},
	{
		name: "target: a directory of keys", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {home}",
		says: "key file: {home} is a directory: name a file in it",
	},
	{
		name: "target: a key file without keys", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {nokeys}",
		says: "key file: {nokeys} has no key: each line is INITIATOR-ID TARGET-NAME KEY, as pmnbd-target key new prints it",
	},
	{
		name: "target: a short key", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {shortkey}",
		says: "key file: {shortkey}:1: the key has 2 bytes: use 32 or more, as pmnbd-target key new makes",
	},
	{
		name: "target: key file, wrong words", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {wordkeys}",
		says: "key file: {wordkeys}:1: the number of words is 4: use INITIATOR-ID TARGET-NAME KEY",
	},
	{
		name: "target: a key file of the old format", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {oldkeys}",
		says: "key file: {oldkeys}:1: a line of the old format, which names no target: give each initiator and target a key of their own, as pmnbd-target key new makes it (docs/security.md, Keys)",
	},
	{
		name: "target: keys of other targets", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {twokeys} --name pm3",
		says: "key file: {twokeys} has no key of target pm3, but of pm1, pm2: name this target with --name, or make a key with pmnbd-target key new",
	},
	{
		name: "target: a name with a blank", code: 2,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {keys} --name p:m",
		says: `--name: "p:m" is no target's name: use letters, digits, dots, hyphens and underscores`,
	},
	{
		name: "target: a listener with a name", code: 2,
		line: "pmnbd-target serve --region free={free} --listen iwarp://pm1@127.0.0.1:0",
		says: `--listen: listener "iwarp://pm1@127.0.0.1:0" names the target: use iwarp://HOST:PORT, and --name for the name`,
	},
	{
		name: "target: an encrypted address without keys", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarps://127.0.0.1",
		says: "iwarps://127.0.0.1:7205 needs --key-file: without keys nobody knows who is at the other end, and anybody in between could decrypt the connection",
	},
	{
		name: "target: an encrypted address for all", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarps://127.0.0.1 --insecure-no-auth",
		says: "iwarps://127.0.0.1:7205 needs --key-file: without keys nobody knows who is at the other end, and anybody in between could decrypt the connection",
	},
	{
		name: "target: an encrypted address without a host", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarps://",
		says: `--listen: "iwarps://" names no host: use iwarp://HOST:PORT (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)`,
	},
	{
		name: "target: an encrypted address with a region", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarps://127.0.0.1/r",
		says: `--listen: listener "iwarps://127.0.0.1/r" names a region: use iwarp://HOST:PORT, and --region for regions`,
	},
	{
		name: "target: an encrypted address, an invalid port", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarps://127.0.0.1:72050",
		says: `--listen: "iwarps://127.0.0.1:72050" has no port of 0 to 65535: use iwarp://HOST:PORT`,
	},
	{
		name: "target: an adapter's address without verbs", code: 2,
		line: "pmnbd-target serve --region r={good} --listen rdma://127.0.0.1",
		says: `--listen: "rdma://127.0.0.1": this build has no RDMA verbs; use iwarp://HOST:PORT, or install libibverbs-dev, librdmacm-dev and pkg-config and make build`,
	},
	{
		name: "target: an empty address", code: 2,
		line: "pmnbd-target serve --region r={good} --listen=",
		says: `--listen: "" is not an address: use iwarp://HOST:PORT`,
	},
	{
		name: "target: an address twice", code: 2,
		line: "pmnbd-target serve --region r={good} --listen iwarp://127.0.0.1 --listen iwarp://127.0.0.1:7204",
		says: "--listen iwarp://127.0.0.1:7204 is given twice",
	},
	{
		name: "target: an empty key file", code: 2,
		line: "pmnbd-target serve --region r={good} --key-file=",
		says: "--key-file is empty: give it a value, or leave the flag out",
	},
	{
		name: "target: an empty name", code: 2,
		line: "pmnbd-target serve --region r={good} --name=",
		says: "--name is empty: give it a value, or leave the flag out",
	},
	{
		name: "target: another user's key file", code: 1, nobody: true,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {keys}",
		says: "key file: open {keys}: permission denied",
	},
	{
		name: "target: a key that is none", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {badkey}",
		says: "key file: {badkey}:1: the key is not hexadecimal",
	},
	{
		name: "target: an initiator that is none", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --key-file {badid}",
		says: "key file: {badid}:1: the first word is not the id of an initiator, a UUID",
	},
	{
		name: "target: a negative node", code: 2,
		line: "pmnbd-target serve --region r={good} --numa -1",
		says: `--numa: "-1" is not a node: use auto, off or the number of a node`,
	},
	{
		name: "target: an empty node", code: 2,
		line: "pmnbd-target serve --region r={good} --numa=",
		says: `--numa: "" is not a node: use auto, off or the number of a node`,
	},
	{
		name: "target: an unknown level", code: 2,
		line: "pmnbd-target serve --region r={good} --log-level loud",
		says: `--log-level: "loud" is not a level: use debug, info, warn or error`,
	},
	{
		name: "target: no battery command", code: 2,
		line: "pmnbd-target serve --region r={good} --battery-command=",
		says: "--battery-command: it names no command: use one such as 'upsc ups@localhost'",
	},
	{
		name: "target: an empty control socket", code: 2,
		line: "pmnbd-target serve --region r={good} --control=",
		says: `--control: "" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "target: an empty address for metrics", code: 2,
		line: "pmnbd-target serve --region r={good} --metrics=",
		says: `--metrics: "" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "target: a switch with a word", code: 2,
		line: "pmnbd-target serve --region r={good} --direct-write-to-pmem=maybe",
		says: `--direct-write-to-pmem: "maybe" is neither true nor false`,
	},
	{
		name: "target: a control socket in use", code: 1,
		line: "pmnbd-target serve --region free={free} --listen iwarp://127.0.0.1:0 --control {mirrors}",
		says: "control socket: listen unix {home}/mirrors: bind: address already in use: another process serves that socket: use another path; --control unix:/PATH puts it elsewhere",
	},
}
