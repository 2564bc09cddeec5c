package bpf

import (
	"bytes"
	"cmp"
	_ "embed" // the compiled programs
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

//go:generate ./kernel/compile
//go:embed csig.o
var compiled []byte

// Names in kernel/csig.c.
const (
	countProgram = "csig_count"
	oddProgram   = "csig_odd"
)

// entry is struct entry.
type entry struct {
	mapKey
	Bytes, Sum uint64
	Count      [4]uint32 // wide tags: their number, and the lowest and the highest code
}

// bucket is struct bucket: slots of the index.
type bucket [16]uint32

// overflowCounts is struct compact.
type overflowCounts struct {
	Bytes uint64
	Count [32]uint32
}

// counters are struct counters.
type counters struct {
	Packets, Bytes uint64
	Supers         uint64
	Odd            [OddReasons]uint64
	Empty, Invalid uint64
	Overflow, Lost uint64
	Unsampled      uint64
}

// sample is struct sample.
type sample struct {
	Src, Dst                [16]byte
	Window, S, Bytes, Every uint32
	LM, SrcPort, DstPort    uint16
	Proto, Kind, Type       uint8
	Flags                   uint8 // hasAddrs and isV6
	Buffer                  uint8 // in which the observation was counted
	_                       [5]byte
}

// extractor is struct extractor.
type extractor struct {
	Offset, ValidOffset, MatchOffset         uint16
	Layout, ValidMask, MatchMask, MatchValue uint8
	_                                        [2]byte
}

// encoding is struct encoding.
type encoding struct {
	ExID    uint32
	Kind    uint8
	ExIDLen uint8
	Payload uint8
	Layout  [2]uint8
	_       [3]uint8
}

// Classes of EtherTypes.
const (
	typeOther = iota
	typeVLAN
	typeIPv4
	typeIPv6
	typeUnread
	typeTag
)

// compile returns the programs for the settings, with buffers of so many keys, and the endpoints of keys.
func compile(s *window.Settings, tap window.Tap, keys int, own secrets) (*ebpf.CollectionSpec, ends, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(compiled))
	if err != nil {
		return nil, ends{}, fmt.Errorf("read programs: %w", err)
	}
	e := newEnds(s.Resolver)
	values := decodingOf(s)
	if values["signals"], err = signalsOf(s); err != nil {
		return nil, e, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, e, fmt.Errorf("count processors: %w", err)
	}
	samples := sampleBudget(s)
	values["heavies"], values["budget"] = heaviesOf(s), uint32(samples)
	spec.Maps["samples"].MaxEntries = uint32(ringBytes(samples * cpus))
	values["secrets"], values["buckets"], values["room"] = own, uint32(bucketsOf(keys)-1), uint32(keys)
	values["first_buckets"] = firstBuckets(keys, keys)
	values["resolution"] = uint64(s.Finest())
	values["udp_repeat"] = uint64(s.UDPRepeat)
	values["locate_untouched"] = number(s.LocateUntouched)
	values["refuse"] = [2]uint32{number(!tap.Tags), number(!tap.Reflections)}
	values["use_classes"], values["mask4"], values["mask6"] = number(e.classed()), e.mask4, e.mask6
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, e, fmt.Errorf("set %s: %w", name, err)
		}
	}
	spec.Maps["entries"].MaxEntries = 2 * uint32(keys)
	spec.Maps["index_buckets"].MaxEntries = 2 * uint32(bucketsOf(keys))
	spec.Maps["known"].MaxEntries *= uint32(cpus)
	spec.Maps["overflows"].InnerMap.MaxEntries = overflowKeys
	spec.Maps["classes"].MaxEntries = uint32(max(len(e.prefixes), 1))
	for i, p := range e.prefixes {
		spec.Maps["classes"].Contents = append(spec.Maps["classes"].Contents, ebpf.MapKV{Key: lpmKey(p), Value: e.classes[i]})
	}
	return spec, e, nil
}

// Limits of the samples of flows: of one CPU, and of the kernel memory for the samples of all CPUs between two readings.
const (
	samplesPerSecond = 4096
	minSamples       = 32 // of a CPU between two readings: the program divides the budget by 32
	maxSampleBytes   = 4 << 20
	// sampleBytes is the size of a sample in the ring, with the kernel's header.
	sampleBytes = int(unsafe.Sizeof(sample{})) + 8
)

// sampleBudget returns how many samples a CPU may take between two readings; 0 without flows.
func sampleBudget(s *window.Settings) int {
	if s.Flows.Top == 0 {
		return 0
	}
	return max(int(samplesPerSecond*readEvery(s.Finest())/time.Second), minSamples)
}

