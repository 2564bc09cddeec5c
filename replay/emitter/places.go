package emitter

import "fmt"

// point is a port and the link behind it, as taps see them.
type point struct {
	from, port, to   string // device or host, its port, device or host
	fromHost, toHost bool
	rack             int // of the host that the link leads to
	rackName         string
	macs             link
}

// points are those of all ports, network interfaces of hosts last.
func (t *topology) points() []point {
	list := make([]point, 0, len(t.ports)+len(t.nics))
	for i := range t.ports {
		p := &t.ports[i]
		e := point{from: p.device, port: p.port, to: p.peer}
		putMAC(e.macs[6:], switchMAC, p.deviceID)
		if h := int(p.peerHost); h != none {
			e.toHost, e.rack, e.rackName = true, t.rack(h), t.rackName(t.rack(h))
			putMAC(e.macs[:], hostMAC, t.address(h))
		} else if p.peerNode != none {
			putMAC(e.macs[:], switchMAC, t.devices[p.peerNode].id)
		}
		list = append(list, e)
	}
	for _, facing := range t.nics {
		p := &t.ports[facing]
		h := int(p.peerHost)
		e := point{from: t.hostName(h), port: "nic", to: p.device, fromHost: true}
		putMAC(e.macs[:], switchMAC, p.deviceID)
		putMAC(e.macs[6:], hostMAC, t.address(h))
		list = append(list, e)
	}
	return list
}

// A tapPlace is a tap and the ports behind which it stands.
type tapPlace struct {
	Tap
	place string
	ports []int32
}

// placeTaps finds out where the taps of a scenario stand.
func placeTaps(s *Scenario, points []point) ([]tapPlace, error) {
	specs := s.Taps
	if len(specs) == 0 {
		specs = []Tap{{Racks: true}}
	}
	var list []tapPlace
	taken := map[string]bool{}
	for i := range specs {
		spec := &specs[i]
		if err := spec.check(); err != nil {
			return nil, fmt.Errorf("taps[%d]: %w", i, err)
		}
		places := []tapPlace{spec.place(points)}
		if spec.Racks {
			places = spec.perRack(points)
		}
		for _, p := range places {
			if len(p.ports) == 0 {
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
func checkTwice(list []tapPlace, points []point) error {
	seen := make([]string, len(points))
	for i := range list {
		if list[i].place != placeReceiver {
			continue
		}
		for _, p := range list[i].ports {
			if seen[p] != "" {
				return fmt.Errorf("taps %s and %s both stand between %s and %s: its packets would count twice", seen[p], list[i].Name, points[p].from, points[p].to)
			}
			seen[p] = list[i].Name
		}
	}
	return nil
}

func (t *Tap) perRack(points []point) (list []tapPlace) {
	byRack := map[int]int{}
	for i := range points {
		if !points[i].toHost {
			continue
		}
		n, ok := byRack[points[i].rack]
		if !ok {
			n = len(list)
			byRack[points[i].rack] = n
			p := tapPlace{Tap: *t, place: placeReceiver}
			p.Name = points[i].rackName
			list = append(list, p)
		}
		list[n].ports = append(list[n].ports, int32(i))
	}
	return list
}

func (t *Tap) place(points []point) tapPlace {
	p := tapPlace{Tap: *t}
	into, out := 0, 0
	for i := range points {
		if !t.on(&points[i]) {
			continue
		}
		p.ports = append(p.ports, int32(i))
		if points[i].toHost {
			into++
		}
		if points[i].fromHost {
			out++
		}
	}
	switch len(p.ports) {
	case into:
		p.place = placeReceiver
	case out:
		p.place = placeSender
	default:
		p.place = placeMid
	}
	return p
}
