package e2e

// benchMistakes are mistakes with pmnbd-bench.
var benchMistakes = []mistake{
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
	{
		name: "bench: a short time", code: 2,
		line: "pmnbd-bench --time 1ms disk:{disk}",
		says: "--time 1ms: use 10ms to 1h",
	},
	{
		name: "bench: no rounds", code: 2,
		line: "pmnbd-bench --rounds 0 disk:{disk}",
		says: "--rounds 0: use 1 to 1000",
	},
	{
		name: "bench: no depth", code: 2,
		line: "pmnbd-bench --depth 0 nbd://{closed}/x",
		says: "--depth 0: use 1 to 1024",
	},
	{
		name: "bench: too many connections", code: 2,
		line: "pmnbd-bench --connections 65 nbd://{closed}/x",
		says: "--connections 65: use 1 to 64",
	},
	{
		name: "bench: an odd block", code: 2,
		line: "pmnbd-bench --block 3K nbd://{closed}/x",
		says: "--block 3K: use a power of two from 512 to 32M",
	},
	{
		name: "bench: a block that is no size", code: 2,
		line: "pmnbd-bench --block 4KB nbd://{closed}/x",
		says: `--block: "4KB" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "bench: a negative number of writes", code: 2,
		line: "pmnbd-bench --ranges -1 nbd://{closed}/x",
		says: "--ranges -1: use 1 to 1048576",
	},
	{
		name: "bench: a small area", code: 2,
		line: "pmnbd-bench --area 1K nbd://{closed}/x",
		says: "--area 1K: use 4K to 1T",
	},
	{
		name: "bench: a disk in another way", code: 2,
		line: "pmnbd-bench --depth 2 disk:{disk}",
		says: "disk:{disk}: a disk is measured with --depth 1, --connections 1 and --block 4096 only, without --ranges and --suite",
	},
	{
		name: "bench: a suite of one target", code: 2,
		line: "pmnbd-bench --suite nbd://{closed}/x",
		says: "--suite compares two targets, there are 1; those labelled floor and one-hop come behind them",
	},
	{
		name: "bench: a suite of other workloads", code: 2,
		line: "pmnbd-bench --suite --depth 2 a=nbd://{closed}/x b=nbd://{closed}/y",
		says: "--suite has workloads of its own: leave out --depth, --connections, --block and --ranges",
	},
	{
		name: "bench: an unknown shape", code: 2,
		line: "pmnbd-bench --suite --shape qd7 a=nbd://{closed}/x b=nbd://{closed}/y",
		says: `--shape "qd7": no row of --suite ends so`,
	},
	{
		name: "bench: a shape without the suite", code: 2,
		line: "pmnbd-bench --shape qd1 nbd://{closed}/x",
		says: "--shape is for --suite",
	},
	{
		name: "bench: an empty file", code: 2,
		line: "pmnbd-bench --json= disk:{disk}",
		says: "--json is empty: give it a value, or leave the flag out",
	},
	{
		name: "bench: a file in a missing directory", code: 1,
		line: "pmnbd-bench --json {new}/x disk:{disk}",
		says: "--json {new}/x: stat {new}: no such file or directory",
	},
	{
		name: "bench: a target twice", code: 2,
		line: "pmnbd-bench nbd://{closed}/x nbd://{closed}/x",
		says: `two targets are called "nbd://{closed}/x"; give them labels, as in a=nbd://{closed}/x`,
	},
	{
		name: "bench: an empty label", code: 2,
		line: "pmnbd-bench =disk:{disk}",
		says: `"=disk:{disk}": an empty label`,
	},
	{
		name: "bench: no directory", code: 2,
		line: "pmnbd-bench disk:",
		says: `"disk:" names no directory: use disk:DIR`,
	},
	{
		name: "bench: a file for a directory", code: 1,
		line: "pmnbd-bench disk:{data}",
		says: "disk:{data}: open {data}/pmnbd-bench-…: not a directory",
	},
	{
		name: "bench: a URI without a socket", code: 2,
		line: "pmnbd-bench nbd+unix:///x",
		says: `"nbd+unix:///x" names no socket: use nbd+unix:///NAME?socket=/PATH`,
	},
	{
		name: "bench: nobody serves", code: 1,
		line: "pmnbd-bench nbd://{closed}/x",
		says: "nbd://{closed}/x: dial tcp {closed}: connect: connection refused",
	},
	{
		name: "bench: a misspelt command", code: 2,
		line: "pmnbd-bench compar {disk}",
		says: `"compar" is not a target: use [LABEL=]nbd+unix:///NAME?socket=/PATH, [LABEL=]nbd://HOST:PORT/NAME or [LABEL=]disk:DIR`,
	},
	{
		name: "bench: process ids without a label", code: 2,
		line: "pmnbd-bench --pids 1 disk:{disk}",
		says: "--pids 1: use LABEL=PID[,PID...], with the label of a target",
	},
	{
		name: "bench compare: a short time", code: 2,
		line: "pmnbd-bench compare --time 1ms {disk}",
		says: "--time 1ms: use 10ms to 1h",
	},
	{
		name: "bench compare: a time without a unit", code: 2,
		line: "pmnbd-bench compare --time 5 {disk}",
		says: `--time: "5" has no unit: use 5s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "bench compare: no rounds", code: 2,
		line: "pmnbd-bench compare --rounds 0 {disk}",
		says: "--rounds 0: use 1 to 1000",
	},
	{
		name: "bench compare: no connections", code: 2,
		line: "pmnbd-bench compare --connections 0 {disk}",
		says: "--connections 0: use 1 to 64",
	},
	{
		name: "bench compare: a small area", code: 2,
		line: "pmnbd-bench compare --area 1M {disk}",
		says: "--area 1M: use 4M to 1T",
	},
	{
		name: "bench compare: unknown flag", code: 2,
		line: "pmnbd-bench compare --yaml {disk}",
		says: "unknown flag: --yaml (flags here: …)",
	},
	{
		name: "bench compare: a place twice", code: 2,
		line: "pmnbd-bench compare {disk} {disk}",
		says: `two places are called "{disk}"; give them labels, as in a={disk}`,
	},
	{
		name: "bench compare: an empty label", code: 2,
		line: "pmnbd-bench compare =x",
		says: `"=x": an empty label`,
	},
	{
		name: "bench compare: an empty place", code: 2,
		line: "pmnbd-bench compare a=",
		says: `"a=" names no place: use an NBD URI, a block device or a directory`,
	},
	{
		name: "bench compare: another kind of device", code: 2,
		line: "pmnbd-bench compare x=/dev/null",
		says: "x: /dev/null is neither a directory nor a block device",
	},
	{
		name: "bench compare: nobody serves", code: 1,
		line: "pmnbd-bench compare nbd://{closed}/x",
		says: "nbd://{closed}/x: dial tcp {closed}: connect: connection refused",
	},
	{
		name: "bench compare: a report in a missing directory", code: 1,
		line: "pmnbd-bench compare --html {new}/x {disk}",
		says: "--html {new}/x: stat {new}: no such file or directory",
	},
	{
		name: "bench compare: an empty report", code: 2,
		line: "pmnbd-bench compare --json= {disk}",
		says: "--json is empty: give it a value, or leave the flag out",
	},
	{
		name: "bench methods: a short time", code: 2,
		line: "pmnbd-bench methods --time 1us {uri}/idle",
		says: "--time 1µs: use 1ms to 1h",
	},
	{
		name: "bench methods: no rounds", code: 2,
		line: "pmnbd-bench methods --rounds 0 {uri}/idle",
		says: "--rounds 0: use 1 to 1000",
	},
	{
		name: "bench methods: a file in a missing directory", code: 1,
		line: "pmnbd-bench methods --json {new}/x {uri}/idle",
		says: "--json {new}/x: stat {new}: no such file or directory",
	},
	{
		name: "bench methods: no region", code: 2,
		line: "pmnbd-bench methods {uri}",
		says: `target "{uri}" names no region: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "bench methods: a label twice", code: 2,
		line: "pmnbd-bench methods a={uri}/idle a={uri}/large",
		says: `two targets are called "a"; give them labels, as in a={uri}/large`,
	},
	{
		name: "bench methods: an empty key file", code: 2,
		line: "pmnbd-bench methods --key-file= {uri}/idle",
		says: "--key-file is empty: give it a value, or leave the flag out",
	},
	{
		name: "bench methods: no key file", code: 1,
		line: "pmnbd-bench methods --key-file {new} {uri}/idle",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "bench methods: an encrypted target without a key", code: 2,
		line: "pmnbd-bench methods iwarps://{targetport}/idle",
		says: "iwarps://{targetport}/idle needs --key-file: without a key nobody knows who is at the other end",
	},
	{
		name: "bench methods: keys of other targets", code: 1,
		line: "pmnbd-bench methods --key-file {twokeys} {uri}/idle",
		says: "the key file has no key of initiator {id} and target 127.0.0.1, for {uri}/idle: name the target, as in iwarp://NAME@HOST/REGION",
	},
	{
		name: "bench methods: an adapter's target without verbs", code: 2,
		line: "pmnbd-bench methods rdma://127.0.0.1/idle",
		says: `"rdma://127.0.0.1/idle": this build has no RDMA verbs; use iwarp://HOST:PORT/REGION, or install libibverbs-dev, librdmacm-dev and pkg-config and make build`,
	},
	{
		name: "bench methods: a missing target", code: 1,
		line: "pmnbd-bench methods iwarp://{closed}/idle",
		says: "iwarp://{closed}/idle: gpspm: connect to {closed}: connect: connection refused: is pmnbd-target serving there?",
	},
	{
		name: "bench methods: a missing region", code: 1,
		line: "pmnbd-bench methods {uri}/none",
		says: `{uri}/none: gpspm: the target refuses region none: unknown region: the target serves no region "none"`,
	},
	{
		name: "bench methods: a volatile region", code: 1,
		line: "pmnbd-bench methods {uri}/fast",
		says: "{uri}/fast: gpspm: the target refuses region fast: region is volatile: its contents are lost with the target's power; --allow-volatile permits that",
	},
	{
		name: "bench floor: no listener", code: 2,
		line: "pmnbd-bench floor",
		says: "--listen is missing: use unix:/PATH or HOST:PORT",
	},
	{
		name: "bench floor: surplus words", code: 2,
		line: "pmnbd-bench floor 127.0.0.1:0",
		says: `"127.0.0.1:0" is one argument too many: this command takes flags only`,
	},
	{
		name: "bench floor: a port alone", code: 2,
		line: "pmnbd-bench floor --listen 10809",
		says: `--listen "10809": use unix:/PATH or HOST:PORT`,
	},
	{
		name: "bench floor: an empty path", code: 2,
		line: "pmnbd-bench floor --listen unix:",
		says: "--listen unix: names no path",
	},
	{
		name: "bench floor: a port in use", code: 1,
		line: "pmnbd-bench floor --listen {taken}",
		says: "listen tcp {taken}: bind: address already in use: another process listens there: end it, or use another port",
	},
	{
		name: "bench floor: behind a host", code: 2,
		line: "pmnbd-bench floor --listen 127.0.0.1:0 --behind pm1",
		says: `--behind "pm1": use HOST:PORT`,
	},
	{
		name: "bench charts: no file named", code: 2,
		line: "pmnbd-bench charts",
		says: "FILE is missing: give FILE DIR",
	},
	{
		name: "bench charts: no directory named", code: 2,
		line: "pmnbd-bench charts {nofigures}",
		says: "DIR is missing: give FILE DIR",
	},
	{
		name: "bench charts: surplus words", code: 2,
		line: "pmnbd-bench charts {nofigures} {empty} now",
		says: `"now" is one argument too many: give FILE DIR`,
	},
	{
		name: "bench charts: no file", code: 1,
		line: "pmnbd-bench charts {new} {empty}",
		says: "open {new}: no such file or directory",
	},
	{
		name: "bench charts: a directory for a file", code: 1,
		line: "pmnbd-bench charts {home} {empty}",
		says: "read {home}: is a directory",
	},
	{
		name: "bench charts: another file", code: 1,
		line: "pmnbd-bench charts {text} {empty}",
		says: "{text} has no figures of scripts/bench-growth: invalid character 'o' in literal null (expecting 'u')",
	},
	{
		name: "bench charts: no figures", code: 1,
		line: "pmnbd-bench charts {nofigures} {empty}",
		says: "{nofigures} has no figures of scripts/bench-growth",
	},
}
