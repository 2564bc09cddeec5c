package fabric

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/decode/csig"
)

// Lines of a fingerprint, as topology.print writes them.
var (
	groupLine  = regexp.MustCompile(`^group ("(?:[^"\\]|\\.)*") (\S*) parent ("(?:[^"\\]|\\.)*")$`)
	prefixLine = regexp.MustCompile(`^prefix (\S+) ("(?:[^"\\]|\\.)*")$`)
	deviceLine = regexp.MustCompile(`^device (\S+) stage (.*) id (\d+)$`)
	portLine   = regexp.MustCompile(`^port ([^ :]+):(\S+) id (\d+) (\S*) peer ("(?:[^"\\]|\\.)*") (\d+) kbit/s$`)
	hostLine   = regexp.MustCompile(`^host (\S+) (\S+)$`)
)

// RestoreLine is the beginning of a line that every text with a topology has.
const RestoreLine = "device "

// Restore makes a fabric of the topology in a text that contains a Fingerprint: devices, ports,
// hosts and groups, without locators and taps. Use it for paths, not for Locate. A text without a
// topology gives a fabric without devices; any other text gives an error at worst.
func Restore(text string) (*Fabric, error) {
	r := restorer{devices: map[string]int{}, hosts: map[string]int{}, groups: map[string]int{}, deviceIDs: map[string]uint32{}, portIDs: map[string]uint32{}}
	for line := range strings.Lines(text) {
		r.read(strings.TrimSuffix(line, "\n"))
	}
	r.spec.Version = SpecVersion
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		return nil, fmt.Errorf("restore fabric: %w", err)
	}
	t, err := build(&r.spec, domain)
	if err != nil {
		return nil, fmt.Errorf("restore fabric: %w", err)
	}
	for i := range t.devices { // ids are checked against locators, which are missing here
		t.devices[i].id = r.deviceIDs[t.devices[i].name]
	}
	for i := range t.ports {
		t.ports[i].id = r.portIDs[t.ports[i].name]
	}
	return newFabric(t, domain), nil
}

// restorer collects a specification, with the indices of entries that have further lines.
type restorer struct {
	spec                   Spec
	devices, hosts, groups map[string]int
	deviceIDs, portIDs     map[string]uint32
}

// read adds a line of a topology and ignores all others. Numbers out of range become 0.
func (r *restorer) read(line string) {
	unquoted := func(s string) string {
		s, _ = strconv.Unquote(s)
		return s
	}
	number := func(s string) uint32 {
		n, _ := strconv.ParseUint(s, 10, 32)
		return uint32(n)
	}
	switch kind, _, _ := strings.Cut(line, " "); kind {
	case "group":
		if m := groupLine.FindStringSubmatch(line); m != nil {
			r.groups[unquoted(m[1])] = len(r.spec.Groups)
			r.spec.Groups = append(r.spec.Groups, GroupSpec{Name: unquoted(m[1]), Level: m[2], Parent: unquoted(m[3])})
		}
	case "prefix":
		if m := prefixLine.FindStringSubmatch(line); m != nil {
			if i, ok := r.groups[unquoted(m[2])]; ok {
				r.spec.Groups[i].Prefixes = append(r.spec.Groups[i].Prefixes, m[1])
			}
		}
	case "device":
		if m := deviceLine.FindStringSubmatch(line); m != nil {
			r.devices[m[1]] = len(r.spec.Devices)
			r.spec.Devices = append(r.spec.Devices, DeviceSpec{Name: m[1], Stage: m[2]})
			r.deviceIDs[m[1]] = number(m[3])
		}
	case "port":
		if m := portLine.FindStringSubmatch(line); m != nil {
			if i, ok := r.devices[m[1]]; ok {
				d := &r.spec.Devices[i]
				d.Ports = append(d.Ports, PortSpec{Name: m[2], Orientation: m[4], Peer: unquoted(m[5]), Speed: m[6] + "kbps"})
				r.portIDs[portName(m[1], m[2])] = number(m[3])
			}
		}
	case "host":
		if m := hostLine.FindStringSubmatch(line); m != nil {
			i, ok := r.hosts[m[1]]
			if !ok {
				i = len(r.spec.Hosts)
				r.hosts[m[1]] = i
				r.spec.Hosts = append(r.spec.Hosts, HostSpec{Name: m[1]})
			}
			r.spec.Hosts[i].Addresses = append(r.spec.Hosts[i].Addresses, m[2])
		}
	}
}

// TopologyRevision identifies the topology and the groups: a hash of their canonical text in
// hexadecimal, empty without devices.
func (f *Fabric) TopologyRevision() string { return f.revision() }

func (t *topology) revision() string {
	if len(t.devices) == 0 {
		return ""
	}
	var b bytes.Buffer
	t.print(&b)
	return fmt.Sprintf("%016x", xxhash.Sum64(b.Bytes()))
}
