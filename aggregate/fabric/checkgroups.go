package fabric

import (
	"fmt"
	"net/netip"
)

// groupLevels are the levels of groups from the lowest, with their rank.
var groupLevels = map[string]int{"host": 1, "rack": 2, "pod": 3, "cluster": 4}

// Names of the groups that every fabric has.
const (
	unknownName  = "unknown"
	overflowName = "overflow"
)

func (b *builder) groups() {
	t := b.topo
	for i, g := range b.spec.Groups {
		path := fmt.Sprintf("groups[%d]", i)
		b.checkName(path+".name", g.Name, notInLabels)
		switch _, taken := t.groupIndex[g.Name]; {
		case taken:
			b.errorf(path+".name", "%q: two groups have that name: rename one", g.Name)
		case g.Name == unknownName || g.Name == overflowName:
			b.errorf(path+".name", "%q: is reserved: choose another name", g.Name)
		}
		if groupLevels[g.Level] == 0 {
			b.errorf(path+".level", "%q: expected host, rack, pod or cluster", g.Level)
		}
		t.groupIndex[g.Name] = int32(i)
		t.groups = append(t.groups, group{name: g.Name, level: g.Level, parent: g.Parent, id: GroupIDOf(g.Name)})
	}
	for i, g := range b.spec.Groups {
		b.groupParent(fmt.Sprintf("groups[%d].parent", i), g)
		for j, text := range g.Prefixes {
			b.groupPrefix(fmt.Sprintf("groups[%d].prefixes[%d]", i, j), text, int32(i))
		}
	}
}

// groupParent demands a higher level, which also excludes circles.
func (b *builder) groupParent(path string, g GroupSpec) {
	if g.Parent == "" {
		return
	}
	parent := b.topo.groupNamed(g.Parent)
	if parent == none {
		b.errorf(path, "%q: no group has that name: add it, or leave parent out", g.Parent)
		return
	}
	if level := b.topo.groups[parent].level; groupLevels[level] <= groupLevels[g.Level] {
		b.errorf(path, "%q is a %s, not above a %s: expected a group of a higher level", g.Parent, level, g.Level)
	}
}

func (b *builder) groupPrefix(path, text string, n int32) {
	t := b.topo
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		b.errorf(path, "%q: expected a prefix such as 10.0.3.0/24 or 2001:db8:3::/64", text)
		return
	case p.Addr().Is4In6():
		b.errorf(path, "%s: write it as an IPv4 prefix", text)
		return
	case p != p.Masked():
		b.errorf(path, "%s: has bits beyond its length: did you mean %s?", text, p.Masked())
		return
	}
	if other, taken := t.prefixes.Get(p); taken {
		b.errorf(path, "%s: is already a prefix of group %q: remove one", text, t.groups[other].name)
		return
	}
	t.prefixes.Insert(p, n)
}
