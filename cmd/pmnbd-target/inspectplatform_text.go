package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
	"pmnbd/rdma/verbs"
)

// text shows the platform to people.
func (p *machineView) text() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) } // a strings.Builder never fails
	end := func() { _ = w.Flush() }

	row("confined to a node", p.Confined)
	row("memory lock limit", p.lockText())
	row("cache lines", "written back by "+p.Flush)
	row("direct-write-to-pmem", declared(p.DirectWrite))
	row("relaxed-ordering", declared(p.RelaxedOrdering))
	end()

	row("")
	row("PERSISTENT MEMORY", "NODE", "DOMAIN", "UNSAFE SHUTDOWNS")
	for _, m := range p.Memory {
		count := "not counted"
		if m.UnsafeShutdowns != nil {
			count = strconv.FormatUint(*m.UnsafeShutdowns, 10)
		}
		row(m.Name, nodeText(m.Node), domainText(region.Domain(m.Domain)), count)
	}
	if len(p.Memory) == 0 {
		row("none")
	}
	end()

	row("")
	row("RDMA ADAPTER", "NODE", "DRIVER", "HARDWARE", "INTERFACES", "PLACES BY", "NATIVE FLUSH")
	for _, a := range p.Adapters {
		by := "CPU stores"
		if a.PlacesByDMA {
			by = "DMA"
		}
		row(a.Name, nodeText(a.Node), cmp.Or(a.Driver, "-"), cmp.Or(a.Hardware, "-"), cmp.Or(strings.Join(a.Interfaces, " "), "-"), by, yesNo(a.NativeFlush))
	}
	if len(p.Adapters) == 0 {
		row("none")
	} else if !verbs.Built {
		row("This build cannot use them.")
	}
	end()

	for _, r := range p.Regions {
		row("")
		row(fmt.Sprintf("region %s: class %s, node %s, %s", r.Name, cmp.Or(r.Class, "unknown"), nodeText(r.Node), pathText(r.Path, r.Parts)))
		if r.Note != "" {
			row("  " + r.Note)
		}
		end()
		for _, t := range r.Methods {
			for i, m := range t.Methods {
				name := "  over " + t.Transport
				if i > 0 {
					name = ""
				}
				row(name, m.Method+":", m.text())
			}
		}
		end()
	}
	return out.String()
}

func (m *methodView) text() string {
	switch {
	case m.Sound == nil:
		return m.Why
	case *m.Sound:
		return "yes"
	}
	return "no, " + m.Why
}

func (p *machineView) lockText() string {
	if p.LockLimit == nil {
		return "unlimited"
	}
	limit := flags.Size(*p.LockLimit).Rounded()
	if !p.LockEnough {
		limit += " for this process, less than the regions need on RDMA adapters: ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit"
	}
	return limit
}

func domainText(d region.Domain) string {
	switch {
	case d.EADR():
		return string(d) + " (eADR)"
	case d.Persistent():
		return string(d) + " (ADR)"
	}
	return "nothing promised"
}

func declared(yes bool) string {
	if yes {
		return "declared"
	}
	return "not declared"
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "?"
	case *b:
		return "yes"
	}
	return "no"
}

func nodeText(node *int) string {
	if node == nil {
		return "?"
	}
	return strconv.Itoa(*node)
}
