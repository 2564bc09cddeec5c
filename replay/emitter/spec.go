package emitter

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// fabricSpec describes the simulated network as the fabric file does.
func fabricSpec(s *Scenario, t *topology) (*fabric.Spec, error) {
	words, err := csigSpec(s, t)
	if err != nil {
		return nil, err
	}
	spec := &fabric.Spec{Version: fabric.SpecVersion, Name: s.Name, CSIG: words}
	spec.Groups = append(spec.Groups, fabric.GroupSpec{Name: "pod1", Level: "pod"})
	for l := range t.leaves {
		spec.Groups = append(spec.Groups, fabric.GroupSpec{
			Name: rackName(l), Level: "rack", Parent: "pod1", Prefixes: s.prefixes(rackPrefix(l)),
		})
	}
	for i := range t.ports {
		p := &t.ports[i]
		if n := len(spec.Devices); n == 0 || spec.Devices[n-1].Name != p.device {
			spec.Devices = append(spec.Devices, fabric.DeviceSpec{Name: p.device, Stage: p.stage, ID: p.deviceID})
		}
		d := &spec.Devices[len(spec.Devices)-1]
		port := fabric.PortSpec{Name: p.port, Orientation: p.orientation, Peer: p.peer, Speed: p.speed.String()}
		if s.Locator == "port" {
			port.ID = portID(i)
		}
		d.Ports = append(d.Ports, port)
	}
	for h := range t.hosts() {
		spec.Hosts = append(spec.Hosts, fabric.HostSpec{Name: t.hostName(h), Addresses: s.addresses(t.address(h))})
	}
	spec.Taps, err = tapSpecs(s, t)
	return spec, err
}

// portID is what ports write as their port_id: never 0, which is the default of
// hosts.
func portID(port int) uint32 { return uint32(port + 1) }

func csigSpec(s *Scenario, t *topology) (csig.Spec, error) {
	format, profile := s.Layout.Format.String(), s.Layout.Profile.String()
	out := csig.Spec{
		TPIDs:       []csig.TPIDSpec{{TPID: tpidOf(s.Layout), Format: format, Profile: profile}},
		Reflections: csig.DefaultSpec().Reflections[:1],
	}
	if s.Layout.Format == csig.Wide {
		out.Reflections[0].Wide = profile
	} else {
		out.Reflections[0].Compact = profile
	}
	for _, signal := range s.Signals {
		table, err := tableSpec(s, signal)
		if err != nil {
			return out, err
		}
		out.Tables = append(out.Tables, table)
	}
	locator, err := locatorSpec(s, t)
	if err != nil {
		return out, err
	}
	out.Locators = append(out.Locators, locator)
	return out, nil
}

// tpidOf is the default TPID of the layout; wide/ietf01 has none and borrows the
// experimental one.
func tpidOf(l csig.Layout) uint16 {
	for _, t := range csig.DefaultSpec().TPIDs {
		if t.Format == l.Format.String() && t.Profile == l.Profile.String() {
			return t.TPID
		}
	}
	return 0x88b6
}

// tableSpec is the default table of the signal with the scenario's interval and
// delay threshold. Compact bandwidth buckets divide the fastest port's speed, since
// 32 buckets of 12.5 Gbit/s say nothing about slow links.
func tableSpec(s *Scenario, signal csig.Signal) (csig.TableSpec, error) {
	format, profile := s.Layout.Format.String(), s.Layout.Profile.String()
	tables := csig.DefaultSpec().Tables
	i := slices.IndexFunc(tables, func(d csig.TableSpec) bool {
		return d.Format == format && d.Signal == signal.String() && (d.Profile == "" || d.Profile == profile)
	})
	if i < 0 {
		return csig.TableSpec{}, fmt.Errorf("scenario: %s has no default table in %s", signal, s.Layout)
	}
	table := tables[i]
	table.Profile = profile
	if signal == csig.MinABW && s.Layout.Format == csig.Compact {
		fastest := max(s.HostSpeed, s.UplinkSpeed)
		for _, speed := range s.RackUplinkSpeed {
			fastest = max(fastest, speed)
		}
		for b := range table.Buckets {
			table.Buckets[b] = strconv.FormatUint(uint64(fastest)*uint64(b)/uint64(len(table.Buckets)), 10) + "kbps"
		}
	}
	switch signal {
	case csig.MaxDelay:
		table.Heavy = strconv.FormatInt(s.HeavyDelay.Nanoseconds(), 10) + "ns"
	case csig.MinABW, csig.MinABWRatio:
		table.Interval = strconv.FormatInt(s.ABWInterval.Nanoseconds(), 10) + "ns"
	}
	return table, nil
}
