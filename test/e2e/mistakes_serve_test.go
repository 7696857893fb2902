package e2e

// serveMistakes are mistakes with pmnbd serve.
var serveMistakes = []mistake{
	{
		name: "no command", code: 2,
		line: "pmnbd",
		says: "a command is missing: use serve, status, reload, mirror, attach, detach, id or key, or --help",
	},
	{
		name: "unknown command", code: 2,
		line: "pmnbd swerve",
		says: `unknown command "swerve": use serve, status, reload, mirror, attach, detach, id or key, or --help`,
	},
	{
		name: "unknown flag", code: 2,
		line: "pmnbd serve --tagret {uri}/good",
		says: "unknown flag: --tagret (flags here: …)",
	},
	{
		name: "surplus words", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} now",
		says: `"now" is one argument too many: this command takes flags only`,
	},
	{
		name: "no listener", code: 2,
		line: "pmnbd serve --target {uri}/idle",
		says: "nowhere to serve: use --listen unix:/PATH, --listen tcp:HOST:PORT or --ublk /dev/ublkbN",
	},
	{
		name: "an unsound method", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --method apm",
		says: `export "idle": the target refuses region idle: no sound method: apm is not sound here: only class pmem or protected is durable without the target's CPU`,
	},
	{
		name: "an invalid method", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --method fast",
		says: `--method: unknown method "fast": use gpspm, apm or flush`,
	},
	{
		name: "methods in a list", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --method gpspm,apm",
		says: `--method: unknown method "gpspm,apm": use gpspm, apm or flush`,
	},
	{
		name: "a key for a target without keys", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {keys} --id {id}",
		says: `export "idle": ask for the region: the target does not prove that it has this initiator's key: it serves without keys, or is not the target (it says: other epoch)`,
	},
	{
		name: "a key file without our key", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {keys} --id 6ba7b810-9dad-41d1-80b4-00c04fd430c8",
		says: "key file: {keys} has no key of this initiator: add a line that begins with 6ba7b810-9dad-41d1-80b4-00c04fd430c8, as pmnbd-target key new prints it",
	},
	{
		name: "keys of several targets, and no name", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {twokeys} --id {id}",
		says: `export "idle": key file: {twokeys} has no key of this initiator and target 127.0.0.1, but of pm1, pm2: name the target, as in iwarp://NAME@HOST/REGION, or add a line that begins with {id} 127.0.0.1`,
	},
	{
		name: "a target's name without a key", code: 2,
		line: "pmnbd serve --target iwarp://pm1@{targetport}/idle --listen {socket}",
		says: `export "idle": --target iwarp://pm1@{targetport}/idle names the target, and without a key nobody can tell whether it is that one: use --key-file`,
	},
	{
		name: "a key file that others read", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {openkeys} --id {id}",
		says: "key file: {openkeys} has mode 0644, so others may know the keys: make new ones, with mode 0600",
	},
	{
		name: "an invalid id", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --id me",
		says: `--id "me" is not a UUID: use one as uuidgen prints it`,
	},
	{
		name: "the nil UUID", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --id 00000000-0000-0000-0000-000000000000",
		says: `--id "00000000-0000-0000-0000-000000000000" is not a UUID: use one as uuidgen prints it`,
	},
	{
		name: "an invalid window", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window lots",
		says: `--window: "lots" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "a small window", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window 1M",
		says: "--window 1M: use 4M to 64G",
	},
	{
		name: "a window where a file is", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window-dir {data}",
		says: `export "idle": the directory of window files: mkdir {data}: not a directory`,
	},
	{
		name: "a state directory that is a file", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --state-dir {data}",
		says: "the state directory: mkdir {data}: not a directory",
	},
	{
		name: "a state directory with another id", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --state-dir {badstate}",
		says: "{badstate}/initiator-id holds no UUID: remove it, and a new one is made",
	},
	{
		name: "another user's state directory", code: 1, nobody: true,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --state-dir {rootonly}",
		says: "the state directory: open {rootonly}: permission denied",
	},
	{
		name: "no lanes", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --lanes 0",
		says: "--lanes 0: use 1 to 16",
	},
	{
		name: "lanes, not a number", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --lanes two",
		says: `--lanes: "two" is not a whole number`,
	},
	{
		name: "no clients", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --max-connections 0",
		says: "--max-connections 0: use 1 to 4096",
	},
	{
		name: "a time without a unit", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --loss-timeout 30",
		says: `--loss-timeout: "30" has no unit: use 30s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "an invalid time", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --drain-timeout soon",
		says: `--drain-timeout: "soon" is not a duration: use a number and a unit, such as 500ms, 30s, 5m or 1h`,
	},
	{
		name: "a negative time", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --loss-timeout -1s",
		says: "--loss-timeout -1s: use a duration, such as 5m, or 0",
	},
	{
		name: "no time to drain", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --drain-timeout 0s",
		says: "--drain-timeout 0s: use a duration, such as 30s",
	},
	{
		name: "no time to negotiate", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --handshake-timeout 0s",
		says: "--handshake-timeout 0s: use a duration, such as 10s",
	},
	{
		name: "a time for spinning without a unit", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --spin 50",
		says: `--spin: "50" has no unit: use 50s for seconds, or another of ms, s, m and h`,
	},
	{
		name: "a window in another directory", code: 3,
		line: "pmnbd serve --target {uri}/lost --listen {socket} --window-dir {empty}",
		says: `export "lost": this initiator had the window of region lost in directory {home}, and this start looks in {empty}: start it with the former directory again; without that window the acknowledged writes that no FLUSH covered are lost: --accept-loss goes on without it, once nobody uses the device any more`,
	},
	{
		name: "an empty id", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --id=",
		says: "--id is empty: give it a value, or leave the flag out",
	},
	{
		name: "an empty name of the key file", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file=",
		says: "--key-file is empty: give it a value, or leave the flag out",
	},
	{
		name: "no key file", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {new}",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "a key file without keys", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --key-file {nokeys}",
		says: "key file: {nokeys} has no key: each line is INITIATOR-ID TARGET-NAME KEY, as pmnbd-target key new prints it",
	},
	{
		name: "an empty method", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --method=",
		says: `--method: unknown method "": use gpspm, apm or flush`,
	},
	{
		name: "a large window", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window 100G",
		says: "--window 100G: use 4M to 64G",
	},
	{
		name: "a window beyond all sizes", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window 9000000T",
		says: `--window: "9000000T" is too large a size: at most 8388607T`,
	},
	{
		name: "a window with a wrong unit", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window 64MB",
		says: `--window: "64MB" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`,
	},
	{
		name: "an empty window directory", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --window-dir=",
		says: "--window-dir is empty: name a directory on a filesystem in memory, or leave the flag out for …. What an earlier pmnbd left there must not be passed by",
	},
	{
		name: "an empty state directory", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --state-dir=",
		says: "--state-dir is empty: name a directory, or leave the flag out for …",
	},
	{
		name: "many lanes", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --lanes 17",
		says: "--lanes 17: use 1 to 16",
	},
	{
		name: "lanes beyond all numbers", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --lanes 99999999999999999999",
		says: `--lanes: "99999999999999999999" is too large a number`,
	},
	{
		name: "too many clients", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --max-connections 4097",
		says: "--max-connections 4097: use 1 to 4096",
	},
	{
		name: "clients, not a number", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --max-connections many",
		says: `--max-connections: "many" is not a whole number`,
	},
	{
		name: "a switch with a value", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --read-only=maybe",
		says: `--read-only: "maybe" is neither true nor false`,
	},
	{
		name: "a negative time for spinning", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --spin -1s",
		says: "--spin -1s: use a duration, such as 50us, or 0",
	},
	{
		name: "a flag without its value", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen",
		says: "flag needs an argument: --listen (flags here: …)",
	},
	{
		name: "a negative time to negotiate", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --handshake-timeout -1s",
		says: "--handshake-timeout -1s: use a duration, such as 10s",
	},
	{
		name: "two mistakes", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --lanes 99 --window 1M",
		says: "--window 1M: use 4M to 64G; --lanes 99: use 1 to 16",
	},
}
