package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestPostgres runs PostgreSQL, under pgbench, with its data on a disk of its machine and its WAL on
// /dev/nbd0, in another machine's memory. That machine loses its power and boots again. Then pmnbd is
// killed and started again. No transaction may fail. At last both machines lose their power.
// PostgreSQL recovers at the next start, and every transaction must be there whose COMMIT had
// returned: docs/howto-postgresql.md promises that.
func TestPostgres(t *testing.T) {
	lab.Need(t)
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("PostgreSQL is missing: install the package postgresql")
	}
	s := newSite(t, 0, "iwarp://10.0.0.1:7204", 128<<20)
	s.initiator.Setup = append(s.initiator.Setup, "fsdax")
	s.initiator.NVDIMM = lab.Memory(t, 640<<20)
	d := &database{s, found[len(found)-1]}
	t.Run("until a power cut", func(t *testing.T) {
		if lab.Inside() {
			d.load(t)
			return
		}
		s.initiator.Env = []string{"COMMITTED=" + d.powerCuts(t)}
	})
	t.Run("recovery", func(t *testing.T) {
		if lab.Inside() {
			d.check(t)
			return
		}
		if s.initiator.Env == nil {
			t.Skip("nothing was committed")
		}
		s.serve(t, false)
		lab.Finish(t, lab.Start(t, s.initiator))
	})
}

// A database is a PostgreSQL in the initiator's machine of a site.
type database struct {
	*site
	bin string // the directory of PostgreSQL's programs
}

const pgData = "/mnt/pmem/pg"

// command returns a command of PostgreSQL, as its user.
func (d *database) command(c string) string {
	return "runuser -u postgres -- env PATH=" + d.bin + ":/usr/bin:/bin PGHOST=/run/pg PGDATABASE=postgres " + c
}

// start returns a script that starts the server.
func (d *database) start() string {
	return "install -d -o postgres /run/pg\n" +
		d.command("pg_ctl -D "+pgData+" -l /run/pg/log -w -t 300 start >/dev/null") + " || { cat /run/pg/log; exit 1; }\n"
}

// load makes a cluster and commits transactions until the power is cut. Once /out/kill exists, it
// kills pmnbd and starts it again.
func (d *database) load(t *testing.T) {
	initiator := initiate(t, d.listen)
	sh(t, plug+"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0"+disk+mount+`
		[ "$(cat /sys/block/nbd0/queue/write_cache)" = 'write back' ]
		install -d -m 700 -o postgres `+pgData+" /mnt/disk/pg\n"+
		d.command("initdb -D "+pgData+" --waldir=/mnt/disk/pg --wal-segsize=1 --locale=C --encoding=UTF8 --auth=trust >/dev/null")+`
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '/run/pg'" 'max_wal_size = 32MB' 'min_wal_size = 4MB' >>`+pgData+`/postgresql.conf
		sync `+pgData+"/postgresql.conf\n"+ // PostgreSQL does not: the shell has written it
		d.start()+d.command("pgbench -i -q")+"\n"+d.command("psql -qc 'CREATE TABLE acknowledged (n integer PRIMARY KEY)'"))
	ended := make(chan error, 2)
	for _, script := range []string{
		d.command("pgbench -n -c 2 -T 100000"),
		`seq 1000000 | sed 's/.*/INSERT INTO acknowledged VALUES (&);\n\\echo committed &/' | ` + d.command("psql -q -v ON_ERROR_STOP=1"),
	} {
		go func() { ended <- try(script) }()
	}
	sh(t, "until [ -e /out/kill ]; do sleep 0.1; done")
	initiator.kill()
	initiate(t, d.listen)
	sh(t, "grep -q 'adopting the window' /run/pmnbd.log\n"+plug+"echo pmnbd was killed and serves again")
	require.NoError(t, <-ended)
	require.Fail(t, "a client of PostgreSQL ended")
}

// powerCuts runs load in PostgreSQL's machine. It cuts the power of the target's machine, has pmnbd
// killed, and cuts the power of PostgreSQL's machine, each after some commits; that of the target's
// machine goes with the subtest. It returns the number of the last transaction whose COMMIT had
// returned.
func (d *database) powerCuts(t *testing.T) (committed string) {
	target := d.serve(t, true)
	s := &story{t: t, m: lab.Start(t, d.initiator)}
	commits := func() {
		t.Helper()
		n, _ := strconv.Atoi(last(s.m.Log(), "committed ")) // 0: none yet
		s.await(fmt.Sprintf("committed %d\n", n+50))
	}
	commits()
	target.Kill()
	d.serve(t, false)
	commits()
	require.NoError(t, os.WriteFile(filepath.Join(s.m.Out, "kill"), nil, 0o600))
	s.await("pmnbd was killed and serves again\n")
	commits()
	s.m.Kill()
	return last(s.m.Log(), "committed ")
}

// check starts PostgreSQL after the power cut, and looks for all that was committed.
func (d *database) check(t *testing.T) {
	// The window went with the power, and in it what no FLUSH had covered.
	initiate(t, d.listen, "--accept-loss")
	sh(t, plug+mount+"rm -f "+pgData+"/postmaster.pid\n"+d.start()+`
		grep 'redo done' /run/pg/log
		ask() { `+d.command(`psql -qAtc "SELECT $1"`)+`; }
		echo "acknowledged: $COMMITTED, there: $(ask 'count(*) FROM acknowledged')"
		[ "$(ask "count(*) FROM acknowledged WHERE n <= $COMMITTED")" = "$COMMITTED" ]
		# A transaction of pgbench changes four tables: all of it is there, or none.
		sum=$(ask 'sum(delta) FROM pgbench_history')
		for table in 'sum(abalance) FROM pgbench_accounts' 'sum(tbalance) FROM pgbench_tellers' 'sum(bbalance) FROM pgbench_branches'; do
			[ "$(ask "$table")" = "$sum" ] || { echo "$table: not $sum"; exit 1; }
		done
		`+d.command("pg_ctl -D "+pgData+" stop -m fast >/dev/null")+"\n"+umount+"fsck.ext4 -fn"+disk+unplug+noErrors)
}
