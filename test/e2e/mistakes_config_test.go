package e2e

// configMistakes are mistakes with the file of pmnbd's --config.
var configMistakes = []mistake{
	{
		name: "pmnbd's file: an empty name", code: 2,
		line: "pmnbd serve --config=",
		says: "--config is empty: give it a value, or leave the flag out",
	},
	{
		name: "pmnbd's file: none", code: 1,
		line: "pmnbd serve --config {new}",
		says: "configuration: open {new}: no such file or directory",
	},
	{
		name: "pmnbd's file: a directory", code: 1,
		line: "pmnbd serve --config {home}",
		says: "configuration: read {home}: is a directory",
	},
	{
		name: "pmnbd's file: another user's", code: 1, nobody: true,
		line: "pmnbd serve --config {text} --state-dir {nobodys}",
		says: "configuration: open {text}: permission denied",
	},
	{
		name: "pmnbd's file: not TOML", code: 2,
		line: "pmnbd serve --config {text}",
		says: "{text}:1: expected '=' after key",
	},
	{
		name: "pmnbd's file: half a list", code: 2,
		line: "pmnbd serve --config {toml:listen = [}",
		says: "{toml}:1: array is incomplete",
	},
	{
		name: "pmnbd's file: an unknown key", code: 2,
		line: "pmnbd serve --config {toml:lanez = 3}",
		says: `{toml}:1: unknown key "lanez": docs/configuration.md has all of them`,
	},
	{
		name: "pmnbd's file: an unknown table", code: 2,
		line: `pmnbd serve --config {toml:[mirror];name = "a"}`,
		says: `{toml}:1: unknown key "mirror": docs/configuration.md has all of them`,
	},
	{
		name: "pmnbd's file: an unknown key of an export", code: 2,
		line: `pmnbd serve --config {toml:[[export]];target = "iwarp://pm1/log";window = "8M"}`,
		says: `{toml}:3: unknown key "export.window": docs/configuration.md has all of them`,
	},
	{
		name: "pmnbd's file: one start's decision", code: 2,
		line: "pmnbd serve --config {toml:accept-loss = true}",
		says: `{toml}:1: unknown key "accept-loss": docs/configuration.md has all of them`,
	},
	{
		name: "pmnbd's file: --target as a key", code: 2,
		line: `pmnbd serve --config {toml:target = "iwarp://pm1/log"}`,
		says: `{toml}:1: unknown key "target": docs/configuration.md has all of them`,
	},
	{
		name: "pmnbd's file: a key twice", code: 2,
		line: "pmnbd serve --config {toml:lanes = 1;lanes = 2}",
		says: "{toml}:2: lanes: key lanes is already defined",
	},
	{
		name: "pmnbd's file: a key in two spellings", code: 2,
		line: `pmnbd serve --config {toml:tls = "require";TLS = "off"}`,
		says: "{toml}:2: TLS is another spelling of tls on line 1: keys are not case-sensitive, so keep one of the two",
	},
	{
		name: "pmnbd's file: exports in two spellings", code: 2,
		line: `pmnbd serve --config {toml:[[export]];target = "iwarp://pm1/log";[[Export]];target = "iwarp://pm1/data"}`,
		says: "{toml}:3: Export is another spelling of export on line 1: keys are not case-sensitive, so keep one of the two",
	},
	{
		name: "pmnbd's file: a key of an export in two spellings", code: 2,
		line: `pmnbd serve --config {toml:[[export]];target = "iwarp://pm1/log";Target = "iwarp://pm1/data"}`,
		says: "{toml}:3: export.Target is another spelling of export.target on line 2: keys are not case-sensitive, so keep one of the two",
	},
	{
		name: "pmnbd's file: one listener", code: 2,
		line: `pmnbd serve --config {toml:listen = "unix:/x"}`,
		says: `{toml}:1: listen takes a list in quotes: listen = ["unix:/run/pmnbd.sock"]`,
	},
	{
		name: "pmnbd's file: one block device", code: 2,
		line: `pmnbd serve --config {toml:ublk = "/dev/ublkb0"}`,
		says: `{toml}:1: ublk takes a list in quotes: ublk = ["log=/dev/ublkb0"]`,
	},
	{
		name: "pmnbd's file: a number in quotes", code: 2,
		line: `pmnbd serve --config {toml:lanes = "3"}`,
		says: "{toml}:1: lanes takes a number: lanes = 1",
	},
	{
		name: "pmnbd's file: a negative number", code: 2,
		line: "pmnbd serve --config {toml:lanes = -3}",
		says: "{toml}:1: lanes takes a number: lanes = 1",
	},
	{
		name: "pmnbd's file: a number for a boolean", code: 2,
		line: "pmnbd serve --config {toml:read-only = 1}",
		says: "{toml}:1: read-only takes true or false, without quotes",
	},
	{
		name: "pmnbd's file: a bare time", code: 2,
		line: "pmnbd serve --config {toml:loss-timeout = 5}",
		says: `{toml}:1: loss-timeout takes a duration in quotes: loss-timeout = "30s"`,
	},
	{
		name: "pmnbd's file: a list for an address", code: 2,
		line: "pmnbd serve --config {toml:metrics = [9204]}",
		says: `{toml}:1: metrics takes a port, or an address in quotes: metrics = "127.0.0.1:9204"`,
	},
	{
		name: "pmnbd's file: a boolean for a size", code: 2,
		line: "pmnbd serve --config {toml:window = true}",
		says: `{toml}:1: window takes a size in quotes, or bytes: window = "64M"`,
	},
	{
		name: "pmnbd's file: an empty key file", code: 2,
		line: `pmnbd serve --config {toml:key-file = ""}`,
		says: `{toml}:1: key-file is empty: it takes a text in quotes: key-file = "…"`,
	},
	{
		name: "pmnbd's file: an empty window directory", code: 2,
		line: `pmnbd serve --config {toml:window-dir = ""}`,
		says: `{toml}:1: window-dir is empty: it takes a text in quotes: window-dir = "…"`,
	},
	{
		name: "pmnbd's file: a time without a unit", code: 2,
		line: `pmnbd serve --config {toml:spin = "3"}`,
		says: `{toml}:1: spin: "3" has no unit: use 3s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "pmnbd's file: an invalid size", code: 2,
		line: `pmnbd serve --config {toml:window = "much"}`,
		says: `{toml}:1: window: "much" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "pmnbd's file: no address for metrics", code: 2,
		line: `pmnbd serve --config {toml:metrics = "pm1"}`,
		says: `{toml}:1: metrics: "pm1" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "pmnbd's file: three mistakes", code: 2,
		line: `pmnbd serve --config {toml:lanes = "3";;read-only = 1;listen = "unix:/a"}`,
		says: `{toml}:1: lanes takes a number: lanes = 1; {toml}:3: read-only takes true or false, without quotes; {toml}:4: listen takes a list in quotes: listen = ["unix:/run/pmnbd.sock"]`,
	},
	{
		name: "pmnbd's file: numbers out of range", code: 2,
		line: `pmnbd serve --config {toml:lanes = 99;window = "1M";socket-mode = "888"}`,
		says: `no region: name it with --target iwarp://HOST:PORT/REGION, or below an [[export]] in the file of --config; --window 1M: use 4M to 64G; --lanes 99: use 1 to 16; --socket-mode "888": use three octal digits, such as 660`,
	},
	{
		name: "pmnbd's file: one export", code: 2,
		line: `pmnbd serve --config {toml:[export];name = "a"}`,
		says: "{toml}:1: export takes a table for each export, under a line [[export]]",
	},
	{
		name: "pmnbd's file: an export without a target", code: 2,
		line: `pmnbd serve --config {toml:[[export]];name = "a"}`,
		says: `{toml}: export 1, "a", has no target: write target = "iwarp://HOST:PORT/REGION" below its [[export]]`,
	},
	{
		name: "pmnbd's file: an export with an empty name", code: 2,
		line: `pmnbd serve --config {toml:[[export]];name = "";target = "iwarp://pm1/log"}`,
		says: `{toml}:2: export.name is empty: it takes a name in quotes: name = "log"`,
	},
	{
		name: "pmnbd's file: a number for a target", code: 2,
		line: "pmnbd serve --config {toml:[[export]];target = 3}",
		says: `{toml}:2: export.target takes an address in quotes: target = "iwarp://pm1/log", or a list of a mirror's members`,
	},
	{
		name: "pmnbd's file: a target that is no address", code: 2,
		line: `pmnbd serve --config {toml:[[export]];target = "pm1/log"}`,
		says: `"pm1/log" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "pmnbd's file: no export", code: 2,
		line: `pmnbd serve --config {toml:listen = ["tcp:10809"]}`,
		says: "no region: name it with --target iwarp://HOST:PORT/REGION, or below an [[export]] in the file of --config",
	},
	{
		name: "pmnbd's file: nowhere to serve", code: 2,
		line: `pmnbd serve --config {toml:[[export]];target = "iwarp://pm1/log"}`,
		says: "nowhere to serve: use --listen unix:/PATH, --listen tcp:HOST:PORT or --ublk /dev/ublkbN",
	},
	{
		name: "pmnbd's file: a mirror's setting", code: 2,
		line: `pmnbd serve --config {toml:leg-timeout = "3s";[[export]];target = "iwarp://pm1/log"}`,
		says: "--leg-timeout is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "pmnbd's file: beyond loopback", code: 2,
		line: `pmnbd serve --config {toml:listen = ["tcp:0.0.0.0:10809"];[[export]];target = "iwarp://pm1/log"}`,
		says: "--listen tcp:0.0.0.0:10809 is not a loopback address, and everybody who reaches it owns the exports: use --tls=require --tls-verify-peer, so that clients authenticate, or --insecure-no-auth on a network of your own",
	},
}
