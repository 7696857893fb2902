package e2e

// listenMistakes are mistakes with where pmnbd serve listens, and with the block devices that it makes.
var listenMistakes = []mistake{
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
	{
		name: "an empty listener", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen=",
		says: `--listen "": use unix:/PATH or tcp:HOST:PORT`,
	},
	{
		name: "a listener twice", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --listen {socket}",
		says: "--listen {socket} is given twice",
	},
	{
		name: "a port twice", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen tcp:{closed} --listen tcp:{closed}",
		says: "--listen tcp:{closed} is given twice",
	},
	{
		name: "rights beyond 777", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --socket-mode 888",
		says: `--socket-mode "888": use three octal digits, such as 660`,
	},
	{
		name: "empty rights", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --socket-mode=",
		says: `--socket-mode "": use three octal digits, such as 660`,
	},
	{
		name: "an empty control socket", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --control=",
		says: `--control: "" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "a long control socket", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --control unix:/{long}",
		says: "--control: a socket's path has at most 107 bytes",
	},
	{
		name: "an empty address for metrics", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --metrics=",
		says: `--metrics: "" is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6`,
	},
	{
		name: "an unknown level", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --log-level loud",
		says: `--log-level: "loud" is not a level: use debug, info, warn or error`,
	},
	{
		name: "an empty TLS mode", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=",
		says: `--tls "": use off, on or require`,
	},
	{
		name: "an empty directory name of certificates", code: 2,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --tls=on --tls-certificates=",
		says: "--tls-certificates is empty: give it a value, or leave the flag out",
	},
	{
		name: "no block device", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk=",
		says: `--ublk : "" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "another kind of block device", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk /dev/nbd0",
		says: `--ublk /dev/nbd0: "/dev/nbd0" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "a block device without a number", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk /dev/ublkb",
		says: `--ublk /dev/ublkb: "/dev/ublkb" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "a number for a block device", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk 0",
		says: `--ublk 0: "0" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "a block device with a leading zero", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk /dev/ublkb00",
		says: `--ublk /dev/ublkb00: "/dev/ublkb00" is not a ublk device: use /dev/ublkb0, /dev/ublkb1, …`,
	},
	{
		name: "a block device of an unknown export", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk other=/dev/ublkb0",
		says: `--ublk other=/dev/ublkb0: no export is called "other"`,
	},
	{
		name: "a block device of several exports", code: 2,
		line: "pmnbd serve --target {uri}/idle --target {uri}/mine --ublk /dev/ublkb0",
		says: "--ublk /dev/ublkb0: say which of the exports, EXPORT=/dev/ublkb0",
	},
	{
		name: "two block devices of an export", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk /dev/ublkb0 --ublk /dev/ublkb1",
		says: `--ublk /dev/ublkb1: export "idle" is to be /dev/ublkb0 already, and can be one ublk device only`,
	},
	{
		name: "a block device twice", code: 2,
		line: "pmnbd serve --target {uri}/idle --ublk /dev/ublkb0 --ublk /dev/ublkb0",
		says: "--ublk /dev/ublkb0: the device is given twice",
	},
	{
		name: "a control socket in use", code: 1,
		line: "pmnbd serve --target {uri}/idle --listen {socket} --control {mirrors}",
		says: "control socket: listen unix {home}/mirrors: bind: address already in use: another process serves that socket: use another path; --control unix:/PATH puts it elsewhere",
	},
}
