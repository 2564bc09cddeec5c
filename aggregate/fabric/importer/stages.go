package importer

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// classify finds the switches and their stages: by role, else by name, else by SONiC type.
// rankByLinks finds the stages of the others.
func (m *merger) classify() {
	for _, d := range m.devices {
		m.classifyByWords(d)
	}
	m.learnSONiCTypes()
	for _, d := range m.devices {
		if d.kind == unknownKind {
			d.kind = d.kindByPorts()
		}
	}
	for _, d := range m.devices {
		d.hideManagement()
	}
}

// classifyByWords reads roles and names. A role is a statement, a name a hint.
func (m *merger) classifyByWords(d *device) {
	role := ""
	for i := range d.stated {
		n := &d.stated[i]
		if n.kind != unknownKind && (d.kind == unknownKind || n.own) {
			d.kind = n.kind
		}
		if n.role == "" {
			continue
		}
		stage, height, kind := roleOfText(n.role)
		if kind == unknownKind {
			continue
		}
		if role != "" && (d.kind != kind || d.stage != stage) {
			m.warnf("%s: its roles are %q and %q: the first is taken", d.name, role, n.role)
			continue
		}
		role, d.kind, d.stage, d.height, d.ranked = n.role, kind, stage, height, kind == switchKind
	}
	if role == "" {
		d.classifyByName()
	}
	if d.sonic != nil && d.kind != otherKind {
		d.kind = switchKind
	}
}

func (d *device) classifyByName() {
	stage, height, kind := roleOfText(d.name)
	switch {
	case kind == switchKind && d.kind == unknownKind && d.sonic == nil && d.hasCards():
		d.kind = hostKind // named after its switch
	case kind == switchKind && d.kind != hostKind:
		d.kind, d.stage, d.height, d.ranked = kind, stage, height, true
	case d.kind == unknownKind || kind == otherKind && d.sonic == nil:
		d.kind = cmp.Or(kind, d.kind)
	}
}

// sonicHeights are SONiC's types of switches, with the names of their stages if no device names
// them.
var sonicHeights = map[string]roleWord{
	"ToRRouter": {stage: "leaf", height: 10}, "BackEndToRRouter": {stage: "leaf", height: 10},
	"LeafRouter": {stage: "agg", height: 20}, "BackEndLeafRouter": {stage: "agg", height: 20},
	"SpineRouter": {stage: "spine", height: 30}, "UpperSpineRouter": {stage: "spine", height: 32}, "LowerSpineRouter": {stage: "spine", height: 31},
}

// learnSONiCTypes gives switches that are described only by SONiC's type the stage of named ones
// with the same type: small fabrics call leaves LeafRouter and spines SpineRouter, large ones call
// leaves ToRRouter and the stage above them LeafRouter.
func (m *merger) learnSONiCTypes() {
	learned := map[string]map[roleWord]int{}
	for _, d := range m.devices {
		if t := d.sonicType(); t != "" && d.ranked {
			if learned[t] == nil {
				learned[t] = map[roleWord]int{}
			}
			learned[t][roleWord{stage: d.stage, height: d.height}]++
		}
	}
	types := map[string]bool{}
	for _, d := range m.devices {
		types[d.sonicType()] = true
	}
	for _, d := range m.devices {
		t := d.sonicType()
		switch t {
		case "":
			continue
		case "Server":
			d.kind = cmp.Or(d.kind, hostKind)
			continue
		case "MgmtToRRouter", "MgmtTsToR", "MgmtLeafRouter":
			d.kind = otherKind
			continue
		}
		static, known := sonicHeights[t]
		if known {
			d.kind = cmp.Or(d.kind, switchKind)
		}
		if d.ranked || d.kind != switchKind {
			continue
		}
		if static.height == 20 && !types["ToRRouter"] {
			static = roleWord{stage: "leaf", height: 10} // a fabric of LeafRouter and SpineRouter
		} else if static.height == 20 && !types["SpineRouter"] {
			static.stage = "spine" // of ToRRouter and LeafRouter
		}
		if own := commonest(learned[t]); own.stage != "" {
			static, known = own, true
		}
		if known {
			d.stage, d.height, d.ranked = static.stage, static.height, true
		}
	}
}

