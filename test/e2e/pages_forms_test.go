package e2e

// hosts gives one machine the addresses of pm1 to pm4. A page whose commands name several hosts, and
// do nothing that tells these apart, runs on it.
const hosts = `$ for n in 2 3 4 5; do ip addr add 192.0.2.$n/32 dev lo; done
`

// target has a machine serve a region of its own as NAME, at the address of that host.
func target(host, region string) string {
	return host + `$ pmnbd-target serve --insecure-no-auth --listen iwarp://` + host + ` --region ` + region + `=/srv/` + host + `,size=16M
ready …
`
}

// served is a region log, and an export of it.
const served = `target$ pmnbd-target serve --region log=/srv/log,size=16M
ready …
app$ pmnbd serve --target iwarp://127.0.0.1/log --listen unix:/tmp/log.sock
ready …
`

// references are plays of pages that explain, and show a few commands on the way.
var references = []play{
	{
		page: "docs/configuration.md", machines: []string{"app1"},
		before: `$ install -Dm 644 dist/target.toml /etc/pmnbd/target.toml
$ install -Dm 644 dist/pmnbd.toml /etc/pmnbd/log.toml
$ install -d /var/lib/pmnbd-target
$ pmnbd-target region create log /var/lib/pmnbd-target/log --size 16M
created …
`,
	},
	{page: "docs/durability.md", machines: []string{"app1"}, before: served},
	{
		page: "docs/mirror.md", machines: []string{"app1"},
		before: hosts + target("pm1", "log") + target("pm2", "log") + target("pm3", "log") + target("pm4", "log"),
		skip: map[string]string{
			"pmnbd mirror create --target iwarp://pm1/log --target iwarp://pm2/log --": "TestMirrorFollows and TestStandby make such ones",
			"pmnbd serve --target iwarp://pm1/log,iwarp://pm2/log,":                    "TestMirrorFollows serves one",
			"pmnbd serve --target iwarp://pm1/log,iwarp://pm2/log --arbiter":           "needs an etcd: TestStandby",
			"pmnbd serve --target iwarp://pm1/log --export":                            "test/lab's TestMdFsync runs the recipe",
			"pmnbd serve --target iwarp://pm2/log --export":                            "the same",
			"pmnbd attach log1":              "the same",
			"mdadm --create":                 "the same",
			"pmnbd mirror discard":           "needs members that went their own ways: TestMirrorDiscard",
			"pmnbd mirror verify log --from": "needs members that differ: TestMirrorVerify",
		},
	},
	{
		page: "docs/nbd.md", machines: []string{"app1"},
		before: hosts + "$ install -d /run/nbd\n" + target("pm1", "r7") + target("pm2", "r7"),
	},
	{
		page: "docs/regions.md", machines: []string{"app1"},
		skip: map[string]string{"pmnbd-target region create log /dev/dax0.0": "needs device-dax: test/lab"},
	},
	{
		page: "docs/security.md", machines: []string{"app1"},
		before: hosts + `$ install -d /etc/pmnbd && umask 077
$ pmnbd-target key new --initiator "$(pmnbd id)" --target pm1 >/etc/pmnbd/keys
$ cp /etc/pmnbd/keys /etc/pmnbd/key
$ pmnbd-target region create log /srv/log --size 16M
created …
`,
		skip: map[string]string{"etcdctl ": "needs an etcd with users"},
	},
	{page: "docs/status.md", machines: []string{"app1"}, before: served},
}
