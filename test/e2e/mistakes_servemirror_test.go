package e2e

// serveMirrorMistakes are mistakes with the flags of pmnbd serve for mirrors.
var serveMirrorMistakes = []mistake{
	{
		name: "mirror: a member twice", code: 2,
		line: "pmnbd serve --target {uri}/idle,{uri}/idle --listen {socket}",
		says: "--target names {uri}/idle twice: the members of a mirror are different regions",
	},
	{
		name: "mirror: five members", code: 2,
		line: "pmnbd serve --target {uri}/a,{uri}/b,{uri}/c,{uri}/d,{uri}/e --listen {socket}",
		says: "--target names 5 regions: a mirror has at most 4 members",
	},
	{
		name: "mirror: a member in another export", code: 2,
		line: "pmnbd serve --target {uri}/idle,{uri}/mine --target {uri}/mine --listen {socket}",
		says: "--target {uri}/mine is given twice: a region is one export",
	},
	{
		name: "mirror: members that are none", code: 3,
		line: "pmnbd serve --target {uri}/idle,{uri}/large --listen {socket}",
		says: `export "idle": no target is a member of a mirror: see pmnbd mirror create`,
	},
	{
		name: "mirror: one member that is none", code: 3,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --degraded",
		says: `export "idle": no target is a member of a mirror: see pmnbd mirror create`,
	},
	{
		name: "mirror: served already", code: 1,
		line: "pmnbd serve --target {pair} --listen {socket}",
		says: `export "left": the lock of the region: another pmnbd of this host and id serves this region: process … has locked {home}/….lock; one pmnbd at a time serves a region for an initiator: stop that one first`,
	},
	{
		name: "mirror: --leg-timeout without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --leg-timeout 5s",
		says: "--leg-timeout is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --sync-timeout without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --sync-timeout 5s",
		says: "--sync-timeout is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --resync-rate without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --resync-rate 5M",
		says: "--resync-rate is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --async-lag without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --async-lag 5M",
		says: "--async-lag is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --async-lag-time without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --async-lag-time 5s",
		says: "--async-lag-time is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --async-drop without one", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --async-drop",
		says: "--async-drop is for mirrors: name all members in one --target, with commas between",
	},
	{
		name: "mirror: --leg-timeout without a unit", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --leg-timeout 5",
		says: `--leg-timeout: "5" has no unit: use 5s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "mirror: a negative --leg-timeout", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --leg-timeout -1s",
		says: "--leg-timeout -1s: use a duration, such as 10s, or 0",
	},
	{
		name: "mirror: --sync-timeout, not a time", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --sync-timeout long",
		says: `--sync-timeout: "long" is not a duration: use a number and a unit, such as 500ms, 30s, 5m or 1h`,
	},
	{
		name: "mirror: a negative --sync-timeout", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --sync-timeout -1s",
		says: "--sync-timeout -1s: use a duration, such as 1m, or 0",
	},
	{
		name: "mirror: --resync-rate, not a size", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --resync-rate fast",
		says: `--resync-rate: "fast" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "mirror: --async-lag, not a size", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-lag 5MB",
		says: `--async-lag: "5MB" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "mirror: a large --async-lag", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-lag 17M",
		says: "--async-lag 17M: use at most 16M, a quarter of --window, which holds what such a member lacks",
	},
	{
		name: "mirror: no --async-lag", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-lag 0",
		says: "--async-lag 0: use a size, such as 16M, or leave the flag out",
	},
	{
		name: "mirror: --async-lag-time without a unit", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-lag-time 5",
		says: `--async-lag-time: "5" has no unit: use 5s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "mirror: no --async-lag-time", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-lag-time 0s",
		says: "--async-lag-time 0s: use a duration, such as 5s",
	},
	{
		name: "mirror: --async-drop, a word", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --async-drop=never",
		says: `--async-drop: "never" is neither true nor false`,
	},
	{
		name: "mirror: both ways of degrading", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --degraded --degraded-single",
		says: "--degraded begins a mirror, and --degraded-single serves a member without it: use one of them",
	},
	{
		name: "mirror: a mirror alone", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --degraded-single",
		says: "--degraded-single is for one member of a mirror: name that alone in --target",
	},
	{
		name: "mirror: a member alone, with an arbiter", code: 2,
		line: "pmnbd serve --target {uri}/left --listen {socket} --degraded-single --arbiter etcd://e1:2379",
		says: "--arbiter is for mirrors, and --degraded-single serves a member without its mirror: use one of them",
	},
	{
		name: "mirror: without the arbiter, not degraded", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --without-arbiter",
		says: "--without-arbiter is for --degraded, and not beside --arbiter",
	},
	{
		name: "mirror: with and without an arbiter", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --degraded --without-arbiter --arbiter etcd://e1:2379",
		says: "--without-arbiter is for --degraded, and not beside --arbiter",
	},
	{
		name: "arbiter: empty", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter=",
		says: "--arbiter is empty: give it a value, or leave the flag out",
	},
	{
		name: "arbiter: of another kind", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter http://e1:2379",
		says: `--arbiter "http://e1:2379": use etcd://HOST:PORT, or etcds://HOST:PORT for TLS`,
	},
	{
		name: "arbiter: without a port", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1",
		says: `--arbiter "etcd://e1": "e1" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "arbiter: nothing behind the scheme", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://",
		says: `--arbiter "etcd://": "" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "arbiter: a word for a port", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:http",
		says: `--arbiter "etcd://e1:http": "e1:http" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "arbiter: an invalid port", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:23790000",
		says: `--arbiter "etcd://e1:23790000": "e1:23790000" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "arbiter: one of several without a port", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379,e2",
		says: `--arbiter "etcd://e1:2379,e2": "e2" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "arbiter: a standby without one", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --standby",
		says: "--standby waits for a lease at an arbiter: name that with --arbiter, or leave --standby out",
	},
	{
		name: "arbiter: a lease without one", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter-lease 10s",
		says: "--arbiter-lease is for an arbiter: name that with --arbiter, or leave --arbiter-lease out",
	},
	{
		name: "arbiter: gone, and a lease", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --degraded --without-arbiter --arbiter-lease 10s",
		says: "--arbiter-lease is for an arbiter: name that with --arbiter, or leave --arbiter-lease out",
	},
	{
		name: "arbiter: a lease in the file without one", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --config {toml:arbiter-lease = \"10s\"}",
		says: "--arbiter-lease is for an arbiter: name that with --arbiter, or leave --arbiter-lease out",
	},
	{
		name: "arbiter: a CA without one", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter-ca {text}",
		says: "--arbiter-ca is for an arbiter: name that with --arbiter, or leave --arbiter-ca out",
	},
	{
		name: "arbiter: a lease without a unit", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-lease 5",
		says: `--arbiter-lease: "5" has no unit: use 5s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "arbiter: a lease in parts", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-lease 2500ms",
		says: "--arbiter-lease 2.5s: use whole seconds, from 2s to 1m0s",
	},
	{
		name: "arbiter: a short lease", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-lease 1s",
		says: "--arbiter-lease 1s: use whole seconds, from 2s to 1m0s",
	},
	{
		name: "arbiter: a long lease", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-lease 1h",
		says: "--arbiter-lease 1h0m0s: use whole seconds, from 2s to 1m0s",
	},
	{
		name: "arbiter: a CA without TLS", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-ca {text}",
		says: "--arbiter-ca is for TLS, and --arbiter etcd://e1:2379 has none: use etcds://",
	},
	{
		name: "arbiter: a CA in the file without TLS", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --config {toml:arbiter = \"etcd://e1:2379\";arbiter-ca = \"/ca\"}",
		says: "--arbiter-ca is for TLS, and --arbiter etcd://e1:2379 has none: use etcds://",
	},
	{
		name: "arbiter: a certificate without TLS", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcd://e1:2379 --arbiter-cert {text} --arbiter-key {text}",
		says: "--arbiter-cert is for TLS, and --arbiter etcd://e1:2379 has none: use etcds://",
	},
	{
		name: "arbiter: a certificate without its key", code: 2,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcds://e1:2379 --arbiter-cert {text}",
		says: "--arbiter-cert and --arbiter-key belong together",
	},
	{
		name: "arbiter: no file with a CA", code: 1,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcds://e1:2379 --arbiter-ca {new}",
		says: "--arbiter-ca: open {new}: no such file or directory",
	},
	{
		name: "arbiter: a CA that is none", code: 1,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcds://e1:2379 --arbiter-ca {text}",
		says: "--arbiter-ca: {text} has no certificate",
	},
	{
		name: "arbiter: no certificate", code: 1,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcds://e1:2379 --arbiter-cert {new} --arbiter-key {new}",
		says: "--arbiter-cert and --arbiter-key: open {new}: no such file or directory",
	},
	{
		name: "arbiter: a certificate that is none", code: 1,
		line: "pmnbd serve --target {pair} --listen {socket} --arbiter etcds://e1:2379 --arbiter-cert {text} --arbiter-key {text}",
		says: "--arbiter-cert and --arbiter-key: {text} and {text}: tls: failed to find any PEM data in certificate input",
	},
}
