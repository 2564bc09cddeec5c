package scenario

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Describe writes an overview of the scenario's fabric: stages with ports and speeds, racks, and
// distances between hosts.
func Describe(w io.Writer, s Scenario) error {
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		return err
	}
	t, err := NewTopology(&s)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "fabric of scenario %s: %d switches, %d ports, %d hosts in %d racks\n",
		s.Name, len(t.devices), len(t.Ports), t.Hosts(), len(t.Racks))
	for _, stage := range t.stages() {
		t.describeStage(out, stage)
	}
	for _, text := range t.describeRacks() {
		fmt.Fprintln(out, text)
	}
	switches, ways := t.farthest()
	fmt.Fprintf(out, "longest path: %d switches; paths of this length between its ends: %d\n", switches, ways)
	for _, b := range s.Behaviors() {
		fmt.Fprintln(out, b.describe(len(b.Matches(t))))
	}
	if err := describeTraffic(out, &s, t); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("describe fabric: %w", err)
	}
	return nil
}

// describe returns one line about a behavior that selects the given number of ports.
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

// describeStage writes a stage's devices, its ports by direction and speed, and its
// oversubscription if it has links both ways.
func (t *Topology) describeStage(out io.Writer, stage string) {
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
			count[kind{t.Ports[n].orientation, t.Ports[n].Speed}]++
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

// describeRacks lists the racks; consecutive racks of equal size share a line.
func (t *Topology) describeRacks() []string {
	var lines []string
	for first := 0; first < len(t.Racks); {
		last := first
		for last+1 < len(t.Racks) && len(t.Racks[last+1].hosts) == len(t.Racks[first].hosts) {
			last++
		}
		names := t.Racks[first].name
		if last > first {
			names += " to " + t.Racks[last].name
		}
		lines = append(lines, fmt.Sprintf("%s: %d hosts each", names, len(t.Racks[first].hosts)))
		first = last + 1
	}
	if len(lines) > maxRackLines {
		rest := fmt.Sprintf("and %d more lines of racks", len(lines)-maxRackLines)
		lines = append(lines[:maxRackLines], rest)
	}
	return lines
}

const maxRackLines = 16

// farthest returns the number of switches on the longest of the shortest paths between hosts, and
// the number of shortest paths of the first such pair.
func (t *Topology) farthest() (switches, ways int) {
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

// ways counts the shortest paths from a device, including parallel links.
func (t *Topology) ways(from int32, toward []distance) int {
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
			if next := t.Ports[c].PeerNode; toward[next] == toward[at]-1 {
				n += count(next)
			}
		}
		memo[at] = n
		return n
	}
	return count(from)
}

// describeTraffic writes the scenario's workloads and taps.
func describeTraffic(out io.Writer, s *Scenario, t *Topology) error {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		st, err := s.style(w)
		if err != nil {
			return err
		}
		parts := []string{"workload " + w.Kind}
		if w.Rate > 0 {
			parts = append(parts, "at "+w.Rate.String())
		}
		if w.Period > 0 {
			parts = append(parts, fmt.Sprintf("for %s of every %s", w.Burst, w.Period))
		}
		if w.Interval > 0 {
			parts = append(parts, "every "+w.Interval.String())
		}
		if w.Control != OpenLoop {
			parts = append(parts, "controlled by "+string(w.Control))
		}
		fmt.Fprintln(out, strings.Join(append(parts, "over "+st.String()), " "))
	}
	placed, err := PlaceTaps(s, t.Points())
	if err != nil {
		return err
	}
	label := func(i int) string {
		return fmt.Sprintf(": %s, %s%s", placed[i].Place, counted(len(placed[i].Links), "link"), placed[i].flaws())
	}
	for i, lines := 0, 0; i < len(placed); i, lines = i+1, lines+1 {
		if lines == maxTapLines {
			fmt.Fprintf(out, "and %d more taps\n", len(placed)-i)
			break
		}
		name := "tap " + placed[i].Name
		for first := i; i+1 < len(placed) && label(i+1) == label(first); i++ {
			name = "each of taps " + placed[first].Name + " to " + placed[i+1].Name
		}
		fmt.Fprintln(out, name+label(i))
	}
	return nil
}

const maxTapLines = 32

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String returns the style for people: "IPv4 in vxlan in IPv6 between leaves".
func (s Style) String() string {
	text := fmt.Sprintf("IPv%d", s.IP)
	if s.Pony {
		text = "pony over UDP over " + text
	}
	if s.Encap == EncapNone {
		return text
	}
	text += " in " + encapNames[s.Encap]
	if s.Encap.OuterIP() {
		text += fmt.Sprintf(" in IPv%d", s.Underlay)
	}
	if s.Leaves {
		return text + " between leaves"
	}
	return text
}

// flaws lists a tap's errors, after a comma.
func (t *Tap) flaws() string {
	var b strings.Builder
	for _, f := range []struct {
		name, value string
		some        bool
	}{
		{"clock ahead by", t.Offset.String(), t.Offset != 0},
		{"drift", fmt.Sprintf("%d ppb", t.Drift), t.Drift != 0},
		{"jitter", t.Jitter.String(), t.Jitter != 0},
		{"loses", t.Loss.String(), t.Loss != 0},
		{"duplicates", t.Duplicate.String(), t.Duplicate != 0},
		{"reorders", t.Reorder.String(), t.Reorder != 0},
		{"ERSPAN type", fmt.Sprint(t.ERSPAN), t.ERSPAN != 0},
	} {
		if f.some {
			b.WriteString(", " + f.name + " " + f.value)
		}
	}
	return b.String()
}
