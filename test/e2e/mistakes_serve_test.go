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
		name: "no target", code: 2,
		line: "pmnbd serve --listen {socket}",
		says: "no region: name it with --target iwarp://HOST:PORT/REGION",
	},
	{
		name: "no listener", code: 2,
		line: "pmnbd serve --target {uri}/idle",
		says: "nowhere to serve: use --listen unix:/PATH, --listen tcp:HOST:PORT or --ublk /dev/ublkbN",
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
		name: "a listener that is a URI", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen tcp://127.0.0.1:10809",
		says: "--listen tcp://127.0.0.1:10809: this is not a URI: use tcp:HOST:PORT, such as tcp:127.0.0.1:10809, or unix:/PATH",
	},
	{
		name: "a listener that is a client's URI", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen nbd://127.0.0.1:10809",
		says: "--listen nbd://127.0.0.1:10809: this is not a URI: use tcp:HOST:PORT, such as tcp:127.0.0.1:10809, or unix:/PATH",
	},
	{
		name: "a listener of another kind", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen udp:1",
		says: `--listen "udp:1": use unix:/PATH or tcp:HOST:PORT`,
	},
	{
		name: "a listener that is a path", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen /run/x.sock",
		says: `--listen "/run/x.sock": use unix:/PATH or tcp:HOST:PORT`,
	},
	{
		name: "a listener without a port", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen tcp:127.0.0.1",
		says: "--listen tcp:127.0.0.1: use tcp:HOST:PORT, with brackets around IPv6, once for each address",
	},
	{
		name: "an invalid port", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen tcp:127.0.0.1:108090",
		says: "--listen tcp:127.0.0.1:108090: use tcp:HOST:PORT, with brackets around IPv6, once for each address",
	},
	{
		name: "listeners in a list", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket},tcp:10809",
		says: `--listen {socket},tcp:10809: a comma ends a path, and nothing may follow here; a path with a comma in it stands in double quotes: "{home}/new.sock,tcp:10809"; give --listen once for each address`,
	},
	{
		name: "beyond loopback", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen tcp:0.0.0.0:10809",
		says: "--listen tcp:0.0.0.0:10809 is not a loopback address, and everybody who reaches it owns the exports: use --tls=require --tls-verify-peer, so that clients authenticate, or --insecure-no-auth on a network of your own",
	},
	{
		name: "a long socket path", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen unix:/{long}",
		says: "--listen unix:/{long}: the path has 201 bytes, a socket's path at most 107",
	},
	{
		name: "a port in use", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen tcp:{taken}",
		says: "listen for NBD clients: listen tcp4 {taken}: bind: address already in use: another process listens there: end it, or use another port",
	},
	{
		name: "an address of another host", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen tcp:192.0.2.1:10809 --insecure-no-auth",
		says: "listen for NBD clients: listen tcp4 192.0.2.1:10809: bind: cannot assign requested address: this host has no such address",
	},
	{
		name: "a socket in use", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen unix:{goodsocket}",
		says: "listen for NBD clients: listen unix {goodsocket}: bind: address already in use: another process serves that socket: use another path",
	},
	{
		name: "a file for a socket", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen unix:{data}",
		says: "listen for NBD clients: listen unix {data}: bind: address already in use: it exists and is not a socket: use another path",
	},
	{
		name: "a directory for a socket", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen unix:{home}",
		says: "listen for NBD clients: listen unix {home}: bind: address already in use: it is a directory: use another path",
	},
	{
		name: "a socket in a missing directory", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen unix:{home}/none/s",
		says: "listen for NBD clients: listen unix {home}/none/s: bind: no such file or directory",
	},
	{
		name: "a socket where we may not write", code: 1, nobody: true,
		line: "pmnbd serve --target {uri}/idle --listen unix:/run/pmnbd-nothing.sock --state-dir {nobodys} --control unix:{nobodys}/c",
		says: "listen for NBD clients: listen unix /run/pmnbd-nothing.sock: bind: permission denied",
	},
	{
		name: "invalid rights", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --socket-mode rw",
		says: `--socket-mode "rw": use three octal digits, such as 660`,
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
		name: "no control socket", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --control tcp:1",
		says: `--control: "tcp:1" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "no address for metrics", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --metrics pm1",
		says: `--metrics: "pm1" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "metrics where a port is in use", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --metrics {taken}",
		says: "metrics: listen tcp4 {taken}: bind: address already in use; --metrics HOST:PORT puts them elsewhere",
	},
	{
		name: "an invalid TLS mode", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=yes",
		says: `--tls "yes": use off, on or require`,
	},
	{
		name: "TLS without certificates", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=require",
		says: "--tls=require needs --tls-certificates, a directory with server-cert.pem and server-key.pem, and ca-cert.pem to verify clients by",
	},
	{
		name: "certificates without TLS", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls-certificates {pki}",
		says: "--tls-certificates and --tls-verify-peer need --tls=on or --tls=require",
	},
	{
		name: "verification without TLS", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls-verify-peer",
		says: "--tls-certificates and --tls-verify-peer need --tls=on or --tls=require",
	},
	{
		name: "missing certificates", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=on --tls-certificates {empty}",
		says: "--tls-certificates: open {empty}/server-cert.pem: no such file or directory",
	},
	{
		name: "a TLS key that others read", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=on --tls-certificates {openpki}",
		says: "--tls-certificates: {openpki}/server-key.pem has mode 0644, so others may know the keys: make new ones, with mode 0600",
	},
	{
		name: "no CA", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=require --tls-verify-peer --tls-certificates {nocapki}",
		says: "--tls-certificates: open {nocapki}/ca-cert.pem: no such file or directory",
	},
}
