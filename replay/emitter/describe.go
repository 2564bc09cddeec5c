package emitter

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Describe writes what the scenario's fabric consists of: its stages with their
// ports and speeds, its racks, and how far apart hosts are.
func Describe(w io.Writer, s Scenario) error {
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return err
	}
	t, err := newTopology(&s)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "fabric of scenario %s: %d switches, %d ports, %d hosts in %d racks\n",
		s.Name, len(t.devices), len(t.ports), t.hosts(), len(t.racks))
	for _, stage := range t.stages() {
		t.describeStage(out, stage)
	}
	for _, text := range t.describeRacks() {
		fmt.Fprintln(out, text)
	}
	switches, ways := t.farthest()
	fmt.Fprintf(out, "longest path: %d switches, one of %d of equal length\n", switches, ways)
	for _, b := range s.behaviors() {
		fmt.Fprintln(out, b.describe(len(b.matches(t))))
	}
	if err := describeTraffic(out, &s, t); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("describe fabric: %w", err)
	}
	return nil
}

// describe is one line about a behaviour that selects so many ports.
func (b *Behavior) describe(ports int) string {
	text := fmt.Sprintf("%s %s", b.Match, b.Kind)
	if b.Peer != "" {
		text = fmt.Sprintf("%s toward %s %s", b.Match, b.Peer, b.Kind)
	}
	if b.End > 0 || b.Start > 0 {
		text += fmt.Sprintf(" from %s", b.Start)
	}
	if b.End > 0 {
		text += fmt.Sprintf(" to %s", b.End)
	}
	return fmt.Sprintf("%s: %d ports", text, ports)
}

// describeStage writes a stage's devices, ports by direction and speed, and its
// oversubscription where it has links both ways.
func (t *topology) describeStage(out io.Writer, stage string) {
	type kind struct {
		orientation string
		speed       Rate
	}
	count := map[kind]int{}
	devices := 0
	for i := range t.devices {
		if t.devices[i].stage != stage {
			continue
		}
		devices++
		for _, n := range t.devices[i].ports {
			count[kind{t.ports[n].orientation, t.ports[n].speed}]++
		}
	}
	var kinds []kind
	var up, down uint64
	for k, n := range count {
		kinds = append(kinds, k)
		switch k.orientation {
		case "up":
			up += uint64(k.speed) * uint64(n)
		case "down":
			down += uint64(k.speed) * uint64(n)
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(-cmp.Compare(a.orientation, b.orientation), cmp.Compare(a.speed, b.speed))
	})
	fmt.Fprintf(out, "%s: %d switches", stage, devices)
	for _, k := range kinds {
		fmt.Fprintf(out, ", %d ports %s at %s", count[k], k.orientation, k.speed)
	}
	if up > 0 && down > 0 {
		fmt.Fprintf(out, ", oversubscribed %d.%02d:1", down/up, down%up*100/up)
	}
	fmt.Fprintln(out)
}

// describeRacks lists racks, those of equal size in a row together.
func (t *topology) describeRacks() []string {
	var lines []string
	for first := 0; first < len(t.racks); {
		last := first
		for last+1 < len(t.racks) && len(t.racks[last+1].hosts) == len(t.racks[first].hosts) {
			last++
		}
		names := t.racks[first].name
		if last > first {
			names += " to " + t.racks[last].name
		}
		lines = append(lines, fmt.Sprintf("%s: %d hosts each", names, len(t.racks[first].hosts)))
		first = last + 1
	}
	if len(lines) > maxRackLines {
		rest := fmt.Sprintf("and %d more lines of racks", len(lines)-maxRackLines)
		lines = append(lines[:maxRackLines], rest)
	}
	return lines
}

const maxRackLines = 16

// farthest is the number of switches on the longest of the shortest paths between
// hosts, and how many there are between the first such pair.
func (t *topology) farthest() (switches, ways int) {
	for to := range t.attach {
		toward := t.distancesTo(int32(to))
		for i := range t.attach {
			for _, from := range t.attach[i].devices {
				if n := int(toward[from]) + 1; n > switches {
					switches, ways = n, t.ways(from, toward)
				}
			}
		}
	}
	return switches, ways
}

// ways counts the shortest paths from a device, parallel links included.
func (t *topology) ways(from int32, toward []distance) int {
	memo := map[int32]int{}
	var count func(at int32) int
	count = func(at int32) int {
		if toward[at] == 0 {
			return 1
		}
		if n, ok := memo[at]; ok {
			return n
		}
		n := 0
		for _, c := range t.devices[at].links {
			if next := t.ports[c].peerNode; toward[next] == toward[at]-1 {
				n += count(next)
			}
		}
		memo[at] = n
		return n
	}
	return count(from)
}
