package fabric

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/decode/csig"
)

// Outline is a fabric for people: its pods, stages, devices and ports, the numbers of links, and
// the oversubscription of stages.
type Outline struct {
	Name   string         `json:"name,omitempty"`
	Pods   []OutlinePod   `json:"pods"`
	Stages []OutlineStage `json:"stages"` // from the hosts up
	Links  []OutlineLinks `json:"links"`
	Hosts  int            `json:"hosts"`
	Groups int            `json:"groups"`
}

// OutlinePod is the devices that are linked without the highest stage. That stage, and a fabric
// with fewer than three stages, is a pod without a name.
type OutlinePod struct {
	Name    string          `json:"name,omitempty"`
	Devices []OutlineDevice `json:"devices"` // from the hosts up
}

// OutlineDevice is a switch.
type OutlineDevice struct {
	Name  string        `json:"name"`
	Stage string        `json:"stage"`
	Ports []OutlinePort `json:"ports"`
}

// OutlinePort is an egress port.
type OutlinePort struct {
	Name        string `json:"name"`
	Orientation string `json:"orientation"`
	Speed       uint64 `json:"speed_bps"`
	Peer        string `json:"peer,omitempty"`
	PeerKind    string `json:"peer_kind,omitempty"` // device or host
}

// OutlineStage is the totals of the devices of a stage.
type OutlineStage struct {
	Stage   string `json:"stage"`
	Devices int    `json:"devices"`
	Ports   int    `json:"ports"`
	Up      uint64 `json:"up_bps"`
	Down    uint64 `json:"down_bps"`
	// Oversubscription is Down divided by Up; 0: nothing is above the stage.
	Oversubscription float64 `json:"oversubscription,omitempty"`
	// Worst is the most oversubscribed device, if devices differ.
	Worst      string  `json:"worst,omitempty"`
	WorstRatio float64 `json:"worst_oversubscription,omitempty"`
}

// OutlineLinks counts the links between two stages, or a stage and hosts.
type OutlineLinks struct {
	Between [2]string `json:"between"`
	Speed   uint64    `json:"speed_bps"`
	Count   int       `json:"count"`
}

// hostStage stands for hosts among stages.
const hostStage = "hosts"

// Outline describes the fabric.
func (f *Fabric) Outline(name string) *Outline {
	t := f.topo
	o := &Outline{Name: name, Hosts: len(t.hosts), Groups: len(t.groups)}
	height := t.heights()
	order := make([]int32, len(t.devices))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(height[x], height[y]) })
	o.addStages(t, order)
	o.addLinks(t, height)
	o.addPods(t, order, height)
	return o
}

// heights returns the number of steps up from the lowest devices to each device.
func (t *topology) heights() []int {
	height := make([]int, len(t.devices))
	for range min(len(t.devices), 16) { // more than in any fabric; the bound ends cycles of "up"
		moved := false
		for i := range t.ports {
			p := &t.ports[i]
			if p.peerDevice != none && p.orientation == "up" && height[p.peerDevice] <= height[p.device] {
				height[p.peerDevice] = height[p.device] + 1
				moved = true
			}
		}
		if !moved {
			break
		}
	}
	return height
}

func (o *Outline) addStages(t *topology, order []int32) {
	at := map[string]int{}
	for _, i := range order {
		d := &t.devices[i]
		n, ok := at[d.stage]
		if !ok {
			n = len(o.Stages)
			at[d.stage] = n
			o.Stages = append(o.Stages, OutlineStage{Stage: d.stage})
		}
		s := &o.Stages[n]
		var up, down uint64
		for _, p := range d.ports {
			switch t.ports[p].orientation {
			case "up":
				up += t.ports[p].speed * 1000
			case "down":
				down += t.ports[p].speed * 1000
			}
		}
		s.Devices, s.Ports, s.Up, s.Down = s.Devices+1, s.Ports+len(d.ports), s.Up+up, s.Down+down
		if r := ratio(down, up); r > s.WorstRatio {
			s.Worst, s.WorstRatio = d.name, r
		}
	}
	for n := range o.Stages {
		s := &o.Stages[n]
		if s.Oversubscription = ratio(s.Down, s.Up); s.WorstRatio <= s.Oversubscription*1.001 {
			s.Worst, s.WorstRatio = "", 0
		}
	}
}

