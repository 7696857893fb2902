package e2e

// configMistakes are mistakes in the target's configuration file.
var configMistakes = []mistake{
	{
		name: "config: no file", code: 1,
		line: "pmnbd-target serve --config {new}",
		says: "configuration: open {new}: no such file or directory",
	},
	{
		name: "config: a directory", code: 1,
		line: "pmnbd-target serve --config {home}",
		says: "configuration: read {home}: is a directory",
	},
	{
		name: "config: not TOML", code: 2,
		line: "pmnbd-target serve --config {toml:listen = [}",
		says: "{toml}:1: array is incomplete",
	},
	{
		name: "config: an unknown key", code: 2,
		line: "pmnbd-target serve --config {toml:alow-volatile = true}",
		says: `{toml}:1: unknown key "alow-volatile": docs/configuration.md has all of them`,
	},
	{
		name: "config: one address", code: 2,
		line: `pmnbd-target serve --config {toml:listen = "iwarp://127.0.0.1:1"}`,
		says: `{toml}:1: listen takes a list of addresses: listen = ["iwarp://127.0.0.1:7204"]`,
	},
	{
		name: "config: a boolean in quotes", code: 2,
		line: `pmnbd-target serve --config {toml:allow-volatile = "yes"}`,
		says: "{toml}:1: allow-volatile takes true or false, without quotes",
	},
	{
		name: "config: a key twice", code: 2,
		line: "pmnbd-target serve --config {toml:numa = 1;numa = 2}",
		says: "{toml}:2: numa: key numa is already defined",
	},
	{
		name: "config: a bare time", code: 2,
		line: "pmnbd-target serve --config {toml:spin = 50}",
		says: `{toml}:1: spin takes a duration in quotes: spin = "50us"`,
	},
	{
		name: "config: one region", code: 2,
		line: `pmnbd-target serve --config {toml:[region];name = "r"}`,
		says: "{toml}:1: region takes a table for each region, under a line [[region]]",
	},
	{
		name: "config: a flag for a path", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r,size=1G"}`,
		says: `{toml}:3: region.path: /r,size=1G: a comma ends a path, and nothing may follow here; a path with a comma in it stands in double quotes: "/r,size=1G"`,
	},
	{
		name: "config: an invalid id", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";allow = ["me"]}`,
		says: `{toml}:4: region.allow: "me" is not the id of an initiator: use a UUID, as in the file initiator-id of its state directory`,
	},
	{
		name: "config: nobody allowed", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";allow = []}`,
		says: `region "r": nobody is allowed: name the ids of initiators, or leave allow out`,
	},
}

