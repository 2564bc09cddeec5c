package scenario

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Tap captures frames on links, with configurable errors. Its links are those behind Ports, those
// into the nodes that match Before, and those out of the nodes that match After. Names are
// path.Match patterns: "leaf1:up*" of ports, "spine*" of switches and "host3-1" of hosts, whose
// port is "host3-1:nic". A packet is captured when it has crossed the link.
//
// A tap that has only links into hosts is at the receiver, one that has only links out of hosts is
// at the sender, and any other is mid-fabric; the fabric file says so.
type Tap struct {
	// Name names the capture interface and the file. With Racks it is empty.
	Name string `yaml:"name,omitempty"`
	// Racks adds one tap per rack, on the links into its hosts and named after it. It is the
	// default without taps.
	Racks  bool     `yaml:"racks,omitempty"`
	Ports  []string `yaml:"ports,omitempty,flow"`
	Before []string `yaml:"before,omitempty,flow"`
	After  []string `yaml:"after,omitempty,flow"`

	// The tap's clock is ahead by Offset at the start, gains Drift nanoseconds per second, and is
	// off by up to Jitter in either direction in each frame.
	Offset time.Duration `yaml:"offset,omitempty"`
	Drift  int64         `yaml:"drift_ppb,omitempty"`
	Jitter time.Duration `yaml:"jitter,omitempty"`

	// Step is a jump of the tap's clock at StepAt after the start.
	Step   time.Duration `yaml:"step,omitempty"`
	StepAt time.Duration `yaml:"step_at,omitempty"`

	Loss      Share `yaml:"loss,omitempty"`      // of frames
	Duplicate Share `yaml:"duplicate,omitempty"` // of captured frames
	// Reorder is the share of frames that are written after up to 8 later ones, with their original
	// times.
	Reorder Share `yaml:"reorder,omitempty"`
	SnapLen int   `yaml:"snap_len,omitempty"` // overrides Scenario.SnapLen unless 0

	// ERSPAN 2 or 3 makes the tap the far end of a mirror session of that type
	// (draft-foschiano-erspan-03); 0: frames are not mirrored.
	ERSPAN  int    `yaml:"erspan,omitempty"`
	Session uint16 `yaml:"session,omitempty"` // ERSPAN session, 0 to 1023
}

// Places of taps, named as in the fabric file.
const (
	PlaceReceiver = "receiver"
	PlaceSender   = "sender"
	placeMid      = "mid"
)

// Bounds of a tap.
const (
	maxTaps       = 1024
	maxClockError = time.Hour
	maxDrift      = 1e6 // ppb
	maxJitter     = time.Second
	maxSession    = 1023
	maxPatterns   = 256 // total of all taps and counters, since each is compared with each link
	maxPattern    = 128 // bytes
)

func (t *Tap) check() error {
	switch {
	case t.Racks && (t.Name != "" || len(t.Ports)+len(t.Before)+len(t.After) > 0):
		return errors.New("racks: names and places its taps by itself: leave out name, ports, before and after")
	case !t.Racks && t.Name == "":
		return errors.New("name: expected one")
	case !t.Racks && !plainName(t.Name):
		return fmt.Errorf("name %q: names a file: expected letters, digits, '-', '_' and '.'", t.Name)
	case !t.Racks && len(t.Ports)+len(t.Before)+len(t.After) == 0:
		return errors.New("expected ports, before or after")
	case t.Offset.Abs() > maxClockError:
		return fmt.Errorf("offset %s: expected at most %s", t.Offset, maxClockError)
	case t.Step.Abs() > maxClockError || t.StepAt < 0:
		return fmt.Errorf("step %s at %s: expected at most %s, 0 or later", t.Step, t.StepAt, maxClockError)
	case t.Drift > maxDrift || t.Drift < -maxDrift:
		return fmt.Errorf("drift_ppb %d: expected at most %d", t.Drift, int64(maxDrift))
	case t.Jitter < 0 || t.Jitter > maxJitter:
		return fmt.Errorf("jitter %s: expected 0 to %s", t.Jitter, maxJitter)
	case t.SnapLen != 0 && (t.SnapLen < minSnapLen || t.SnapLen > maxSnapLen):
		return fmt.Errorf("snap_len %d: expected %d to %d", t.SnapLen, minSnapLen, maxSnapLen)
	case t.ERSPAN != 0 && t.ERSPAN != 2 && t.ERSPAN != 3:
		return fmt.Errorf("erspan %d: expected 2 or 3", t.ERSPAN)
	case t.Session > maxSession:
		return fmt.Errorf("session %d: expected 0 to %d", t.Session, maxSession)
	}
	for _, list := range [][]string{t.Ports, t.Before, t.After} {
		if err := checkPatterns(list); err != nil {
			return err
		}
	}
	return nil
}

