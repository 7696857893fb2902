package e2e

// mirrorMistakes are mistakes with the other commands of pmnbd mirror.
var mirrorMistakes = []mistake{
	{
		name: "mirror: no command", code: 2,
		line: "pmnbd mirror",
		says: "a command is missing: use create, status, verify, add, remove, replace, set, discard or forget, or --help",
	},
	{
		name: "mirror: unknown command", code: 2,
		line: "pmnbd mirror make",
		says: `unknown command "make": use create, status, verify, add, remove, replace, set, discard or forget, or --help`,
	},
	{
		name: "mirror status: surplus words", code: 2,
		line: "pmnbd mirror status a b",
		says: `"b" is one argument too many: give [NAME]`,
	},
	{
		name: "mirror status: no mirror", code: 1,
		line: "pmnbd mirror status --control {controls}",
		says: "no pmnbd of this machine serves a mirror: looked at {controls}. --target iwarp://HOST:PORT/REGION,… asks the targets of one",
	},
	{
		name: "mirror status: an export that is no mirror", code: 1,
		line: "pmnbd mirror status good --control {controls}",
		says: `no pmnbd of this machine serves mirror "good": looked at {controls}. --target iwarp://HOST:PORT/REGION,… asks the targets of one`,
	},
	{
		name: "mirror status: no control socket", code: 2,
		line: "pmnbd mirror status --control /run/x",
		says: `--control: "/run/x" is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR`,
	},
	{
		name: "mirror status: a target that is no address", code: 2,
		line: "pmnbd mirror status --target pm1",
		says: `"pm1" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror status: a region that is no member", code: 1,
		line: "pmnbd mirror status --target {uri}/idle --control {controls} --state-dir {home}",
		says: "no target is a member of a mirror: see pmnbd mirror create",
	},
	{
		name: "mirror status: a missing region", code: 1,
		line: "pmnbd mirror status --target {uri}/none --control {controls} --state-dir {home}",
		says: `waits for members: none was reached; the target refuses region none: unknown region: the target serves no region "none"`,
	},
	{
		name: "mirror status: a missing target", code: 1,
		line: "pmnbd mirror status --target iwarp://{closed}/idle --control {controls} --state-dir {home}",
		says: "waits for members: none was reached; connect to {closed}: connect: connection refused: is pmnbd-target serving there?",
	},
	{
		name: "mirror verify: surplus words", code: 2,
		line: "pmnbd mirror verify a b",
		says: `"b" is one argument too many: give [NAME]`,
	},
	{
		name: "mirror verify: no mirror", code: 1,
		line: "pmnbd mirror verify --control {controls}",
		says: "no pmnbd of this machine serves a mirror: looked at {controls}. A mirror is compared while it is served",
	},
	{
		name: "mirror verify: an export that is no mirror", code: 1,
		line: "pmnbd mirror verify good --control {controls}",
		says: `no pmnbd of this machine serves mirror "good": looked at {controls}. A mirror is compared while it is served`,
	},
	{
		name: "mirror verify: from nothing", code: 2,
		line: "pmnbd mirror verify --from= --control {mirrors}",
		says: "--from is empty: give it a value, or leave the flag out",
	},
	{
		name: "mirror verify: from a letter of nobody", code: 2,
		line: "pmnbd mirror verify --from C --control {mirrors}",
		says: `--from "C": use the letter of a member, one of AB, or its target as --target of pmnbd serve has it`,
	},
	{
		name: "mirror verify: from a host", code: 2,
		line: "pmnbd mirror verify --from pm1 --control {mirrors}",
		says: `--from "pm1": use the letter of a member, one of AB, or its target as --target of pmnbd serve has it`,
	},
	{
		name: "mirror verify: from a stranger", code: 2,
		line: "pmnbd mirror verify --from {uri}/idle --control {mirrors}",
		says: "--from {uri}/idle is no member of the mirror",
	},
	{
		name: "mirror add: nothing", code: 2,
		line: "pmnbd mirror add",
		says: "iwarp://HOST:PORT/REGION is missing: give [NAME] iwarp://HOST:PORT/REGION",
	},
	{
		name: "mirror add: surplus words", code: 2,
		line: "pmnbd mirror add pair {uri}/idle {uri}/large",
		says: `"{uri}/large" is one argument too many: give [NAME] iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror add: a host", code: 2,
		line: "pmnbd mirror add pm3 --control {mirrors}",
		says: `"pm3" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror add: a list", code: 2,
		line: "pmnbd mirror add {uri}/idle,{uri}/large --control {mirrors}",
		says: `"{uri}/idle,{uri}/large" has more than a region's name behind the host: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror add: to no mirror", code: 1,
		line: "pmnbd mirror add {uri}/idle --control {controls}",
		says: "no pmnbd of this machine serves a mirror: looked at {controls}",
	},
	{
		name: "mirror add: to an export that is no mirror", code: 1,
		line: "pmnbd mirror add good {uri}/idle --control {controls}",
		says: `no pmnbd of this machine serves mirror "good": looked at {controls}`,
	},
	{
		name: "mirror add: a member", code: 1,
		line: "pmnbd mirror add {uri}/left --control {mirrors} --state-dir {home}",
		says: "{uri}/left is member A of mirror pair already",
	},
	{
		name: "mirror add: a region of another size", code: 1,
		line: "pmnbd mirror add {uri}/large --control {mirrors} --state-dir {home}",
		says: "region large at {targetport} has 8388608 bytes, and the mirror has 4194304: members are of one size",
	},
	{
		name: "mirror add: a region that is served", code: 1,
		line: "pmnbd mirror add {uri}/good --control {mirrors} --state-dir {home}",
		says: "the lock of the region: another pmnbd of this host and id serves this region: process … has locked {home}/….lock; one pmnbd at a time serves a region for an initiator: stop that one first",
	},
	{
		name: "mirror add: a region whose window is somewhere", code: 3,
		line: "pmnbd mirror add {uri}/lost --control {mirrors} --state-dir {home}",
		says: "the last session of region lost at {targetport} was not closed: what a pmnbd had acknowledged there and not flushed may be in its window still. Serve the region and end that pmnbd in order: --accept-loss goes on without it, once nobody uses the device any more",
	},
	{
		name: "mirror add: a missing region", code: 1,
		line: "pmnbd mirror add {uri}/none --control {mirrors} --state-dir {home}",
		says: `region none at {targetport}: the target refuses region none: unknown region: the target serves no region "none"`,
	},
	{
		name: "mirror add: a missing target", code: 1,
		line: "pmnbd mirror add iwarp://{closed}/idle --control {mirrors} --state-dir {home}",
		says: "region idle at {closed}: connect to {closed}: connect: connection refused: is pmnbd-target serving there?",
	},
	{
		name: "mirror add: an invalid id", code: 2,
		line: "pmnbd mirror add {uri}/idle --control {mirrors} --id me",
		says: `--id "me" is not a UUID: use one as uuidgen prints it`,
	},
	{
		name: "mirror remove: nothing", code: 2,
		line: "pmnbd mirror remove",
		says: "LEG is missing: give [NAME] LEG",
	},
	{
		name: "mirror remove: surplus words", code: 2,
		line: "pmnbd mirror remove pair A B",
		says: `"B" is one argument too many: give [NAME] LEG`,
	},
	{
		name: "mirror remove: a letter of nobody", code: 1,
		line: "pmnbd mirror remove C --control {mirrors}",
		says: "mirror pair has no member C: it has AB",
	},
	{
		name: "mirror remove: not a letter of members", code: 2,
		line: "pmnbd mirror remove E --control {mirrors}",
		says: `"E" is neither a member's letter, A to D, nor a URI such as iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror remove: a host", code: 2,
		line: "pmnbd mirror remove pm1 --control {mirrors}",
		says: `"pm1" is neither a member's letter, A to D, nor a URI such as iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror remove: a stranger", code: 1,
		line: "pmnbd mirror remove {uri}/idle --control {mirrors}",
		says: "no member of mirror pair is at {uri}/idle: pmnbd mirror status pair shows them",
	},
	{
		name: "mirror remove: one of two", code: 1,
		line: "pmnbd mirror remove A --control {mirrors}",
		says: "remove A: a mirror has two members at least",
	},
	{
		name: "mirror remove: from no mirror", code: 1,
		line: "pmnbd mirror remove A --control {controls}",
		says: "no pmnbd of this machine serves a mirror: looked at {controls}",
	},
	{
		name: "mirror replace: nothing", code: 2,
		line: "pmnbd mirror replace",
		says: "OLD is missing: give [NAME] OLD iwarp://HOST:PORT/REGION",
	},
	{
		name: "mirror replace: by nothing", code: 2,
		line: "pmnbd mirror replace A",
		says: "iwarp://HOST:PORT/REGION is missing: give [NAME] OLD iwarp://HOST:PORT/REGION",
	},
	{
		name: "mirror replace: surplus words", code: 2,
		line: "pmnbd mirror replace pair A {uri}/idle now",
		says: `"now" is one argument too many: give [NAME] OLD iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror replace: by a letter", code: 2,
		line: "pmnbd mirror replace A B --control {mirrors}",
		says: `"B" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror replace: a letter of nobody", code: 1,
		line: "pmnbd mirror replace C {uri}/idle --control {mirrors}",
		says: "mirror pair has no member C: it has AB",
	},
	{
		name: "mirror replace: by a member", code: 1,
		line: "pmnbd mirror replace A {uri}/right --control {mirrors} --state-dir {home}",
		says: "{uri}/right is member B of mirror pair already",
	},
	{
		name: "mirror set: nothing", code: 2,
		line: "pmnbd mirror set",
		says: "--min-copies is missing: use 1 to 4, and not more than there are members in sync",
	},
	{
		name: "mirror set: surplus words", code: 2,
		line: "pmnbd mirror set --min-copies 2 pair other",
		says: `"other" is one argument too many: give [NAME]`,
	},
	{
		name: "mirror set: no copies", code: 2,
		line: "pmnbd mirror set --min-copies 0",
		says: "--min-copies 0: use 1 to 4, and not more than there are members in sync",
	},
	{
		name: "mirror set: more copies than a mirror has", code: 2,
		line: "pmnbd mirror set --min-copies 5",
		says: "--min-copies 5: use 1 to 4, and not more than there are members in sync",
	},
	{
		name: "mirror set: more copies than this mirror has", code: 1,
		line: "pmnbd mirror set --min-copies 3 --control {mirrors}",
		says: "set the least number of copies to 3: the mirror has not so many members",
	},
	{
		name: "mirror set: of another mirror", code: 1,
		line: "pmnbd mirror set other --min-copies 2 --control {mirrors}",
		says: `no pmnbd of this machine serves mirror "other": looked at {mirrors}`,
	},
	{
		name: "mirror discard: nothing", code: 2,
		line: "pmnbd mirror discard --target {pair}",
		says: "LEG is missing: give LEG",
	},
	{
		name: "mirror discard: no targets", code: 2,
		line: "pmnbd mirror discard {uri}/left",
		says: "name all members in --target, those to keep and the one to discard",
	},
	{
		name: "mirror discard: the only one", code: 2,
		line: "pmnbd mirror discard --target {uri}/left {uri}/left",
		says: "name all members in --target, those to keep and the one to discard",
	},
	{
		name: "mirror discard: a stranger", code: 2,
		line: "pmnbd mirror discard --target {pair} {uri}/idle",
		says: "{uri}/idle is none of the targets",
	},
	{
		name: "mirror discard: a letter", code: 2,
		line: "pmnbd mirror discard --target {pair} A",
		says: `LEG: "A" is not an address: use iwarp://HOST:PORT/REGION`,
	},
	{
		name: "mirror discard: nobody to keep", code: 1,
		line: "pmnbd mirror discard --target {uri}/idle,{uri}/none {uri}/idle --state-dir {home}",
		says: "no other member was reached that could be kept: waits for members: none was reached",
	},
	{
		name: "mirror discard: what is no own way", code: 1,
		line: "pmnbd mirror discard --target {pair} {uri}/left --state-dir {home}",
		says: "left at {targetport} did not go its own way: pmnbd serve copies to it what it lacks, or from it",
	},
	{
		name: "mirror forget: nothing", code: 2,
		line: "pmnbd mirror forget",
		says: "name members of the mirror with --target, and the etcd with --arbiter",
	},
	{
		name: "mirror forget: surplus words", code: 2,
		line: "pmnbd mirror forget {uri}/left",
		says: `"{uri}/left" is one argument too many: this command takes flags only`,
	},
	{
		name: "mirror forget: no arbiter", code: 2,
		line: "pmnbd mirror forget --target {pair}",
		says: "name members of the mirror with --target, and the etcd with --arbiter",
	},
	{
		name: "mirror forget: no targets", code: 2,
		line: "pmnbd mirror forget --arbiter etcd://e1:2379",
		says: "name members of the mirror with --target, and the etcd with --arbiter",
	},
	{
		name: "mirror forget: an arbiter of another kind", code: 2,
		line: "pmnbd mirror forget --target {pair} --arbiter e1:2379",
		says: `--arbiter "e1:2379": use etcd://HOST:PORT, or etcds://HOST:PORT for TLS`,
	},
	{
		name: "mirror forget: a region that is no member", code: 1,
		line: "pmnbd mirror forget --target {uri}/idle --arbiter etcd://{closed} --state-dir {home}",
		says: "no target is a member of a mirror: see pmnbd mirror create",
	},
	{
		name: "mirror forget: a mirror that is served", code: 1,
		line: "pmnbd mirror forget --target {pair} --arbiter etcd://{closed} --state-dir {home}",
		says: "the lock of the region: another pmnbd of this host and id serves this region: process … has locked {home}/….lock; one pmnbd at a time serves a region for an initiator: stop that one first",
	},
}
