package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// badScript has functions for blocks of the region's file in $file, on block device $disk: BLOCK counts blocks of 4
// KiB of /dev/nbd0.
const badScript = `
	# sector BLOCK: where it is on the disk
	sector() {
		filefrag -v -b4096 $file | tr -d ':' | awk -v n=$((512 + $1)) '
			$1 ~ /^[0-9]+$/ { sub(/\.\.$/, "", $2); sub(/\.\.$/, "", $4); if (n + 0 >= $2 + 0 && n + 0 <= $3 + 0) print ($4 + n - $2) * 8 }'
	}
	fill() { dd if=/run/noise of=/dev/nbd0 bs=4096 skip=$1 seek=$1 count=$2 oflag=direct conv=notrunc,fsync status=none; }
	same() { dd if=/dev/nbd0 bs=4096 skip=$1 count=$2 iflag=direct status=none | cmp - <(dd if=/run/noise bs=4096 skip=$1 count=$2 status=none); }
	lost() { if dd if=/dev/nbd0 of=/dev/null bs=4096 skip=$1 count=1 iflag=direct 2>/run/dd; then exit 1; fi; grep -q 'Input/output error' /run/dd; }
	others() { fio --name=others --filename=/dev/nbd0 --offset=24M --size=4M --rw=randwrite --bs=4k --direct=1 --ioengine=psync --fsync=8 --verify=crc32c --do_verify=1 >/run/fio 2>&1 || { cat /run/fio; exit 1; }; }
`

// TestBadPlacesOfDAX gives a region on fsdax bad blocks, by the kernel's list for the block device. It is the list
// that the kernel's page faults go by, so touching such a block is a SIGBUS. One is there before the target
// starts, the other comes while it serves. Exactly what touches them fails.
func TestBadPlacesOfDAX(t *testing.T) {
	g := lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: lab.Memory(t, 256<<20)}
	lab.Run(t, g, func(t *testing.T) {
		const region, at = "/mnt/pmem/region", "iwarp://127.0.0.1:7204"
		script := "file=" + region + badScript
		sh(t, "pmnbd-target region create disk "+region+" --size 48M; head -c 48M /dev/urandom >/run/noise")
		target := serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+region)
		initiate(t, at)
		sh(t, attach+script+"fill 0 6144")
		target.stop()
		sh(t, script+`echo $(sector 2048) 1 >/sys/block/pmem0/badblocks; cat /sys/block/pmem0/badblocks
			pmnbd-target region inspect `+region+` | tee /run/inspect
			grep -E 'bad places.* 8388608\+4096$' /run/inspect`)
		serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+region)
		sh(t, script+`
			others & beside=$!
			lost 2048; same 2047 1; same 2049 1; same 0 2048; lost 2048
			if dd if=/dev/zero of=/dev/nbd0 bs=512 seek=16384 count=1 oflag=direct status=none; then exit 1; fi
			wait $beside
			[ $(pmnbd status --json | jq '.[0].exports[0].device.recoveries') = 1 ] # the restart

			# Another one, while it is served, where nobody has read.
			echo $(sector 5000) 8 >/sys/block/pmem0/badblocks
			others & beside=$!
			lost 5000; lost 5000; same 4999 1; same 5001 1; lost 2048
			wait $beside
			pmnbd-target status | tee /run/status
			grep -E 'bad places.* 8388608\+4096 20480000\+4096$' /run/status
			pmnbd status | grep 'bad places'
			[ $(pmnbd status --json | jq '.[0].exports[0].device.recoveries') = 2 ]
			[ $(pmnbd status --json | jq -r '.[0].exports[0].device.state') = open ]
			[ $(pmnbd-target status --json | jq '.[0].regions[0].failed') = false ]
			nbd-client -d /dev/nbd0`)
	})
}

// TestBadPlacesOfDisk gives a region of class file bad blocks, by a device that fails to read them, as disks do. No
// list tells of them. Overwriting makes them good.
func TestBadPlacesOfDisk(t *testing.T) {
	lab.Run(t, lab.Guest{Setup: []string{"nbd"}}, func(t *testing.T) {
		const region, at = "/mnt/plain/region", "iwarp://127.0.0.1:7204"
		script := "file=" + region + badScript + `
			whole="0 196608 linear /dev/ram0 0"
			table() { dmsetup suspend --nolockfs plain; dmsetup load plain; dmsetup resume plain; }
		`
		sh(t, script+`
			modprobe brd rd_nr=1 rd_size=98304; /sbin/modprobe -a dm-mod dm-flakey
			until [ -b /dev/ram0 ]; do sleep 0.05; done
			echo "$whole" | dmsetup create plain --noudevsync
			dmsetup mknodes plain
			mkfs.ext4 -q -b 4096 /dev/mapper/plain
			mkdir -p /mnt/plain; mount /dev/mapper/plain /mnt/plain
			pmnbd-target region create disk `+region+` --size 48M; head -c 48M /dev/urandom >/run/noise`)
		target := serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+region)
		initiate(t, at)
		sh(t, attach+script+"fill 0 6144")
		target.stop()
		sh(t, script+`
			bad=$(sector 2048)
			umount /mnt/plain # which empties the page cache
			table <<-END
				0 $bad linear /dev/ram0 0
				$bad 8 flakey /dev/ram0 $bad 0 1 1 error_reads
				$((bad + 8)) $((196608 - bad - 8)) linear /dev/ram0 $((bad + 8))
			END
			mount /dev/mapper/plain /mnt/plain`)
		serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+region)
		sh(t, script+`
			others & beside=$!
			lost 2048; lost 2048; same 2040 8; same 2049 8; same 0 2048
			wait $beside
			pmnbd-target status | grep -E 'bad places.* 8388608\+4096$'
			[ $(pmnbd status --json | jq '.[0].exports[0].device.recoveries') = 2 ] # the restart, and the first READ

			# Whole blocks make it good.
			head -c 48M /dev/urandom >/run/noise
			fill 2047 3
			same 2047 3
			pmnbd-target status --json | jq -e '.[0].regions[0].bad_places == []'
			[ $(pmnbd status --json | jq '.[0].exports[0].device.targets[0].bad_bytes') = 0 ]
			nbd-client -d /dev/nbd0`)
	})
}
