package e2e

// mirrorCreateMistakes are mistakes with pmnbd mirror create.
var mirrorCreateMistakes = []mistake{
	{
		name: "mirror create: no target", code: 2,
		line: "pmnbd mirror create",
		says: "a mirror has two members at least: give --target for each",
	},
	{
		name: "mirror create: one target", code: 2,
		line: "pmnbd mirror create --target {uri}/idle",
		says: "a mirror has two members at least: give --target for each",
	},
	{
		name: "mirror create: targets without the flag", code: 2,
		line: "pmnbd mirror create {uri}/idle {uri}/large",
		says: `"{uri}/idle" is one argument too many: this command takes flags only`,
	},
	{
		name: "mirror create: a target twice", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/idle",
		says: "--target names {uri}/idle twice: the members of a mirror are different regions",
	},
	{
		name: "mirror create: five targets", code: 2,
		line: "pmnbd mirror create --target {uri}/a,{uri}/b,{uri}/c,{uri}/d,{uri}/e",
		says: "--target names 5 regions: a mirror has at most 4 members",
	},
	{
		name: "mirror create: a target that is no address", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target pm2",
		says: `"pm2" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror create: a target that follows and is no address", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --async-target pm2",
		says: `"pm2" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror create: all of them follow", code: 2,
		line: "pmnbd mirror create --async-target {uri}/idle --async-target {uri}/large",
		says: "--async-target follows other members: give --target for at least one",
	},
	{
		name: "mirror create: too many copies", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --min-copies 3",
		says: "--min-copies 3: use 1 to 2, the number of members that can be in sync",
	},
	{
		name: "mirror create: no copies", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --min-copies 0",
		says: "--min-copies 0: use 1 to 2, the number of members that can be in sync",
	},
	{
		name: "mirror create: copies, not a number", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --min-copies two",
		says: `--min-copies: "two" is not a whole number`,
	},
	{
		name: "mirror create: from a stranger", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --from {uri}/mine",
		says: "--from {uri}/mine is none of the targets",
	},
	{
		name: "mirror create: from a letter", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --from A",
		says: `--from: "A" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror create: from a list", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --from {uri}/idle,{uri}/large",
		says: `--from: "{uri}/idle,{uri}/large" has more than a region's name behind the host: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror create: from nothing", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --from=",
		says: "--from is empty: give it a value, or leave the flag out",
	},
	{
		name: "mirror create: an invalid id", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --id me",
		says: `--id "me" is not a UUID: use one as uuidgen prints it`,
	},
	{
		name: "mirror create: an empty state directory", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --state-dir=",
		says: "--state-dir is empty: name a directory, or leave the flag out for …",
	},
	{
		name: "mirror create: a file for a state directory", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --state-dir {data}",
		says: "the state directory: mkdir {data}: not a directory",
	},
	{
		name: "mirror create: no key file", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --state-dir {home} --key-file {new}",
		says: "key file: open {new}: no such file or directory",
	},
	{
		name: "mirror create: an encrypted target without a key", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target iwarps://127.0.0.1/large --state-dir {home}",
		says: "--target iwarps://127.0.0.1:7205/large needs --key-file: without a key nobody knows who is at the other end, and anybody in between could decrypt the connection",
	},
	{
		name: "mirror create: an adapter's target without verbs", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target rdma://127.0.0.1/large",
		says: `"rdma://127.0.0.1/large": this build has no RDMA verbs; use iwarp://HOST:PORT/REGION, or install libibverbs-dev, librdmacm-dev and pkg-config and make build`,
	},
	{
		name: "mirror create: an arbiter without a port", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --arbiter etcd://e1",
		says: `--arbiter "etcd://e1": "e1" is not HOST:PORT; etcd's usual port is 2379`,
	},
	{
		name: "mirror create: an empty arbiter", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --arbiter=",
		says: "--arbiter is empty: give it a value, or leave the flag out",
	},
	{
		name: "mirror create: a CA without an arbiter", code: 2,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --arbiter-ca {text}",
		says: "--arbiter-ca is for an arbiter: name that with --arbiter, or leave --arbiter-ca out",
	},
	{
		name: "mirror create: a missing target", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target iwarp://{closed}/large --state-dir {home}",
		says: "region large at {closed}: connect to {closed}: connect: connection refused: is pmnbd-target serving there?",
	},
	{
		name: "mirror create: a missing region", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/none --state-dir {home}",
		says: `region none at {targetport}: the target refuses region none: unknown region: the target serves no region "none"`,
	},
	{
		name: "mirror create: a region that is served", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/good --state-dir {home}",
		says: "the lock of the region: another pmnbd of this host and id serves this region: process … has locked {home}/….lock; one pmnbd at a time serves a region for an initiator: stop that one first",
	},
	{
		name: "mirror create: a region of another initiator", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/mine --state-dir {home}",
		says: "region mine at {targetport}: the target refuses region mine: initiator not allowed: the target does not allow the region to initiator …",
	},
	{
		name: "mirror create: regions of two sizes", code: 1,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/large --state-dir {home}",
		says: "region large at {targetport} has 8388608 bytes, and idle at {targetport} has 4194304: the members of a mirror are of one size",
	},
	{
		name: "mirror create: a region whose window is somewhere", code: 3,
		line: "pmnbd mirror create --target {uri}/idle --target {uri}/lost --state-dir {home}",
		says: "the last session of region lost at {targetport} was not closed: what a pmnbd had acknowledged there and not flushed may be in its window still. Serve the region and end that pmnbd in order: --accept-loss goes on without it, once nobody uses the device any more",
	},
}
