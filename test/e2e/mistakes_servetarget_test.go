package e2e

// serveTargetMistakes are mistakes with --target and --export of pmnbd serve.
var serveTargetMistakes = []mistake{
	{
		name: "no target", code: 2,
		line: "pmnbd serve --listen {socket}",
		says: "no region: name it with --target iwarp://HOST:PORT/REGION, or below an [[export]] in the file of --config",
	},
	{
		name: "a target without a region", code: 2,
		line: "pmnbd serve --target {uri} --listen {socket}",
		says: `target "{uri}" names no region: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target without a host", code: 2,
		line: "pmnbd serve --target iwarp:///free --listen {socket}",
		says: `"iwarp:///free" names no host: use iwarp://HOST:PORT/REGION (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)`,
	},
	{
		name: "a target of another kind", code: 2,
		line: "pmnbd serve --target nbd://127.0.0.1/free --listen {socket}",
		says: `"nbd://127.0.0.1/free" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with port 0", code: 2,
		line: "pmnbd serve --target iwarp://127.0.0.1:0/free --listen {socket}",
		says: `target "iwarp://127.0.0.1:0/free" has port 0, which only a listener can have`,
	},
	{
		name: "a target with more than a region", code: 2,
		line: "pmnbd serve --target {uri}/idle/x --listen {socket}",
		says: `"{uri}/idle/x" has more than a region's name behind the host: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a list of regions", code: 2,
		line: "pmnbd serve --target {uri}/idle,other --listen {socket}",
		says: `"other" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target twice", code: 2,
		line: "pmnbd serve --target {uri}/idle --target {uri}/idle --listen {socket}",
		says: `two exports are named "idle": give every --target a name of its own with --export`,
	},
	{
		name: "two exports of a name", code: 2,
		line: "pmnbd serve --target {uri}/idle --target {uri}/mine --export a --export a --listen {socket}",
		says: `two exports are named "a": give every --target a name of its own with --export`,
	},
	{
		name: "an empty name of an export", code: 2,
		line: "pmnbd serve --target {uri}/idle --export= --listen {socket}",
		says: "--export is empty: give it a value, or leave the flag out",
	},
	{
		name: "too few names", code: 2,
		line: "pmnbd serve --target {uri}/idle --target {uri}/mine --export a --listen {socket}",
		says: "--export is given 1 time and --target 2 times: name every export, or none",
	},
	{
		name: "a missing target", code: 1,
		line: "pmnbd serve --target iwarp://{closed}/free --listen {socket}",
		says: `export "free": connect to {closed}: connect: connection refused: is pmnbd-target serving there?`,
	},
	{
		name: "a missing region", code: 1,
		line: "pmnbd serve --target {uri}/none --listen {socket}",
		says: `export "none": the target refuses region none: unknown region: the target serves no region "none"`,
	},
	{
		name: "a region that another initiator has", code: 1,
		line: "pmnbd serve --target {uri}/good --listen {socket} --id {id} --window-dir {empty}",
		says: `export "good": the target refuses region good: region busy, held by … for … more seconds, and longer while that lives: stop it, or take the region from it with --takeover`,
	},
	{
		name: "a region that this host has already", code: 1,
		line: "pmnbd serve --target {uri}/good --listen {socket}",
		says: `export "good": the lock of the region: another pmnbd of this host and id serves this region: process … has locked {home}/….lock; one pmnbd at a time serves a region for an initiator: stop that one first`,
	},
	{
		name: "a region that this initiator may not have", code: 1,
		line: "pmnbd serve --target {uri}/mine --listen {socket}",
		says: `export "mine": the target refuses region mine: initiator not allowed: the target does not allow the region to initiator …`,
	},
	{
		name: "an empty target", code: 2,
		line: "pmnbd serve --target= --listen {socket}",
		says: `"" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a comma behind a target", code: 2,
		line: "pmnbd serve --target {uri}/idle, --listen {socket}",
		says: "--target {uri}/idle,: an address is missing at a comma",
	},
	{
		name: "an encrypted target without a key", code: 2,
		line: "pmnbd serve --target iwarps://127.0.0.1/idle --listen {socket}",
		says: `export "idle": --target iwarps://127.0.0.1:7205/idle needs --key-file: without a key nobody knows who is at the other end, and anybody in between could decrypt the connection`,
	},
	{
		name: "an encrypted target that is not", code: 1,
		line: "pmnbd serve --target iwarps://{targetport}/idle --listen {socket} --key-file {keys} --id {id}",
		says: `export "idle": connect to {targetport}: the peer does not speak TLS: does it listen at iwarps://?: TLS handshake: recv: connection reset by peer: is pmnbd-target serving there?`,
	},
	{
		name: "an encrypted target without a host", code: 2,
		line: "pmnbd serve --target iwarps:///idle --listen {socket}",
		says: `"iwarps:///idle" names no host: use iwarp://HOST:PORT/REGION (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)`,
	},
	{
		name: "an encrypted target without a region", code: 2,
		line: "pmnbd serve --target iwarps://127.0.0.1 --listen {socket}",
		says: `target "iwarps://127.0.0.1" names no region: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "an adapter's target without verbs", code: 2,
		line: "pmnbd serve --target rdma://127.0.0.1/idle --listen {socket}",
		says: `"rdma://127.0.0.1/idle": this build has no RDMA verbs; use iwarp://HOST:PORT/REGION, or install libibverbs-dev, librdmacm-dev and pkg-config and make build`,
	},
	{
		name: "an adapter's target, misspelt", code: 2,
		line: "pmnbd serve --target rdmas://127.0.0.1/idle --listen {socket}",
		says: `"rdmas://127.0.0.1/idle" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with half an IPv6 address", code: 2,
		line: "pmnbd serve --target iwarp://[::1/idle --listen {socket}",
		says: `"iwarp://[::1/idle" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with a word for a port", code: 2,
		line: "pmnbd serve --target iwarp://127.0.0.1:x/idle --listen {socket}",
		says: `"iwarp://127.0.0.1:x/idle" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with an invalid port", code: 2,
		line: "pmnbd serve --target iwarp://127.0.0.1:72040/idle --listen {socket}",
		says: `"iwarp://127.0.0.1:72040/idle" has no port of 0 to 65535: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with a query", code: 2,
		line: "pmnbd serve --target iwarp://127.0.0.1/idle?x=1 --listen {socket}",
		says: `"iwarp://127.0.0.1/idle?x=1" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with an empty name", code: 2,
		line: "pmnbd serve --target iwarp://@127.0.0.1/idle --listen {socket}",
		says: `"iwarp://@127.0.0.1/idle" has no target's name before the @: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with a password", code: 2,
		line: "pmnbd serve --target iwarp://p:q@127.0.0.1/idle --listen {socket}",
		says: `"iwarp://p:q@127.0.0.1/idle" has a colon before the @, where the target's name stands alone: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "a target with an invalid name", code: 2,
		line: "pmnbd serve --target iwarp://p%20m@127.0.0.1/idle --listen {socket}",
		says: `"p m" is no target's name: use letters, digits, dots, hyphens and underscores`,
	},
	{
		name: "a region with an invalid name", code: 2,
		line: "pmnbd serve --target iwarp://127.0.0.1/.idle --listen {socket}",
		says: `--target iwarp://127.0.0.1/.idle: region name ".idle": use letters, digits, '.', '_' and '-', and begin with a letter or digit`,
	},
	{
		name: "a target's region in two exports", code: 2,
		line: "pmnbd serve --target {uri}/idle --target {uri}/idle --export a --export b --listen {socket}",
		says: "--target {uri}/idle is given twice: a region is one export",
	},
	{
		name: "too many names", code: 2,
		line: "pmnbd serve --target {uri}/idle --export a --export b --listen {socket}",
		says: "--export is given 2 times and --target 1 time: name every export, or none",
	},
	{
		name: "a volatile region", code: 1,
		line: "pmnbd serve --target {uri}/fast --listen {socket}",
		says: `export "fast": the target refuses region fast: region is volatile: its contents are lost with the target's power; --allow-volatile permits that`,
	},
	{
		name: "a member of a mirror", code: 1,
		line: "pmnbd serve --target {uri}/left --listen {socket}",
		says: `export "left": the target refuses region left: region is a member of a mirror; name the targets of all its members, or open it alone with --degraded-single`,
	},
}
