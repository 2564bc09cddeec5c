package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// aspects are attributes that select some ports of a device, a stage or the fabric.
type aspects uint8

const (
	byOrientation aspects = 1 << iota
	byPeer
	bySpeed
	numAspects
)

// simplest lists the combinations of aspects in the order in which people would choose them to
// describe a set.
var simplest = [numAspects]aspects{
	byOrientation, 0, byOrientation | byPeer, byOrientation | bySpeed, byPeer, bySpeed,
	byOrientation | byPeer | bySpeed, byPeer | bySpeed,
}

// trait is the common attributes of the ports of a set; empty, 0 or none if they differ.
type trait struct {
	device            int32
	stage             string
	orientation, peer string
	speed             uint64
}

// traitOf returns the common attributes of the ports, at least one.
func (t *topology) traitOf(ports []int32) trait {
	first := &t.ports[ports[0]]
	c := trait{first.device, t.devices[first.device].stage, first.orientation, first.peer, first.speed}
	for _, i := range ports[1:] {
		p := &t.ports[i]
		if p.device != c.device {
			c.device = none
		}
		if t.devices[p.device].stage != c.stage {
			c.stage = ""
		}
		if p.orientation != c.orientation {
			c.orientation = ""
		}
		if p.peer != c.peer {
			c.peer = ""
		}
		if p.speed != c.speed {
			c.speed = 0
		}
	}
	return c
}

// aspects returns the aspects for which the trait has a value.
func (c *trait) aspects() aspects {
	var a aspects
	if c.orientation != "" {
		a |= byOrientation
	}
	if c.peer != "" {
		a |= byPeer
	}
	if c.speed != 0 {
		a |= bySpeed
	}
	return a
}

// scope lists the ports of the trait's device, stage or fabric.
func (t *topology) scope(c *trait) []int32 {
	switch {
	case c.device != none:
		return t.devices[c.device].ports
	case c.stage != "":
		return t.stages[c.stage]
	}
	return t.allPorts
}

// classSizes counts, for each combination of aspects, the ports of the scope that match the trait
// in it.
func (t *topology) classSizes(c *trait) (sizes [numAspects]int) {
	for _, i := range t.scope(c) {
		p := &t.ports[i]
		var same aspects
		if p.orientation == c.orientation {
			same |= byOrientation
		}
		if p.peer == c.peer {
			same |= byPeer
		}
		if p.speed == c.speed {
			same |= bySpeed
		}
		for a := range numAspects {
			if same&a == a {
				sizes[a]++
			}
		}
	}
	return sizes
}

// describe names a set of two or more ports, ascending. The name identifies the set: no other set
// has it. A set that is a whole unit of the topology ("leaf3 up", "spine down to leaf5", "agg1,agg2
// up") has the unit's name, and keeps it when a port is added; any other set has a digest of its
// members in its name. Names with a digest leave out attributes that may change while the set stays
// the same, such as speeds.
func (t *topology) describe(ports []int32) string {
	c := t.traitOf(ports)
	has, sizes := c.aspects(), t.classSizes(&c)
	for _, a := range simplest {
		if a&^has == 0 && sizes[a] == len(ports) {
			return t.label(&c, a)
		}
	}
	if name, ok := t.describeDevices(&c, ports); ok {
		return name
	}
	if name, ok := t.describePeers(&c, ports); ok {
		return name
	}
	// 48 bits: the sets of a fabric are too few for two of them to have the same.
	digest := hashName(strings.Join(t.portNames(ports), ",")) >> 16
	return fmt.Sprintf("%s, %d ports #%012x", t.label(&c, has&^bySpeed), len(ports), digest)
}

// maxListed bounds the devices or peers that a name lists.
const maxListed = 4

// describeDevices names sets such as "agg1,agg2 up": the same class of ports of a few devices.
func (t *topology) describeDevices(c *trait, ports []int32) (string, bool) {
	members := map[int32]int{}
	for _, i := range ports {
		members[t.ports[i].device]++
	}
	if len(members) < 2 || len(members) > maxListed {
		return "", false
	}
	for _, a := range []aspects{byOrientation, 0, byOrientation | bySpeed} {
		if a&^c.aspects() != 0 {
			continue
		}
		complete := true
		var names []string
		for d, n := range members {
			one := *c
			one.device = d
			complete = complete && t.classSizes(&one)[a] == n
			names = append(names, t.devices[d].name)
		}
		if complete {
			slices.Sort(names)
			return strings.Join(names, ",") + suffix(c, a), true
		}
	}
	return "", false
}

// describePeers names sets such as "core down to agg3,agg4".
func (t *topology) describePeers(c *trait, ports []int32) (string, bool) {
	if c.orientation == "" {
		return "", false
	}
	var peers []string
	for _, i := range ports {
		peer := t.ports[i].peer
		if n, found := slices.BinarySearch(peers, peer); !found {
			peers = slices.Insert(peers, n, peer)
		}
		if peer == "" || len(peers) > maxListed {
			return "", false
		}
	}
	facing := 0
	for _, i := range t.scope(c) {
		if p := &t.ports[i]; p.orientation == c.orientation && slices.Contains(peers, p.peer) {
			facing++
		}
	}
	return t.label(c, byOrientation) + " to " + strings.Join(peers, ","), facing == len(ports)
}

// label returns the human name of a class: "leaf3 up", "leaf up 100G", "spine down to leaf5", "any
// port up".
func (t *topology) label(c *trait, a aspects) string {
	name := "any port"
	switch {
	case c.device != none:
		name = t.devices[c.device].name
	case c.stage != "":
		name = t.stageLabel(c.stage)
	}
	return name + suffix(c, a)
}

func suffix(c *trait, a aspects) string {
	s := ""
	if a&byOrientation != 0 {
		s += " " + c.orientation
	}
	if a&bySpeed != 0 {
		s += " " + SpeedLabel(c.speed)
	}
	if a&byPeer != 0 {
		s += " to " + c.peer
	}
	return s
}

// stageSuffix distinguishes a stage from a device of the same name.
const stageSuffix = "(stage)"

func (t *topology) stageLabel(stage string) string {
	if _, taken := t.deviceIndex[stage]; taken {
		return stage + stageSuffix
	}
	return stage
}

func (t *topology) portNames(ports []int32) []string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = t.ports[p].name
	}
	return names
}

// SpeedLabel returns a speed in kbit/s as used in names: "100G", exact.
func SpeedLabel(kbps uint64) string {
	switch {
	case kbps >= 1e6:
		return strconv.FormatFloat(float64(kbps)/1e6, 'f', -1, 64) + "G"
	case kbps >= 1e3:
		return strconv.FormatFloat(float64(kbps)/1e3, 'f', -1, 64) + "M"
	}
	return strconv.FormatUint(kbps, 10) + "k"
}

// CompareNames orders names for people: numbers in them by value, so that rack2 comes before rack10.
// Names are equal only if they are the same.
func CompareNames(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if n, m := digits(x), digits(y); n > 0 && m > 0 {
			p, q := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns the number of digits at the start of s.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