func ratio(down, up uint64) float64 {
	if up == 0 {
		return 0
	}
	return float64(down) / float64(up)
}

// addLinks counts the links between devices by the ports that face up, or for sideways links by
// those of the device that comes first, and the links to hosts.
func (o *Outline) addLinks(t *topology, height []int) {
	counts := map[OutlineLinks]int{}
	var order []OutlineLinks
	for i := range t.ports {
		p := &t.ports[i]
		k := OutlineLinks{Between: [2]string{hostStage, t.devices[p.device].stage}, Speed: p.speed * 1000}
		switch {
		case p.peerHost != none:
		case p.peerDevice == none || height[p.device] > height[p.peerDevice] || height[p.device] == height[p.peerDevice] && p.device > p.peerDevice:
			continue
		default:
			k.Between = [2]string{t.devices[p.device].stage, t.devices[p.peerDevice].stage}
		}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	rank := func(stage string) int {
		return slices.IndexFunc(o.Stages, func(s OutlineStage) bool { return s.Stage == stage }) // -1: hosts
	}
	slices.SortStableFunc(order, func(x, y OutlineLinks) int {
		return cmp.Or(cmp.Compare(rank(x.Between[0]), rank(y.Between[0])), cmp.Compare(rank(x.Between[1]), rank(y.Between[1])), cmp.Compare(x.Speed, y.Speed))
	})
	for _, k := range order {
		n := counts[k]
		k.Count = n
		o.Links = append(o.Links, k)
	}
}

// addPods divides devices into pods.
func (o *Outline) addPods(t *topology, order []int32, height []int) {
	top := 0
	for _, h := range height {
		top = max(top, h)
	}
	pod := make([]int32, len(t.devices)) // from 1; 0: none
	pods := int32(0)
	for _, i := range order {
		if top < 2 || pod[i] != 0 || height[i] == top {
			continue
		}
		pods++
		pod[i] = pods
		for wave := []int32{i}; len(wave) > 0; wave = wave[1:] {
			for _, p := range t.devices[wave[0]].ports {
				if n := t.ports[p].peerDevice; n != none && height[n] < top && pod[n] == 0 {
					pod[n] = pods
					wave = append(wave, n)
				}
			}
		}
	}
	list := make([]OutlinePod, pods+1)
	for _, i := range order {
		n := pod[i]
		if pods < 2 {
			n = 0
		}
		list[n].Devices = append(list[n].Devices, t.outlineOf(i))
		if n > 0 && list[n].Name == "" {
			list[n].Name = t.podOf(i)
		}
	}
	for n := int32(1); n <= pods && pods > 1; n++ {
		if list[n].Name == "" {
			list[n].Name = "pod " + strconv.Itoa(int(n))
		}
		o.Pods = append(o.Pods, list[n])
	}
	if len(list[0].Devices) > 0 {
		o.Pods = append(o.Pods, list[0])
	}
}

// podOf returns the group of level pod to which the hosts of a device belong, or "".
func (t *topology) podOf(device int32) string {
	for i := range t.groups {
		g := &t.groups[i]
		if _, home := slices.BinarySearch(g.homes, device); g.level == "rack" && home {
			if p := t.groupNamed(g.parent); p != none && t.groups[p].level == "pod" {
				return g.parent
			}
		}
	}
	return ""
}

func (t *topology) outlineOf(device int32) OutlineDevice {
	d := &t.devices[device]
	out := OutlineDevice{Name: d.name, Stage: d.stage}
	ports := slices.Clone(d.ports)
	slices.SortFunc(ports, func(x, y int32) int { return cmp.Compare(t.ports[x].number, t.ports[y].number) })
	for _, i := range ports {
		p := &t.ports[i]
		q := OutlinePort{Name: strings.TrimPrefix(p.name, d.name+":"), Orientation: p.orientation, Speed: p.speed * 1000, Peer: p.peer}
		switch {
		case p.peerHost != none:
			q.PeerKind = "host"
		case p.peerDevice != none:
			q.PeerKind = "device"
		}
		out.Ports = append(out.Ports, q)
	}
	return out
}

// WriteText writes the outline as a tree and two tables below it.
func (o *Outline) WriteText(w io.Writer) error {
	var b strings.Builder
	if o.Name != "" {
		fmt.Fprintln(&b, o.Name)
	}
	for i := range o.Pods {
		indent := ""
		if o.Pods[i].Name != "" {
			fmt.Fprintf(&b, "%s\n", o.Pods[i].Name)
			indent = "  "
		}
		o.Pods[i].write(&b, indent)
	}
	fmt.Fprintf(&b, "\n%d devices, %d hosts, %d groups\n", o.devices(), o.Hosts, o.Groups)
	for _, l := range o.Links {
		fmt.Fprintf(&b, "%d links of %s between %s and %s\n", l.Count, SpeedLabel(l.Speed/1000), l.Between[0], l.Between[1])
	}
	for _, s := range o.Stages {
		fmt.Fprintf(&b, "%s: %d devices, %d ports, %s down", s.Stage, s.Devices, s.Ports, csig.FormatQuantity(csig.BitPerSecond, float64(s.Down/1000)))
		if s.Up > 0 {
			fmt.Fprintf(&b, ", %s up", csig.FormatQuantity(csig.BitPerSecond, float64(s.Up/1000)))
		}
		if s.Oversubscription > 0 {
			fmt.Fprintf(&b, ", oversubscription %.3g:1", s.Oversubscription)
		}
		if s.Worst != "" {
			fmt.Fprintf(&b, " (%s: %.3g:1)", s.Worst, s.WorstRatio)
		}
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write outline: %w", err)
	}
	return nil
}

func (o *Outline) devices() (n int) {
	for i := range o.Pods {
		n += len(o.Pods[i].Devices)
	}
	return n
}

func (p *OutlinePod) write(b *strings.Builder, indent string) {
	stage := ""
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Stage != stage {
			stage = d.Stage
			fmt.Fprintf(b, "%s%s\n", indent, stage)
		}
		fmt.Fprintf(b, "%s  %s\n", indent, d.Name)
		for rest := d.Ports; len(rest) > 0; {
			run := alike(rest)
			fmt.Fprintf(b, "%s    %-6s %s  %s", indent, rest[0].Orientation, span(rest[:run], func(p *OutlinePort) string { return p.Name }), SpeedLabel(rest[0].Speed/1000))
			if rest[0].Peer != "" {
				fmt.Fprintf(b, "  to %s", span(rest[:run], func(p *OutlinePort) string { return p.Peer }))
			}
			b.WriteByte('\n')
			rest = rest[run:]
		}
	}
}

// alike returns the number of ports at the start of a list with one orientation, speed and kind of
// peer.
func alike(list []OutlinePort) int {
	n := 1
	for n < len(list) && list[n].Orientation == list[0].Orientation && list[n].Speed == list[0].Speed && list[n].PeerKind == list[0].PeerKind {
		n++
	}
	return n
}

// span returns the first and the last name and the number of names.
func span(list []OutlinePort, name func(*OutlinePort) string) string {
	var names []string
	for i := range list {
		names = append(names, name(&list[i]))
	}
	names = slices.Compact(names)
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s .. %s (%d)", names[0], names[len(names)-1], len(names))
}
