package fabric

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/decode/csig"
)

// Fingerprint is the canonical text of the topology, the groups and the CSIG
// domain: equal texts resolve and measure alike. It does not depend on the order
// or the wording of the fabric file.
func (f *Fabric) Fingerprint() string {
	var b strings.Builder
	printDomain(&b, f.domain)
	f.topo.print(&b)
	return b.String()
}

// printDomain prints compiled tables and locators rather than their specification,
// since "100Gbps" and "0.1Tbps" are the same. They hold plain values and maps,
// which fmt prints in the order of their keys.
func printDomain(w io.Writer, d *csig.Domain) {
	for id := range 1 << 16 {
		if l, ok := d.LayoutOf(uint16(id)); ok {
			fmt.Fprintf(w, "tpid 0x%04x %s\n", id, l)
		}
	}
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		for t := range uint8(l.Types()) {
			if table := d.Table(l, t); table != nil {
				fmt.Fprintf(w, "table %s %d %+v\n", l, t, *table)
			}
			if locator := d.Locator(l, t); locator != nil {
				fmt.Fprintf(w, "locator %s %d %+v\n", l, t, *locator)
			}
		}
	}
	for _, r := range d.Reflections() {
		fmt.Fprintf(w, "reflection %+v\n", r)
	}
	for _, r := range d.UDPReflections() {
		fmt.Fprintf(w, "udp reflection %+v\n", r)
	}
}

func (t *topology) print(w io.Writer) {
	groups := slices.SortedFunc(slices.Values(t.groups), func(x, y group) int { return cmp.Compare(x.name, y.name) })
	for _, g := range groups {
		fmt.Fprintf(w, "group %q %s parent %q\n", g.name, g.level, g.parent)
	}
	for p, g := range t.prefixes.AllSorted() {
		fmt.Fprintf(w, "prefix %s %q\n", p, t.groups[g].name)
	}
	devices := slices.SortedFunc(slices.Values(t.devices), func(x, y device) int { return cmp.Compare(x.name, y.name) })
	for _, d := range devices {
		fmt.Fprintf(w, "device %s stage %s id %d\n", d.name, d.stage, d.id)
	}
	for _, p := range t.ports {
		fmt.Fprintf(w, "port %s id %d %s peer %q %d kbit/s\n", p.name, p.id, p.orientation, p.peer, p.speed)
	}
	addresses := make([]string, 0, len(t.addresses))
	for a, h := range t.addresses {
		addresses = append(addresses, fmt.Sprintf("host %s %s\n", t.hosts[h].name, a))
	}
	slices.Sort(addresses)
	for _, line := range addresses {
		fmt.Fprint(w, line)
	}
}