// ringBytes returns the size of a ring with room for so many samples: a power of two.
func ringBytes(samples int) int {
	n := os.Getpagesize()
	for n < samples*sampleBytes && n < maxSampleBytes {
		n *= 2
	}
	return n
}

// secrets are the random factors of the program's hashes, so that nobody can craft packets whose keys collide.
type secrets [8]uint64

func newSecrets() (s secrets) {
	for i := range s {
		s[i] = rand.Uint64()
	}
	return s
}

// bucketsOf returns the number of buckets in the index of a buffer. There are two slots for each key, so that few buckets are
// full before the buffer is.
func bucketsOf(keys int) int { return max(2*keys/len(bucket{}), 1) }

// firstBuckets returns the program's variable first_buckets for an expected number of keys, at most most, in each buffer.
func firstBuckets(keys, most int) [2]uint32 {
	n := uint32(1)<<bits.Len(uint(bucketsOf(min(keys, most))-1)) - 1
	return [2]uint32{n, n}
}

// overflowKeys is the maximum number of overflow entries of a buffer, one for each kind, layout, type and window on each CPU.
const overflowKeys = 1 << 12

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// lpmPrefix is struct address.
type lpmPrefix struct {
	Bits uint32
	Addr [16]byte
}

func lpmKey(p netip.Prefix) lpmPrefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return lpmPrefix{uint32(bits), p.Addr().As16()}
}

// decodingOf returns the variables with the settings of decode.Decoder.
func decodingOf(s *window.Settings) map[string]any {
	d := s.Decode.Domain
	types := make([]uint8, 1<<16)
	for id, class := range map[uint16]uint8{
		0x8100: typeVLAN, 0x88a8: typeVLAN, 0x9100: typeVLAN, 0x0800: typeIPv4, 0x86dd: typeIPv6,
		0x88e5: typeUnread, 0x8847: typeUnread, 0x8848: typeUnread,
	} {
		types[id] = class
	}
	for _, id := range d.TPIDs() { // after the VLAN TPIDs, which a domain may use for CSIG
		l, _ := d.LayoutOf(id)
		types[id] = typeTag + uint8(l.Index())
	}
	ports := make([]uint8, 1<<13)
	mark := func(port uint16) { ports[port>>3] |= 1 << (port & 7) }
	mark(decode.TZSPPort)
	tunnels := s.Decode.UDPTunnels
	if tunnels == nil {
		tunnels = decode.DefaultUDPTunnels()
	}
	for port := range tunnels {
		mark(port)
	}
	var extractors [16]extractor
	extracted := make([]uint16, 1<<16)
	for i, r := range d.UDPReflections() {
		extractors[i] = extractor{
			Offset: r.Offset, ValidOffset: r.ValidOffset, MatchOffset: r.MatchOffset,
			Layout: uint8(r.Layout.Index()), ValidMask: r.ValidMask, MatchMask: r.MatchMask, MatchValue: r.MatchValue,
		}
		for _, port := range r.Ports {
			mark(port)
			extracted[port] |= 1 << i
		}
	}
	var kinds [256]uint8
	var encodings [16]encoding
	reflections := slices.Clone(d.Reflections())
	slices.SortStableFunc(reflections, func(a, b csig.Reflection) int { return cmp.Compare(a.Kind, b.Kind) })
	for i, r := range reflections {
		kinds[r.Kind] = cmp.Or(kinds[r.Kind], uint8(i+1))
		e := encoding{ExID: r.ExID, Kind: r.Kind, ExIDLen: r.ExIDLen, Payload: uint8(number(r.Payload))}
		for n, size := range [...]int{2, 6} {
			l, _ := r.Layout(size)
			e.Layout[n] = uint8(l.Index())
		}
		encodings[i] = e
	}
	return map[string]any{
		"types": types, "udp_ports": ports, "udp_extractors": extracted, "extractors": extractors, "option_kinds": kinds, "encodings": encodings,
		"encoding_count": uint32(len(reflections)),
	}
}

// loadError explains why the kernel refuses a program. It appends the last lines of the verifier's log.
func loadError(err error) error {
	refused, ok := errors.AsType[*ebpf.VerifierError](err)
	if !ok {
		return fmt.Errorf("load program: %w", err)
	}
	const lines = 20
	log := refused.Log[max(0, len(refused.Log)-lines):]
	return fmt.Errorf("load program: %w: the kernel's verifier says:\n%s", refused.Cause, strings.Join(log, "\n"))
}
