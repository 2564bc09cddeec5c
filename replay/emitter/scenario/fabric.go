package scenario

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FabricFile is the name of the fabric file beside captures.
const FabricFile = "fabric.yaml"

// Fabric returns the fabric that Run writes to FabricFile.
func Fabric(s Scenario) (*fabric.Spec, error) {
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		return nil, err
	}
	t, err := NewTopology(&s)
	if err != nil {
		return nil, err
	}
	return fabricSpec(&s, t)
}

// CompileFabric compiles the CSIG domain that the fabric file describes.
func CompileFabric(s *Scenario, t *Topology) (*csig.Domain, error) {
	spec, err := fabricSpec(s, t)
	if err != nil {
		return nil, err
	}
	return csig.DefaultSpec().Overlay(spec.CSIG).Compile()
}

// WriteFabric writes the fabric file.
func WriteFabric(path string, s *Scenario, t *Topology) error {
	spec, err := fabricSpec(s, t)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create fabric file: %w", err)
	}
	out := bufio.NewWriter(file)
	err = spec.Write(out)
	if err == nil {
		err = out.Flush()
	}
	return errors.Join(err, file.Close())
}

// fabricSpec describes the simulated network in the form of the fabric file.
func fabricSpec(s *Scenario, t *Topology) (*fabric.Spec, error) {
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
			p := &t.Ports[n]
			port := fabric.PortSpec{Name: p.Port, Orientation: p.orientation, Peer: p.Peer, Speed: p.Speed.String()}
			if s.Locator == "port" || s.Locator == "file" || s.hasField("port_id") {
				port.ID = p.ID
			}
			out.Ports = append(out.Ports, port)
		}
		spec.Devices = append(spec.Devices, out)
	}
	for h := range t.Hosts() {
		spec.Hosts = append(spec.Hosts, fabric.HostSpec{Name: t.HostName(h), Addresses: s.addresses(t.Address(h))})
	}
	if s.ECMPHash != "" {
		spec.ECMP = []fabric.ECMPSpec{{Hash: s.ECMPHash, Fields: []string{"src_ip", "dst_ip", "src_port", "dst_port"}}}
		for i := range spec.Devices {
			spec.Devices[i].HashSeed = ecmpSeed(i)
		}
	}
	spec.Taps, err = tapSpecs(s, t)
	return spec, err
}

func csigSpec(s *Scenario, t *Topology) (csig.Spec, error) {
	format, profile := s.Layout.Format.String(), s.Layout.Profile.String()
	out := csig.Spec{
		TPIDs:       []csig.TPIDSpec{{TPID: TPIDOf(s.Layout), Format: format, Profile: profile}},
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

// TPIDOf returns the layout's default TPID. wide/ietf01 has none and uses an experimental one.
func TPIDOf(l csig.Layout) uint16 {
	for _, t := range csig.DefaultSpec().TPIDs {
		if t.Format == l.Format.String() && t.Profile == l.Profile.String() {
			return t.TPID
		}
	}
	return 0x88b6
}

// tableSpec returns the signal's default table with the scenario's interval and delay threshold.
// Compact bandwidth buckets divide the fastest port's speed, since 32 buckets of 12.5 Gbit/s are
// too coarse for slow links.
func tableSpec(s *Scenario, t *Topology, signal csig.Signal) (csig.TableSpec, error) {
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

// versions returns the IP versions of the hosts' addresses, and whether packets inside tunnels
// between hosts have addresses of their own.
func (s *Scenario) versions() (list []uint8, tenants bool) {
	styles, _, err := s.Styles()
	if err != nil {
		return []uint8{4}, false // Check reports the error
	}
	for _, st := range styles {
		list = append(list, st.IP)
		if st.Encap.OuterIP() {
			list = append(list, st.Underlay)
		}
		tenants = tenants || st.Tenants()
	}
	slices.Sort(list)
	return slices.Compact(list), tenants
}

// addresses returns all addresses of a host.
func (s *Scenario) addresses(a uint32) []string {
	return s.known(a, func(version uint8, a uint32) string { return AddressOf(version, a).String() })
}

func (s *Scenario) known(a uint32, name func(version uint8, a uint32) string) (list []string) {
	versions, tenants := s.versions()
	for _, v := range versions {
		list = append(list, name(v, a))
		if tenants {
			list = append(list, name(v, a^TenantBit))
		}
	}
	return list
}

// tapSpecs returns the taps for the fabric file. Classic pcap has no interface names, so there the
// file name identifies the tap.
func tapSpecs(s *Scenario, t *Topology) ([]fabric.TapSpec, error) {
	points := t.Points()
	placed, err := PlaceTaps(s, points)
	if err != nil {
		return nil, err
	}
	var list []fabric.TapSpec
	for i := range placed {
		list = append(list, fabric.TapSpec{
			Name: placed[i].Name, Place: placed[i].Place, At: placed[i].at(points), Mirrors: decode.Mirrors{ERSPAN: placed[i].ERSPAN != 0},
		})
	}
	if !s.SingleFile || !s.Classic {
		return list, nil
	}
	all := fabric.TapSpec{Name: s.Name, Place: list[0].Place}
	for i := range list {
		all.At = append(all.At, list[i].At...)
		if list[i].Place != all.Place {
			return nil, errors.New("classic and single_file: taps at different places need files of their own")
		}
		all.Mirrors.ERSPAN = all.Mirrors.ERSPAN || list[i].Mirrors.ERSPAN
	}
	return []fabric.TapSpec{all}, nil
}

// A host's number in the network is its IPv4 address in 10/8; racks are /24 prefixes. The IPv6
// address has the same bits, and racks are /64 prefixes of fd00:c516::/32: 10.0.1.2 is
// fd00:c516:a:1::2.

const (
	// TenantBit distinguishes the address of a packet inside a host-to-host tunnel from the host's
	// own.
	TenantBit = 1 << 23
	// VTEPHost is the host number of a leaf's own address, the endpoint of tunnels between leaves.
	// Hosts have smaller numbers.
	VTEPHost = 254
)

// VTEP returns the address of the leaf above an address.
func VTEP(a uint32) uint32 { return a&^0xff | VTEPHost }

// PutIPv6 writes the IPv6 form of an address, 16 bytes.
func PutIPv6(b []byte, a uint32) {
	binary.BigEndian.PutUint64(b, 0xfd00c516<<32|uint64(a>>8))
	binary.BigEndian.PutUint64(b[8:], uint64(a&0xff))
}

// AddressOf returns the address in an IP version.
func AddressOf(version uint8, a uint32) netip.Addr {
	if version == 6 {
		var b [16]byte
		PutIPv6(b[:], a)
		return netip.AddrFrom16(b)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return netip.AddrFrom4(b)
}

// prefixOf returns the rack's prefix of an address.
func prefixOf(version uint8, a uint32) string {
	p := netip.PrefixFrom(AddressOf(version, a), 24)
	if version == 6 {
		p = netip.PrefixFrom(p.Addr(), 64)
	}
	return p.Masked().String()
}

// MACs holds a frame's addresses on a link: destination, then source.
type MACs [12]byte

// Kinds of locally administered addresses, given in their second byte.
const (
	HostMAC   = 0 // a host, with its address
	SwitchMAC = 1 // a switch, with its number
)

// PutMAC writes a MAC address of six bytes.
func PutMAC(b []byte, kind byte, n uint32) {
	b[0], b[1] = 2, kind
	binary.BigEndian.PutUint32(b[2:], n)
}
