package decode

import (
	"encoding/binary"
	"errors"

	"github.com/csigscope/csigscope/decode/csig"
)

// MaxObservations bounds what one frame yields: up to three tags and the
// reflections that fit beside them.
const MaxObservations = 4

// Config is what a Decoder needs to know.
type Config struct {
	Domain *csig.Domain // what TPIDs and TCP options mean; required
}

// Result is what one frame says. The caller owns it and hands the same one to
// Decode again and again; only Obs[:N] is valid.
type Result struct {
	Obs    [MaxObservations]Observation
	N      int
	Reason Reason
	Encap  Stack
}

// Decoder decodes frames. It is not safe for concurrent use: each core has one.
type Decoder struct {
	classes     [1 << 16]class // by EtherType
	kinds       [256]bool      // TCP options that may be a reflection
	reflections []csig.Reflection
	counters    Counters
}

// New makes a Decoder. It fails without a domain.
func New(cfg Config) (*Decoder, error) {
	if cfg.Domain == nil {
		return nil, errors.New("make decoder: no domain is configured")
	}
	d := &Decoder{reflections: cfg.Domain.Reflections()}
	for _, id := range cfg.Domain.TPIDs() {
		if l, ok := cfg.Domain.LayoutOf(id); ok {
			d.classes[id] = firstTag + class(l.Index())
		}
	}
	for _, e := range etherTypes {
		d.classes[e.id] = e.class
	}
	for _, r := range d.reflections {
		d.kinds[r.Kind] = true
	}
	return d, nil
}

// Counters is a copy of what the decoder has counted since New. Like Decode, it
// belongs to the decoder's goroutine.
func (d *Decoder) Counters() Counters { return d.counters }

// Decode reads one Ethernet frame, which may be cut at any byte, and fills r: of
// each observation everything but TimeNS, Packet and Bytes, which the caller
// knows. It keeps no reference to the frame and does not allocate.
//
// Tags come before reflections. A CSIG tag is valid only as the last tag of L2
// (section 4.1): one that another CSIG tag, a VLAN tag or a SecTAG follows is an
// orphan, so that of several tags in a row the last one counts. A tag whose
// successor is cut off is taken as the last one. Fields of a header are taken
// when its fixed part came whole: a TCP header cut inside its options has ports.
func (d *Decoder) Decode(frame []byte, r *Result) {
	r.N, r.Encap.n = 0, 0
	r.Reason = d.walkL2(frame, etherTypeOffset, 0, r)
	d.count(r)
}

// DecodeStripped is Decode for a frame whose outermost tag the network card or
// the kernel has taken out, and hands on beside it as the tag's first four bytes:
// r is the same as for the frame as it was sent.
func (d *Decoder) DecodeStripped(frame []byte, tpid, tci uint16, r *Result) {
	r.N, r.Encap.n = 0, 0
	r.Reason = d.walkStripped(frame, tpid, tci, r)
	d.count(r)
}

func (d *Decoder) count(r *Result) {
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
}

// done is the reason of a frame that was walked to its end.
func (r *Result) done() Reason {
	if r.N > 0 {
		return OK
	}
	return NoCSIG
}

// add appends an observation with neither a tag nor addresses. It returns nil when
// r is full.
func (r *Result) add(kind Kind) *Observation {
	if uint(r.N) >= MaxObservations {
		return nil
	}
	o := &r.Obs[r.N]
	r.N++
	o.Src, o.Dst = [16]byte{}, [16]byte{}
	o.SrcPort, o.DstPort, o.Proto, o.Ack = 0, 0, 0, 0
	o.Kind, o.Flags = kind, 0
	return o
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
