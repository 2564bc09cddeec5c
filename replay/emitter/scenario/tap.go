package scenario

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// Tap is a place where frames are captured, and how badly. It stands on links: on
// those behind Ports, on those into what Before names, and on those out of what After
// names. Names are patterns of path.Match: "leaf1:up*" of ports, "spine*" of switches
// and "host3-1" of hosts, whose port is "host3-1:nic". A packet is captured once it has
// crossed the link.
//
// A tap on links into hosts alone stands at the receiver, one on links out of hosts
// alone at the sender, any other one in the middle; the fabric file says so.
type Tap struct {
	// Name is that of the capture interface, and of the file. With Racks it is empty.
	Name string `yaml:"name,omitempty"`
	// Racks stands for a tap for each rack, on the links into its hosts and named
	// after it: what a scenario without taps has.
	Racks  bool     `yaml:"racks,omitempty"`
	Ports  []string `yaml:"ports,omitempty,flow"`
	Before []string `yaml:"before,omitempty,flow"`
	After  []string `yaml:"after,omitempty,flow"`

	// The tap's clock is ahead by Offset at the start, gains Drift nanoseconds in each
	// second, and is off by up to Jitter in either direction for each frame.
	Offset time.Duration `yaml:"offset,omitempty"`
	Drift  int64         `yaml:"drift_ppb,omitempty"`
	Jitter time.Duration `yaml:"jitter,omitempty"`

	// Step is by how much the tap's clock is set, at StepAt from the start.
	Step   time.Duration `yaml:"step,omitempty"`
	StepAt time.Duration `yaml:"step_at,omitempty"`

	Loss      Share `yaml:"loss,omitempty"`      // of frames
	Duplicate Share `yaml:"duplicate,omitempty"` // of the captured ones
	// Reorder is the share of frames that are written after up to 8 later ones, with
	// the times that they had.
	Reorder Share `yaml:"reorder,omitempty"`
	SnapLen int   `yaml:"snap_len,omitempty"` // overrides Scenario.SnapLen unless 0

	// ERSPAN of type 2 or 3 makes the tap the far end of a mirror session, which each
	// frame comes in (draft-foschiano-erspan-03). 0: frames come as they are.
	ERSPAN  int    `yaml:"erspan,omitempty"`
	Session uint16 `yaml:"session,omitempty"` // of ERSPAN: 0 to 1023
}

// Places of taps, as the fabric file has them.
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
	maxPatterns   = 256 // of all taps: each is held against each link
	maxPattern    = 128 // bytes
)

func (t *Tap) check() error {
	switch {
	case t.Racks && (t.Name != "" || len(t.Ports)+len(t.Before)+len(t.After) > 0):
		return errors.New("racks: stands alone: names and places are those of the racks")
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

// plainName tells whether a name is the same in every file system.
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

// on tells whether the tap stands on the link behind a port.
func (t *Tap) on(e *Point) bool {
	return Matches(t.Ports, e.from+":"+e.port) || Matches(t.Before, e.to) || Matches(t.After, e.from)
}

// Matches tells whether a name fits one of the patterns, which were checked.
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
	rack             int // of the host that the link leads to
	rackName         string
	MACs             MACs
}

// Points are those of all ports, network interfaces of hosts last.
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

// A TapPlace is a tap and the ports behind which it stands.
type TapPlace struct {
	Tap
	Place string
	Links []int32
}

// at are the ports, and the devices behind interfaces of hosts, that packets of a tap in the middle
// of the fabric pass.
func (p *TapPlace) at(points []Point) (names []string) {
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

// PlaceTaps finds out where the taps of a scenario stand.
func PlaceTaps(s *Scenario, points []Point) ([]TapPlace, error) {
	specs := s.Taps
	if len(specs) == 0 {
		specs = []Tap{{Racks: true}}
	}
	var list []TapPlace
	taken := map[string]bool{}
	for i := range specs {
		spec := &specs[i]
		if err := spec.check(); err != nil {
			return nil, fmt.Errorf("taps[%d]: %w", i, err)
		}
		places := []TapPlace{spec.place(points)}
		if spec.Racks {
			places = spec.perRack(points)
		}
		for _, p := range places {
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

// checkTwice keeps measurements from being counted twice: what is captured at
// receivers goes into the heatmaps.
func checkTwice(list []TapPlace, points []Point) error {
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

func (t *Tap) perRack(points []Point) (list []TapPlace) {
	byRack := map[int]int{}
	for i := range points {
		if !points[i].toHost {
			continue
		}
		n, ok := byRack[points[i].rack]
		if !ok {
			n = len(list)
			byRack[points[i].rack] = n
			p := TapPlace{Tap: *t, Place: PlaceReceiver}
			p.Name = points[i].rackName
			list = append(list, p)
		}
		list[n].Links = append(list[n].Links, int32(i))
	}
	return list
}

func (t *Tap) place(points []Point) TapPlace {
	p := TapPlace{Tap: *t}
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
