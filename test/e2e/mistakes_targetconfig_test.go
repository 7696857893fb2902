package e2e

// targetConfigMistakes are mistakes with the file of pmnbd-target's --config.
var targetConfigMistakes = []mistake{
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
		name: "config: a key in two spellings", code: 2,
		line: "pmnbd-target serve --config {toml:numa = 1;NUMA = 2}",
		says: "{toml}:2: NUMA is another spelling of numa on line 1: keys are not case-sensitive, so keep one of the two",
	},
	{
		name: "config: regions in two spellings", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "a";path = "/a";[[Region]];name = "b";path = "/b"}`,
		says: "{toml}:4: Region is another spelling of region on line 1: keys are not case-sensitive, so keep one of the two",
	},
	{
		name: "config: a key of a region in two spellings", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "a";path = "/a";Path = "/b"}`,
		says: "{toml}:4: region.Path is another spelling of region.path on line 3: keys are not case-sensitive, so keep one of the two",
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
	{
		name: "config: an empty name", code: 2,
		line: "pmnbd-target serve --config=",
		says: "--config is empty: give it a value, or leave the flag out",
	},
	{
		name: "config: another user's", code: 1, nobody: true,
		line: "pmnbd-target serve --config {text}",
		says: "configuration: open {text}: permission denied",
	},
	{
		name: "config: an unknown table", code: 2,
		line: "pmnbd-target serve --config {toml:[adapter];x = 1}",
		says: `{toml}:1: unknown key "adapter": docs/configuration.md has all of them`,
	},
	{
		name: "config: an unknown key of a region", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";sise = "1G"}`,
		says: `{toml}:3: unknown key "region.sise": docs/configuration.md has all of them`,
	},
	{
		name: "config: a list of numbers", code: 2,
		line: "pmnbd-target serve --config {toml:listen = [7204]}",
		says: `{toml}:1: listen takes a list of addresses: listen = ["iwarp://127.0.0.1:7204"]`,
	},
	{
		name: "config: a number for a path", code: 2,
		line: "pmnbd-target serve --config {toml:key-file = 3}",
		says: `{toml}:1: key-file takes a path in quotes: key-file = "/etc/pmnbd/keys"`,
	},
	{
		name: "config: an empty key file", code: 2,
		line: `pmnbd-target serve --config {toml:key-file = ""}`,
		says: `{toml}:1: key-file is empty: it takes a path in quotes: key-file = "/etc/pmnbd/keys"`,
	},
	{
		name: "config: a list for a node", code: 2,
		line: "pmnbd-target serve --config {toml:numa = [1]}",
		says: `{toml}:1: numa takes "auto", "off" or the number of a node: numa = "auto"`,
	},
	{
		name: "config: a part of a node", code: 2,
		line: "pmnbd-target serve --config {toml:numa = 1.5}",
		says: `{toml}:1: numa takes "auto", "off" or the number of a node: numa = "auto"`,
	},
	{
		name: "config: a negative node", code: 2,
		line: "pmnbd-target serve --config {toml:numa = -1}",
		says: `{toml}:1: numa takes "auto", "off" or the number of a node: numa = "auto"`,
	},
	{
		name: "config: a word for a node", code: 2,
		line: `pmnbd-target serve --config {toml:numa = "some"}`,
		says: `{toml}:1: numa: "some" is not a node: use auto, off or the number of a node`,
	},
	{
		name: "config: a date for a time", code: 2,
		line: "pmnbd-target serve --config {toml:spin = 1979-05-27}",
		says: `{toml}:1: spin takes a duration in quotes: spin = "50us"`,
	},
	{
		name: "config: a time without a unit", code: 2,
		line: `pmnbd-target serve --config {toml:spin = "50"}`,
		says: `{toml}:1: spin: "50" has no unit: use 50s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "config: a negative time", code: 2,
		line: `pmnbd-target serve --config {toml:spin = "-1s"}`,
		says: `{toml}:1: spin: "-1s" is negative: use 0 or a time such as 50us`,
	},
	{
		name: "config: a list for an address", code: 2,
		line: "pmnbd-target serve --config {toml:metrics = [9204]}",
		says: `{toml}:1: metrics takes a port, or an address in quotes: metrics = "127.0.0.1:9204"`,
	},
	{
		name: "config: no address for metrics", code: 2,
		line: `pmnbd-target serve --config {toml:metrics = "pm1"}`,
		says: `{toml}:1: metrics: "pm1" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "config: no control socket", code: 2,
		line: `pmnbd-target serve --config {toml:control = "/x"}`,
		says: `{toml}:1: control: "/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "config: no address", code: 2,
		line: `pmnbd-target serve --config {toml:listen = ["tcp://127.0.0.1:1"]}`,
		says: `{toml}:1: listen: "tcp://127.0.0.1:1" is not an address: use iwarp://HOST:PORT`,
	},
	{
		name: "config: no battery command", code: 2,
		line: `pmnbd-target serve --config {toml:battery-command = " "}`,
		says: "{toml}:1: battery-command: it names no command: use one such as 'upsc ups@localhost'",
	},
	{
		name: "config: a battery command in parts", code: 2,
		line: `pmnbd-target serve --config {toml:battery-command = ["upsc"]}`,
		says: `{toml}:1: battery-command takes a command in quotes: battery-command = "upsc ups@localhost"`,
	},
	{
		name: "config: a region without brackets", code: 2,
		line: `pmnbd-target serve --config {toml:region = "r"}`,
		says: "{toml}:1: region takes a table for each region, under a line [[region]]",
	},
	{
		name: "config: a number for a name", code: 2,
		line: "pmnbd-target serve --config {toml:[[region]];name = 3}",
		says: `{toml}:2: region.name takes a name in quotes: name = "log"`,
	},
	{
		name: "config: a region without a name", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];path = "/r"}`,
		says: `region "": region name has 0 bytes: use 1 to 255`,
	},
	{
		name: "config: a region without a path", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r"}`,
		says: `region "r": it has no path`,
	},
	{
		name: "config: a region twice", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";[[region]];name = "r";path = "/s"}`,
		says: "region r is named twice: each needs a name of its own",
	},
	{
		name: "config: a boolean for a size", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";size = true}`,
		says: `{toml}:4: region.size takes a size in quotes, or bytes: size = "8G"`,
	},
	{
		name: "config: an invalid size", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";size = "much"}`,
		says: `{toml}:4: region.size: "much" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "config: a negative size", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";size = -4096}`,
		says: `{toml}:4: region.size takes a size in quotes, or bytes: size = "8G"`,
	},
	{
		name: "config: a size between blocks", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";size = 4097}`,
		says: `region "r": region size 4097 bytes: use a positive multiple of 4096`,
	},
	{
		name: "config: anonymous memory without a size", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "memfd:"}`,
		says: `region "r": anonymous memory needs a size`,
	},
	{
		name: "config: one id", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";allow = "me"}`,
		says: `{toml}:4: region.allow takes a list of ids: allow = ["…"]`,
	},
	{
		name: "config: numbers for ids", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";allow = [1]}`,
		says: `{toml}:4: region.allow takes a list of ids: allow = ["…"]`,
	},
	{
		name: "config: path and parts", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";parts = ["/s"]}`,
		says: `region "r": it has path and parts: name all parts in parts, the first one too`,
	},
	{
		name: "config: one part", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";parts = ["/r"]}`,
		says: `region "r": it has one part: use path`,
	},
	{
		name: "config: parts in no list", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";parts = "/r"}`,
		says: `{toml}:3: region.parts takes a list of paths, the first part's first: parts = ["/dev/dax0.0", "/dev/dax1.0"]`,
	},
	{
		name: "config: a flag for a part", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";parts = ["/r", "/s,size=1G"]}`,
		says: `{toml}:3: region.parts: /s,size=1G: a comma ends a path, and nothing may follow here; a path with a comma in it stands in double quotes: "/s,size=1G"`,
	},
	{
		name: "config: an empty image's directory", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";save = ""}`,
		says: `{toml}:4: region.save is empty: it takes a directory in quotes: save = "/var/lib/pmnbd-target/saved"`,
	},
	{
		name: "config: a flag for an image's directory", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";save = "/s,alow=x"}`,
		says: `{toml}:4: region.save: /s,alow=x: a comma ends a path, and nothing may follow here; a path with a comma in it stands in double quotes: "/s,alow=x"`,
	},
	{
		name: "config: an image and a size", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "/r";size = "1G";save = "/s"}`,
		says: `region "r": save and size exclude each other: leave size out if the region exists, or make it first: pmnbd-target region create r PATH --class protected --save DIR --size SIZE`,
	},
	{
		name: "config: an image of anonymous memory", code: 2,
		line: `pmnbd-target serve --config {toml:[[region]];name = "r";path = "memfd:";save = "/s"}`,
		says: `region "r": anonymous memory has no image: leave save out, or make a region with an image: pmnbd-target region create r PATH --class protected --save DIR --size SIZE`,
	},
	{
		name: "config: no region", code: 2,
		line: `pmnbd-target serve --config {toml:numa = "off"}`,
		says: "nothing to serve: name a region with --region NAME=PATH, or in the file of --config",
	},
	{
		name: "config: listens nowhere", code: 2,
		line: `pmnbd-target serve --config {toml:listen = [];[[region]];name = "r";path = "/r"}`,
		says: "nowhere to listen: name an address with --listen iwarp://HOST:PORT, or in the file of --config",
	},
	{
		name: "config: beyond loopback", code: 2,
		line: `pmnbd-target serve --config {toml:listen = ["iwarp://0.0.0.0"];[[region]];name = "r";path = "/r"}`,
		says: "iwarp://0.0.0.0:7204 is not a loopback address: use --key-file, so that sessions authenticate, or --insecure-no-auth on a network of your own",
	},
}