// regionMistakes are mistakes with pmnbd-target region.
var regionMistakes = []mistake{
	{
		name: "region: no command", code: 2,
		line: "pmnbd-target region",
		says: "a command is missing: use create, inspect, list, remove or clear, or --help",
	},
	{
		name: "region: unknown command", code: 2,
		line: "pmnbd-target region make",
		says: `unknown command "make": use create, inspect, list, remove or clear, or --help`,
	},
	{
		name: "region: unknown flag", code: 2,
		line: "pmnbd-target region inspect --sise 1",
		says: "unknown flag: --sise (flags here: …)",
	},
	{
		name: "region: no flags", code: 2,
		line: "pmnbd-target region list --json {disk}",
		says: "unknown flag: --json (there are no flags here but --help)",
	},
	{
		name: "create: no path", code: 2,
		line: "pmnbd-target region create r",
		says: "PATH is missing: name the region's file or device, or all of its parts with --part",
	},
	{
		name: "create: no size", code: 1,
		line: "pmnbd-target region create r {new}",
		says: "{new}: no region size: there is no such file, and a new region needs a size: use --size",
	},
	{
		name: "create: an invalid size", code: 2,
		line: "pmnbd-target region create r {new} --size much",
		says: `--size: "much" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "create: a size between blocks", code: 2,
		line: "pmnbd-target region create r {new} --size 4097",
		says: "--size 4097: region size 4097 bytes: use a positive multiple of 4096",
	},
	{
		name: "create: a size of zero", code: 2,
		line: "pmnbd-target region create r {new} --size 0",
		says: "--size 0: region size 0 bytes: use a positive multiple of 4096",
	},
	{
		name: "create: more than the disk has", code: 1,
		line: "pmnbd-target region create r {new} --size 4000000T",
		says: "{new}: no room for 4398046511106097152 bytes, … are free: no space left on device",
	},
	{
		name: "create: an invalid name", code: 2,
		line: "pmnbd-target region create a/b {new} --size 16M",
		says: `region name "a/b": use letters, digits, '.', '_' and '-', and begin with a letter or digit`,
	},
	{
		name: "create: an existing region", code: 1,
		line: "pmnbd-target region create free {free} --size 16M",
		says: "{free}: not empty: it holds data; --force discards all of it",
	},
	{
		name: "create: a region that is served", code: 1,
		line: "pmnbd-target region create good {good} --size 16M --force",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "create: other data", code: 1,
		line: "pmnbd-target region create r {data} --size 16M",
		says: "{data}: not empty: it holds data; --force discards all of it",
	},
	{
		name: "create: a directory", code: 1,
		line: "pmnbd-target region create r {disk} --size 16M",
		says: "open {disk}: is a directory",
	},
	{
		name: "create: a missing directory", code: 1,
		line: "pmnbd-target region create r {disk}/none/r --size 16M",
		says: "open {disk}/none/r: no such file or directory",
	},
	{
		name: "create: a missing device", code: 1,
		line: "pmnbd-target region create log /dev/dax9.9",
		says: "/dev/dax9.9: no such device: use a device that exists, or a path outside /dev",
	},
	{
		name: "create: an invalid device", code: 1,
		line: "pmnbd-target region create log /dev/null",
		says: "/dev/null: memory refused: a character device: put the region on ext4, xfs or f2fs (class file), or on tmpfs (class volatile)",
	},
	{
		name: "create: anonymous memory", code: 1,
		line: "pmnbd-target region create log memfd: --size 16M",
		says: "memory refused: anonymous memory exists only while pmnbd-target serves it: `serve --region NAME=memfd:,size=SIZE` makes it",
	},
	{
		name: "create: where we may not write", code: 1, nobody: true,
		line: "pmnbd-target region create r /var/lib/pmnbd-nothing --size 16M",
		says: "open /var/lib/pmnbd-nothing: permission denied",
	},
	{
		name: "inspect: no file", code: 1,
		line: "pmnbd-target region inspect {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "inspect: no region", code: 1,
		line: "pmnbd-target region inspect {zeroes}",
		says: "{zeroes}: no pmnbd superblock: make a region with `pmnbd-target region create`",
	},
	{
		name: "inspect: a directory", code: 1,
		line: "pmnbd-target region inspect {disk}",
		says: "{disk}: no pmnbd superblock: memory refused: not a regular file",
	},
	{
		name: "list: no directory", code: 1,
		line: "pmnbd-target region list {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "list: a file", code: 1,
		line: "pmnbd-target region list {free}",
		says: "open {free}: not a directory",
	},
	{
		name: "list: no region", code: 1,
		line: "pmnbd-target region list {empty}",
		says: "no region found",
	},
	{
		name: "remove: no file", code: 1,
		line: "pmnbd-target region remove {new}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "remove: no region", code: 1,
		line: "pmnbd-target region remove {zeroes}",
		says: "{zeroes}: not removed: no pmnbd superblock",
	},
	{
		name: "remove: a region that is served", code: 1,
		line: "pmnbd-target region remove {good}",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
	{
		name: "clear: no reason", code: 2,
		line: "pmnbd-target region clear {free}",
		says: "--reason is missing: say why, such as --reason 'disk replaced, fsck clean'",
	},
	{
		name: "clear: a region that is served", code: 1,
		line: "pmnbd-target region clear {good} --reason test",
		says: "{good}: region is in use: a pmnbd-target serves or changes it",
	},
}