func commonest(counts map[roleWord]int) (best roleWord) {
	for w, n := range counts {
		if n > counts[best] || n == counts[best] && w.stage < best.stage {
			best = w
		}
	}
	return best
}

// sonicType returns the type that the switch states, else one that a neighbor states.
func (d *device) sonicType() (t string) {
	for i := range d.stated {
		if s := d.stated[i].sonicType; s != "" && (t == "" || d.stated[i].own) {
			t = s
		}
	}
	return t
}

// hasCards reports whether all named ports are network cards.
func (d *device) hasCards() bool {
	return len(d.ports) > 0 && !slices.ContainsFunc(d.ports, func(i *iface) bool { return !looksLikeCard(i.name) })
}

// kindByPorts distinguishes a switch from a host by the names of its ports: without further
// evidence, a node is a host.
func (d *device) kindByPorts() nodeKind {
	if slices.ContainsFunc(d.ports, func(i *iface) bool { return looksLikeSwitchPort(i.name) }) {
		return switchKind
	}
	return hostKind
}

// hideManagement removes ports of the management network, and links to them, from the fabric.
func (d *device) hideManagement() {
	for _, i := range d.ports {
		if d.kind == switchKind && isManagement(i.name) {
			i.hidden = true
		}
	}
	if d.kind == otherKind {
		for _, i := range d.ports {
			i.hidden = true
		}
	}
}

// faces returns the peer of a port within the fabric, or nil.
func (i *iface) faces() *device {
	if i.hidden || i.logical || i.peer == nil || i.peer.kind == otherKind || i.far != nil && (i.far.hidden || i.peer.kind == switchKind && isManagement(i.far.name)) {
		return nil
	}
	return i.peer
}

// neighbours returns the devices at the ends of links, whichever end states them.
func (m *merger) neighbours() map[*device][]*device {
	next := map[*device][]*device{}
	for _, d := range m.devices {
		for _, i := range d.ports {
			if p := i.faces(); p != nil {
				next[d] = append(next[d], p)
				next[p] = append(next[p], d)
			}
		}
	}
	return next
}

// defaultStages are the names of unnamed stages, from the hosts up.
var defaultStages = [][]string{{"leaf"}, {"leaf", "spine"}, {"leaf", "agg", "spine"}, {"leaf", "agg", "spine", "core"}}

// rankByLinks places the switches that no word describes. Those that face hosts are the lowest. If
// no switch is placed, the height of the others is their distance from hosts. Otherwise they are
// between, above or below their placed neighbors.
func (m *merger) rankByLinks() {
	next := m.neighbours()
	var heights []int
	var open []*device
	stageAt := map[int]string{}
	for _, d := range m.devices {
		switch {
		case d.kind != switchKind:
		case d.ranked:
			heights = append(heights, d.height)
			stageAt[d.height] = d.stage
		default:
			open = append(open, d)
		}
	}
	slices.Sort(heights)
	heights = slices.Compact(heights)
	if len(heights) == 0 {
		m.rankByDistance(open, next)
		return
	}
	stageAt[heights[0]-10] = "leaf"
	if m.rankLowest(open, next, heights[0], stageAt) {
		heights = slices.Insert(heights, 0, heights[0]-10)
	}
	for range 4 { // each round places switches that face one of the previous round
		for _, d := range open {
			if h, ok := heightAmong(d, next[d], heights); ok {
				d.height, d.stage = h, cmp.Or(stageAt[h], "agg")
			}
		}
		for _, d := range open {
			d.ranked = d.ranked || d.stage != ""
		}
	}
}

// rankLowest places the open switches that face hosts: at the lowest height, or below it if no
// switch there faces hosts, and they themselves face nothing higher. It reports whether one is below.
func (m *merger) rankLowest(open []*device, next map[*device][]*device, lowest int, stageAt map[int]string) (below bool) {
	facesHost := func(d *device) bool {
		return slices.ContainsFunc(next[d], func(n *device) bool { return n.kind == hostKind })
	}
	serves := slices.ContainsFunc(m.devices, func(d *device) bool { return d.ranked && d.height == lowest && facesHost(d) })
	for _, d := range open {
		if !facesHost(d) {
			continue
		}
		d.height = lowest
		if !serves && !slices.ContainsFunc(next[d], func(n *device) bool { return n.ranked && n.height > lowest }) {
			d.height -= 10
			below = true
		}
		d.stage, d.ranked = stageAt[d.height], true
	}
	return below
}

