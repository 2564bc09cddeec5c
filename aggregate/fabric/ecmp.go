package fabric

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// ECMPSpec is the switches' choice among equal-cost ports: port number hash(fields) modulo the
// number of ports that lead nearer to the destination, in the order of the fabric file.
type ECMPSpec struct {
	Stages []string `yaml:"stages,omitempty,flow"` // of the devices that hash this way; empty: all others
	// Hash is crc16 (CCITT, polynomial 0x1021), crc32 (IEEE 802.3), crc32c (Castagnoli) or xor16.
	Hash string `yaml:"hash"`
	// Fields are hashed in this order, in network byte order. Default: the whole 5-tuple.
	Fields []string `yaml:"fields,omitempty,flow"`
}

// ecmpFields append a field of the 5-tuple.
var ecmpFields = map[string]func(b []byte, f *aggregate.Flow) []byte{
	"src_ip":   func(b []byte, f *aggregate.Flow) []byte { return appendIP(b, f.Src) },
	"dst_ip":   func(b []byte, f *aggregate.Flow) []byte { return appendIP(b, f.Dst) },
	"protocol": func(b []byte, f *aggregate.Flow) []byte { return append(b, f.Proto) },
	"src_port": func(b []byte, f *aggregate.Flow) []byte { return binary.BigEndian.AppendUint16(b, f.SrcPort) },
	"dst_port": func(b []byte, f *aggregate.Flow) []byte { return binary.BigEndian.AppendUint16(b, f.DstPort) },
}

var fiveTuple = []string{"src_ip", "dst_ip", "protocol", "src_port", "dst_port"}

// ecmpHashes hash bytes, with the device's seed in the initial register. Seed 0 gives the standard
// value of each.
var ecmpHashes = map[string]func(seed uint32, b []byte) uint32{
	"crc16":  crc16,
	"crc32":  func(seed uint32, b []byte) uint32 { return crc32.Update(seed, crc32.IEEETable, b) },
	"crc32c": func(seed uint32, b []byte) uint32 { return crc32.Update(seed, crc32.MakeTable(crc32.Castagnoli), b) },
	"xor16":  xor16,
}

var ecmpHashNames = []string{"crc16", "crc32", "crc32c", "xor16"}

func appendIP(b []byte, a [16]byte) []byte {
	if ip := netip.AddrFrom16(a); ip.Is4In6() {
		return append(b, a[12:]...)
	}
	return append(b, a[:]...)
}

// crc16 is CRC-16/CCITT-FALSE whose initial register 0xffff is combined with the seed.
func crc16(seed uint32, b []byte) uint32 {
	crc := ^uint16(seed)
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return uint32(crc)
}

// xor16 folds 16-bit words, the last one padded with zeros.
func xor16(seed uint32, b []byte) uint32 {
	x := uint16(seed)
	for ; len(b) >= 2; b = b[2:] {
		x ^= binary.BigEndian.Uint16(b)
	}
	if len(b) == 1 {
		x ^= uint16(b[0]) << 8
	}
	return uint32(x)
}

// hashing is one device's choice; its hash is nil if unknown.
type hashing struct {
	name   string
	hash   func(seed uint32, b []byte) uint32
	fields []string
	seed   uint32
}

// ecmp predicts the equal-cost paths of flows. It is immutable.
type ecmp struct {
	devices []hashing // none without an ECMPSpec
	out     [][]int32 // of a device: ports to devices, in the order of the file
}

func newECMP(s *Spec, t *topology) ecmp {
	var e ecmp
	if len(s.ECMP) == 0 {
		return e
	}
	e.devices, e.out = make([]hashing, len(t.devices)), make([][]int32, len(t.devices))
	for i := range t.devices {
		d := &t.devices[i]
		for _, p := range d.ports {
			if t.ports[p].peerDevice != none {
				e.out[i] = append(e.out[i], p)
			}
		}
		slices.SortFunc(e.out[i], func(a, b int32) int { return int(t.ports[a].number - t.ports[b].number) })
		for _, how := range s.ECMP {
			if len(how.Stages) > 0 && !slices.Contains(how.Stages, d.stage) {
				continue
			}
			e.devices[i] = hashing{how.Hash, ecmpHashes[how.Hash], how.Fields, s.Devices[i].HashSeed}
			if len(how.Fields) == 0 {
				e.devices[i].fields = fiveTuple
			}
			break
		}
	}
	return e
}

// choose returns the port to which a device sends a flow, among those that lead nearer by left, the
// hop counts: none if its hash is unknown.
func (e *ecmp) choose(t *topology, f *aggregate.Flow, device int32, left []uint8) int32 {
	how := &e.devices[device]
	if how.hash == nil {
		return none
	}
	nearer := func(p int32) bool { return int(left[t.ports[p].peerDevice])+1 == int(left[device]) }
	n := uint32(0)
	for _, p := range e.out[device] {
		if nearer(p) {
			n++
		}
	}
	if n == 0 {
		return none
	}
	var buf [37]byte
	b := buf[:0]
	for _, field := range how.fields {
		b = ecmpFields[field](b, f)
	}
	chosen := how.hash(how.seed, b) % n
	for _, p := range e.out[device] {
		if nearer(p) {
			if chosen == 0 {
				return p
			}
			chosen--
		}
	}
	return none
}

// predict returns the way of a flow by the hashes of the devices on its path. For a device with an
// unknown hash, all ports that lead nearer are on it. ok is false without a path.
func (e *ecmp) predict(p *paths, f *aggregate.Flow, src, dst *attachment) (w way, ok bool) {
	t := p.topo
	w.by = aggregate.ByECMP
	known := p.endpointPairs(src, dst, func(s, end int32, _, left []uint8) bool {
		if left[s] == far {
			return true
		}
		ok = true
		w.ends = append(w.ends, stop{end, int32(left[s]) + 1})
		hop := int32(1)
		for at := []int32{s}; len(at) > 0; hop++ {
			var next []int32
			for _, d := range at {
				ports := e.out[d]
				if one := e.choose(t, f, d, left); one != none {
					ports = []int32{one}
				}
				for _, port := range ports {
					if to := t.ports[port].peerDevice; int(left[to])+1 == int(left[d]) {
						w.ports, next = append(w.ports, stop{port, hop}), append(next, to)
					}
				}
			}
			slices.Sort(next)
			at = slices.Compact(next)
		}
		return true
	})
	return w, ok && known
}

func (b *builder) ecmp() {
	for i, how := range b.spec.ECMP {
		path := fmt.Sprintf("ecmp[%d]", i)
		if ecmpHashes[how.Hash] == nil {
			b.errorf(path+".hash", "%q: expected %s", how.Hash, oneOf(ecmpHashNames))
		}
		for j, stage := range how.Stages {
			if !slices.ContainsFunc(b.spec.Devices, func(d DeviceSpec) bool { return d.Stage == stage }) {
				b.errorf(fmt.Sprintf("%s.stages[%d]", path, j), "%q: no device is of that stage", stage)
			}
		}
		for j, field := range how.Fields {
			if ecmpFields[field] == nil || slices.Index(how.Fields, field) != j {
				b.errorf(fmt.Sprintf("%s.fields[%d]", path, j), "%q: expected %s, each once", field, oneOf(fiveTuple))
			}
		}
	}
}
