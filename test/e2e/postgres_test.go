package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPostgres runs PostgreSQL with its WAL on one device and its data on another, under pgbench. The
// target is killed and comes back: no transaction may fail. Then the target is stopped, and its
// regions are copied as they are at that moment: what a power cut of both machines would leave.
// PostgreSQL recovers from the copies, and every transaction must be there whose COMMIT had returned.
//
// libnbd's nbdfuse and a loop device stand in for the kernel's NBD client, which needs a module.
// test/lab has the same with that client, and with power cuts.
func TestPostgres(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("PostgreSQL is missing: install the package postgresql")
	}
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(node); err != nil {
			t.Skip(err)
		}
	}
	need(t, peer{"nbdfuse", "libnbd-bin"}, peer{"mkfs.ext4", "e2fsprogs"})
	m := newMachines(t, "app1")["app1"]
	pg := func(name, command string) string {
		return "runuser -u postgres -- env PATH=" + found[len(found)-1] + ":/usr/bin:/bin PGHOST=/run/pg PGDATABASE=postgres " + name + " " + command
	}
	mount := func(terminal string) {
		t.Helper()
		for _, name := range []string{"wal", "data"} {
			// nbdfuse opens the pipe once its file is there.
			m.terminal(t, terminal).run(t, fmt.Sprintf(`mkdir -p /run/%[1]s /mnt/%[1]s; rm -f /run/%[1]s.pid; mkfifo /run/%[1]s.pid
				nbdfuse -P /run/%[1]s.pid /run/%[1]s 'nbd+unix:///%[1]s?socket=/tmp/pmnbd.sock' & read -r pid </run/%[1]s.pid
				[ -n "$(blkid /run/%[1]s/nbd)" ] || mkfs.ext4 -q /run/%[1]s/nbd
				mount -o loop /run/%[1]s/nbd /mnt/%[1]s`, name))
		}
	}
	const started = "-D /mnt/data/pg -l /run/pg/log -w -t 100 start >/dev/null || { cat /run/pg/log; false; }"
	serve := func(terminal, regions string) {
		t.Helper()
		m.do(t, step{terminal: terminal, command: "pmnbd-target serve " + regions, prints: []string{"ready …"}})
	}
	initiate := func(terminal, more string) {
		t.Helper()
		m.do(t, step{terminal: terminal, prints: []string{"ready …"},
			command: "pmnbd serve --target iwarp://127.0.0.1/wal --target iwarp://127.0.0.1/data --listen unix:/tmp/pmnbd.sock " + more})
	}

	serve("target", "--region wal=/srv/wal,size=128M --region data=/srv/data,size=256M")
	initiate("pmnbd", "")
	mount("first")
	shell := m.terminal(t, "shell")
	shell.run(t, "install -d -m 700 -o postgres /mnt/data/pg /mnt/wal/pg && install -d -o postgres /run/pg")
	shell.run(t, pg("initdb", "-D /mnt/data/pg --waldir=/mnt/wal/pg --wal-segsize=1 --locale=C --encoding=UTF8 --auth=trust >/dev/null"))
	shell.run(t, `cat >>/mnt/data/pg/postgresql.conf <<EOF
listen_addresses = ''
unix_socket_directories = '/run/pg'
max_wal_size = 32MB
min_wal_size = 4MB
EOF
		sync /mnt/data/pg/postgresql.conf`) // PostgreSQL does not: the shell has written it
	shell.run(t, pg("pg_ctl", started))
	shell.run(t, pg("pgbench", "-i -q 2>&1"))
	shell.run(t, pg("psql", "-qc 'CREATE TABLE acknowledged (n integer PRIMARY KEY)'"))
	load, client := m.terminal(t, "load"), m.terminal(t, "client")
	load.enter(t, pg("pgbench", "-n -c 4 -T 100000"))
	client.enter(t, `seq 1000000 | sed 's/.*/INSERT INTO acknowledged VALUES (&);\n\\echo committed &/' | `+pg("psql", "-q -v ON_ERROR_STOP=1"))
	commits := func(n int) {
		t.Helper()
		client.wait(t, 0, "commits", func(out string) bool {
			require.NotContains(t, out, "ERROR")
			return strings.Contains(out, fmt.Sprintf("committed %d\n", n))
		})
	}
	commits(50)
	// The kernel unlocks the region some time after the signal.
	shell.run(t, "pkill -KILL -x pmnbd-target; pidwait -x pmnbd-target || test $? = 1")
	serve("target again", "--region wal=/srv/wal --region data=/srv/data")
	before := strings.Count(client.out.String(), "committed ")
	commits(before + 50)

	committed := strings.Count(client.out.String(), "committed ")
	shell.run(t, "pkill -STOP -x pmnbd-target; cp /srv/wal /srv/wal.cut; cp /srv/data /srv/data.cut")
	shell.run(t, "pkill -KILL -x 'postgres|psql|pgbench|nbdfuse|pmnbd|pmnbd-target'; umount -l /mnt/wal /mnt/data /run/wal /run/data")

	// Another host, which has nothing of what the first one had in memory.
	serve("target at last", "--region wal=/srv/wal.cut --region data=/srv/data.cut")
	initiate("other host", "--takeover --state-dir /var/lib/other --window-dir /dev/shm/other")
	mount("second")
	shell.run(t, "rm -rf /run/pg /mnt/data/pg/postmaster.pid && install -d -o postgres /run/pg")
	shell.run(t, pg("pg_ctl", started))
	query := func(q string) string { return strings.TrimSpace(shell.run(t, pg("psql", "-qAtc '"+q+"'"))) }
	require.Equal(t, strconv.Itoa(committed), query(fmt.Sprintf("SELECT count(*) FROM acknowledged WHERE n <= %d", committed)))
	// A transaction of pgbench changes four tables: all of it is there, or none.
	sum := query("SELECT sum(delta) FROM pgbench_history")
	for _, q := range []string{"sum(abalance) FROM pgbench_accounts", "sum(tbalance) FROM pgbench_tellers", "sum(bbalance) FROM pgbench_branches"} {
		require.Equal(t, sum, query("SELECT "+q), q)
	}
	require.Contains(t, shell.run(t, "cat /run/pg/log"), "redo done")
	t.Logf("acknowledged and there: %d, beside %s of pgbench", committed, query("SELECT count(*) FROM pgbench_history"))
	shell.run(t, pg("pg_ctl", "-D /mnt/data/pg stop -m fast >/dev/null"))
	shell.run(t, "umount /mnt/wal /mnt/data")
}
