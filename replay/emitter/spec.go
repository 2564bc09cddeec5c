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
	spec.Groups = t.groups
	for i := range t.devices {
		d := &t.devices[i]
		out := fabric.DeviceSpec{Name: d.name, Stage: d.stage, ID: d.id}
		for _, n := range d.ports {
			p := &t.ports[n]
			port := fabric.PortSpec{Name: p.port, Orientation: p.orientation, Peer: p.peer, Speed: p.speed.String()}
			if s.Locator == "port" || s.Locator == "file" || s.hasField("port_id") {
				port.ID = p.id
			}
			out.Ports = append(out.Ports, port)
		}
		spec.Devices = append(spec.Devices, out)
	}
	for h := range t.hosts() {
		spec.Hosts = append(spec.Hosts, fabric.HostSpec{Name: t.hostName(h), Addresses: s.addresses(t.address(h))})
	}
	spec.Taps, err = tapSpecs(s, t)
	return spec, err
}

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
	out.UDPReflections = s.ponyReflections()
	for _, signal := range s.Signals {
		table, err := tableSpec(s, t, signal)
		if err != nil {
			return out, err
		}
		out.Tables = append(out.Tables, table)
	}
	locators, err := locatorSpecs(s, t)
	if err != nil {
		return out, err
	}
	out.Locators = append(out.Locators, locators...)
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
func tableSpec(s *Scenario, t *topology, signal csig.Signal) (csig.TableSpec, error) {
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
		fastest := t.fastest()
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