func checkPatterns(list []string) error {
	for _, pattern := range list {
		if len(pattern) > maxPattern {
			return fmt.Errorf("pattern of %d bytes: expected at most %d", len(pattern), maxPattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// plainName reports whether a name is portable across file systems.
func plainName(name string) bool {
	for i, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
		default:
			return false
		}
	}
	return len(name) <= 64
}

// on reports whether the tap covers the link behind a port.
func (t *Tap) on(e *Point) bool {
	return Matches(t.Ports, e.from+":"+e.port) || Matches(t.Before, e.to) || Matches(t.After, e.from)
}

// Matches reports whether a name matches one of the patterns. The patterns must be valid.
func Matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}

// Values of Scenario.Compress.
const (
	Gzip = "gzip"
	Zstd = "zstd"
)

// Point is a port and the link behind it, as taps see them.
type Point struct {
	from, port, to   string // device or host, its port, device or host
	fromHost, toHost bool
	rack             int // rack of the host at the end of the link
	rackName         string
	MACs             MACs
}

// Points returns one point per port, the hosts' network interfaces last.
func (t *Topology) Points() []Point {
	list := make([]Point, 0, len(t.Ports)+len(t.NICs))
	for i := range t.Ports {
		p := &t.Ports[i]
		e := Point{from: p.Device, port: p.Port, to: p.Peer}
		PutMAC(e.MACs[6:], SwitchMAC, p.DeviceID)
		if h := int(p.peerHost); h != None {
			e.toHost, e.rack, e.rackName = true, t.Rack(h), t.RackName(t.Rack(h))
			PutMAC(e.MACs[:], HostMAC, t.Address(h))
		} else if p.PeerNode != None {
			PutMAC(e.MACs[:], SwitchMAC, t.devices[p.PeerNode].id)
		}
		list = append(list, e)
	}
	for _, facing := range t.NICs {
		p := &t.Ports[facing]
		h := int(p.peerHost)
		e := Point{from: t.HostName(h), port: "nic", to: p.Device, fromHost: true}
		PutMAC(e.MACs[:], SwitchMAC, p.DeviceID)
		PutMAC(e.MACs[6:], HostMAC, t.Address(h))
		list = append(list, e)
	}
	return list
}

// PlacedTap is a tap with its place and the ports in front of its links.
type PlacedTap struct {
	Tap
	Place string
	Links []int32
}

// at returns the ports that the packets of a mid-fabric tap pass; for links out of hosts, the
// devices that they lead to. It is nil for other taps.
func (p *PlacedTap) at(points []Point) (names []string) {
	if p.Place != placeMid {
		return nil
	}
	for _, link := range p.Links {
		at := &points[link]
		name := at.from + ":" + at.port
		if at.fromHost {
			name = at.to
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// PlaceTaps resolves the links of a scenario's taps.
func PlaceTaps(s *Scenario, points []Point) ([]PlacedTap, error) {
	specs := s.Taps
	if len(specs) == 0 {
		specs = []Tap{{Racks: true}}
	}
	var list []PlacedTap
	taken := map[string]bool{}
	for i := range specs {
		spec := &specs[i]
		if err := spec.check(); err != nil {
			return nil, fmt.Errorf("taps[%d]: %w", i, err)
		}
		placed := []PlacedTap{spec.place(points)}
		if spec.Racks {
			placed = spec.perRack(points)
		}
		for _, p := range placed {
			if len(p.Links) == 0 {
				return nil, fmt.Errorf("taps[%d] (%s): no link of the fabric matches", i, p.Name)
			}
			if taken[p.Name] {
				return nil, fmt.Errorf("taps[%d]: two taps have the name %s", i, p.Name)
			}
			taken[p.Name] = true
			list = append(list, p)
		}
		if len(list) > maxTaps && len(s.Taps) > 0 {
			return nil, fmt.Errorf("%d taps: expected at most %d", len(list), maxTaps)
		}
	}
	return list, checkTwice(list, points)
}

// checkTwice refuses receiver taps that overlap, since all captures at receivers enter the heatmaps
// and would count twice.
func checkTwice(list []PlacedTap, points []Point) error {
	seen := make([]string, len(points))
	for i := range list {
		if list[i].Place != PlaceReceiver {
			continue
		}
		for _, p := range list[i].Links {
			if seen[p] != "" {
				return fmt.Errorf("taps %s and %s both stand between %s and %s: its packets would count twice", seen[p], list[i].Name, points[p].from, points[p].to)
			}
			seen[p] = list[i].Name
		}
	}
	return nil
}

func (t *Tap) perRack(points []Point) (list []PlacedTap) {
	byRack := map[int]int{}
	for i := range points {
		if !points[i].toHost {
			continue
		}
		n, ok := byRack[points[i].rack]
		if !ok {
			n = len(list)
			byRack[points[i].rack] = n
			p := PlacedTap{Tap: *t, Place: PlaceReceiver}
			p.Name = points[i].rackName
			list = append(list, p)
		}
		list[n].Links = append(list[n].Links, int32(i))
	}
	return list
}

func (t *Tap) place(points []Point) PlacedTap {
	p := PlacedTap{Tap: *t}
	into, out := 0, 0
	for i := range points {
		if !t.on(&points[i]) {
			continue
		}
		p.Links = append(p.Links, int32(i))
		if points[i].toHost {
			into++
		}
		if points[i].fromHost {
			out++
		}
	}
	switch len(p.Links) {
	case into:
		p.Place = PlaceReceiver
	case out:
		p.Place = PlaceSender
	default:
		p.Place = placeMid
	}
	return p
}
