package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A copied is a block device in front of one copy, or of two.
type copied struct {
	name string
	path string
	up   func(t *testing.T) (down func())
}

// copies returns the block devices to compare. All regions are in memory, at two targets.
func copies(a, b string) []copied {
	const detach = "pmnbd detach /dev/nbd0\n"
	// halves serves the two regions of md, each by a pmnbd of its own, and attaches them.
	halves := func(t *testing.T) (x, y *server) {
		half := func(name, target string) *server {
			return serve(t, "pmnbd", "--target", target+"/half", "--export", name, "--listen", "unix:/run/"+name+".sock",
				"--id", initiatorID, "--allow-volatile", "--loss-timeout", "10s")
		}
		x, y = half("a", a), half("b", b)
		sh(t, mdadm+"modprobe raid1\npmnbd attach a /dev/nbd0\npmnbd attach b /dev/nbd1\n")
		return x, y
	}
	md := func(bitmap string) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			x, y := halves(t)
			sh(t, mdadm+"mdadm --create /dev/md0 --run --assume-clean --level=1 --raid-devices=2 --bitmap="+bitmap+" /dev/nbd0 /dev/nbd1\n")
			return func() {
				sh(t, mdadm+"mdadm --stop /dev/md0\nmdadm --zero-superblock /dev/nbd0 /dev/nbd1\npmnbd detach /dev/nbd1\n"+detach)
				x.stop()
				y.stop()
			}
		}
	}
	ours := func(targets string) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			s := serve(t, "pmnbd", "--target", targets, "--export", "disk", "--listen", "unix:"+socket, "--id", initiatorID, "--allow-volatile")
			sh(t, "pmnbd attach disk /dev/nbd0\n")
			return func() {
				sh(t, detach)
				s.stop()
			}
		}
	}
	return []copied{
		{"one region", "/dev/nbd0", ours(a + "/one")},
		{"mirror of two", "/dev/nbd0", ours(a + "/copy," + b + "/copy")},
		{"md RAID 1, bitmap", "/dev/md0", md("internal")},
		{"md RAID 1, no bitmap", "/dev/md0", md("none")},
	}
}

// benchCopies measures one region, our mirror of two and the kernel's over two exports, in every round.
// Every other round visits the devices in the reverse order.
func benchCopies(t *testing.T) {
	const rounds = 5
	var targets []string
	for _, name := range []string{"a", "b"} {
		args := []string{"--insecure-no-auth", "--allow-volatile", "--listen", "iwarp://127.0.0.1:0"}
		for _, region := range []string{"one", "copy", "half"} {
			args = append(args, "--region", region+"=/dev/shm/"+name+"-"+region+",size=96M")
		}
		s := serve(t, "pmnbd-target", args...)
		if len(targets) == 0 {
			describe(t, s.cmd.Process.Pid)
		}
		targets = append(targets, s.ready[0])
	}
	sh(t, "pmnbd mirror create --id "+initiatorID+" --allow-volatile --target "+targets[0]+"/copy --target "+targets[1]+"/copy")
	var visits []visit
	for n := range rounds {
		all := copies(targets[0], targets[1])
		if n%2 == 1 {
			slices.Reverse(all)
		}
		for _, c := range all {
			down := c.up(t)
			v := visit{Device: c.name, Round: n}
			v.fio(t, c.path)
			down()
			visits = append(visits, v)
		}
	}
	save(t, "copies", visits)
	fmt.Print(copiesTable(visits))
}

// copiesTable returns a table with a row for each device: the ratio to one region in the same round,
// the median with the least and the most in parentheses. A time is the median of a write plus that of
// an fdatasync.
func copiesTable(visits []visit) string {
	columns := []func(one, v *visit) float64{
		func(one, v *visit) float64 { return (v.Write + v.Sync) / (one.Write + one.Sync) },
		func(one, v *visit) float64 { return v.Eight / one.Eight },
		func(one, v *visit) float64 { return v.Read / one.Read },
		func(one, v *visit) float64 { return v.Reads / one.Reads },
	}
	var s strings.Builder
	s.WriteString("| device | write + fdatasync, time | pairs/s of eight jobs | read, time | reads/s at depth 32 |\n|-|-:|-:|-:|-:|\n")
	var names []string
	first := make(map[int]*visit) // of each round
	for i := range visits {
		if v := &visits[i]; v.Device == visits[0].Device {
			first[v.Round] = v
		}
		if !slices.Contains(names, visits[i].Device) {
			names = append(names, visits[i].Device)
		}
	}
	for _, name := range names {
		s.WriteString("| " + name)
		for _, column := range columns {
			var ratios []float64
			for i := range visits {
				if v := &visits[i]; v.Device == name {
					ratios = append(ratios, column(first[v.Round], v))
				}
			}
			slices.Sort(ratios)
			fmt.Fprintf(&s, " | %.2f (%.2f–%.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
		}
		s.WriteString(" |\n")
	}
	return s.String()
}