// heightAmong returns the height of a switch whose neighbors' heights are known.
func heightAmong(d *device, neighbours []*device, heights []int) (h int, ok bool) {
	var around []int
	for _, n := range neighbours {
		if n.kind == switchKind && n.ranked {
			around = append(around, slices.Index(heights, n.height))
		}
	}
	if len(around) == 0 || d.ranked {
		return 0, false
	}
	bottom, top := slices.Min(around), slices.Max(around)
	switch {
	case top-bottom > 1:
		return heights[bottom+1], true
	case top > bottom:
		return (heights[bottom] + heights[top]) / 2, true // an unnamed stage
	case bottom > 0:
		return heights[bottom-1], true
	case len(heights) > 1:
		return heights[1], true
	}
	return heights[0] - 10, true // below the only placed stage
}

// rankByDistance places switches by their distance to the nearest host.
func (m *merger) rankByDistance(open []*device, next map[*device][]*device) {
	distance := map[*device]int{}
	var wave []*device
	for _, d := range open {
		if slices.ContainsFunc(next[d], func(n *device) bool { return n.kind == hostKind }) {
			wave = append(wave, d)
			distance[d] = 0
		}
	}
	highest := 0
	for at := 0; at < len(wave); at++ {
		for _, n := range next[wave[at]] {
			if _, seen := distance[n]; !seen && n.kind == switchKind {
				distance[n] = distance[wave[at]] + 1
				highest = max(highest, distance[n])
				wave = append(wave, n)
			}
		}
	}
	names := defaultStages[min(highest, len(defaultStages)-1)]
	for d, n := range distance {
		d.height, d.ranked, d.stage = n, true, names[min(n, len(names)-1)]
	}
}

// orientation returns the direction of a port; a nil peer stands for hosts that no file names.
func (d *device) orientation(peer *device) string {
	switch {
	case peer == nil || peer.kind == hostKind || d.height > peer.height:
		return "down"
	case d.height < peer.height:
		return "up"
	}
	return "side"
}

// findPods divides the switches below the highest stage into those that are linked without it: a
// fabric of three or more stages consists of pods. It returns none if there is only one.
func (m *merger) findPods(switches []*device) (podOf map[*device]string, names []string) {
	heights := map[int]bool{}
	top := 0
	for _, d := range switches {
		heights[d.height] = true
		top = max(top, d.height)
	}
	if len(heights) < 3 {
		return nil, nil
	}
	next := m.neighbours()
	var pods [][]*device
	seen := map[*device]bool{}
	for _, d := range switches {
		if seen[d] || d.height == top {
			continue
		}
		pod := []*device{d}
		seen[d] = true
		for at := 0; at < len(pod); at++ {
			for _, n := range next[pod[at]] {
				if n.kind == switchKind && n.height < top && !seen[n] {
					seen[n] = true
					pod = append(pod, n)
				}
			}
		}
		pods = append(pods, pod)
	}
	if len(pods) < 2 {
		return nil, nil
	}
	podOf, taken := map[*device]string{}, map[string]bool{}
	for n, pod := range pods {
		name := cleanName(statedPod(pod), `"`)
		if name == "" || taken[name] {
			name = "pod" + strconv.Itoa(n+1)
		}
		taken[name] = true
		names = append(names, name)
		for _, d := range pod {
			podOf[d] = name
		}
	}
	return podOf, names
}

// statedPod returns the name that files give to all switches of a pod, or "".
func statedPod(pod []*device) string {
	names := map[string]bool{}
	for _, d := range pod {
		for i := range d.stated {
			if d.stated[i].pod != "" {
				names[d.stated[i].pod] = true
			}
		}
	}
	if len(names) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(names))[0]
}
