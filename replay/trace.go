package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
)

// TraceConfig configures Trace.
type TraceConfig struct {
	Files  []string // one tap per file
	Decode decode.Config
	// Error is the maximum error of timestamps.
	Error time.Duration
	// MaxPackets is the maximum number of packets, tags and reflections stored per tap; 0 means 1
	// << 20. A tap that has more stores a sample. Samples differ in size alone: a packet in a small
	// one is in each larger one, if that tap saw it.
	MaxPackets int
}

// Traced is the result of Trace.
type Traced struct {
	Hops []Hop
	// Packets is the number of packets in the captures. NoTime of them have no time. Unknown of
	// them cannot be identified, because they are not IP, truncated or encrypted.
	Packets, NoTime, Unknown uint64
	SkippedLink              window.UnreadableLinks // packets with link types other than Ethernet
	Damaged                  Damage
}

// Hop compares two taps that saw the same packets, or tags and their reflections.
type Hop struct {
	From, To string // names of the captures
	*hop.Comparison
}

// errNoEthernet means that there is nothing to compare.
var errNoEthernet = errors.New("trace: expected captures of Ethernet packets")

// Trace follows packets from tap to tap. It compares any two captures that share enough packets, or
// of which one has tags and the other their reflections. Captures are spooled (see Spool) and read
// twice. If captures end early or are damaged, it returns the result for the readable part together
// with the error.
func Trace(ctx context.Context, cfg TraceConfig) (out *Traced, err error) {
	names := captureNames(cfg.Files)
	err = Spool(ctx, cfg.Files, func(files []string) (err error) {
		cfg.Files = files
		out, err = trace(ctx, cfg, names)
		return err
	})
	return out, err
}

// trace implements Trace for files that can be read repeatedly.
func trace(ctx context.Context, cfg TraceConfig, names []string) (*Traced, error) {
	cfg.Decode.Segments = true
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	scan, err := conform.NewScan(&conform.Config{Decode: cfg.Decode})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	out, first, times, seed := &Traced{}, &pass{}, xxhash.New(), uint64(0)
	for _, path := range cfg.Files {
		times.Reset()
		if err := first.read(ctx, path, func(b *packets) error { out.scan(scan, times, b); return nil }); err != nil {
			return nil, errors.Join(append(first.ends, fmt.Errorf("trace: %w", err))...)
		}
		seed += times.Sum64() // in any order
	}
	out.Damaged = first.damaged
	cut, prefix := scan.Cut()
	if cut > 0 && prefix < minPrefix {
		err := fmt.Errorf("trace: packets are cut %d bytes behind the IP header: expected at least %d, capture with a longer snap length", prefix, minPrefix)
		return nil, errors.Join(append(first.ends, err)...)
	}
	t := &tracer{out: out, decoder: d, identifier: conform.NewPacketIdentifier(d, prefix, seed), limit: cfg.MaxPackets}
	if t.limit <= 0 {
		t.limit = 1 << 20
	}
	seen := make([]hop.Tap, len(cfg.Files))
	for i, path := range cfg.Files {
		if err := t.read(ctx, path, &seen[i]); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	for i := range seen {
		for k := i + 1; k < len(seen); k++ {
			b := hop.Compare(&seen[i], &seen[k], 2*cfg.Error)
			if b.Related() {
				out.Hops = append(out.Hops, Hop{From: names[i], To: names[k], Comparison: b})
			}
		}
	}
	ends := first.ends
	if out.Packets > 0 && out.SkippedLink.Total() == out.Packets {
		ends = append(ends, errNoEthernet)
	}
	return out, errors.Join(ends...)
}

// scan counts packets and examines their lengths and times. A hash of the times selects the sample,
// so that it is the same for the same captures and senders cannot predict it.
func (t *Traced) scan(s *conform.Scan, times *xxhash.Digest, b *packets) {
	t.Packets += uint64(len(b.frames))
	for i := range b.frames {
		f := &b.frames[i]
		_, _ = times.Write(binary.LittleEndian.AppendUint64(nil, uint64(f.TimeNS))) // never fails
		if !b.ethernet(f) {
			t.SkippedLink.Add(b.unread(f), 1)
			continue
		}
		s.Add(&conform.Packet{Data: f.Data, WireLen: f.WireLen})
	}
}

// tracer samples packets and segments: those whose ID begins with a number of zeros, at most 64,
// that depends on the tap alone. No ID is 0, so in the end the sample can always be empty, however
// many packets have equal IDs.
type tracer struct {
	out        *Traced
	decoder    *decode.Decoder
	identifier *conform.PacketIdentifier
	limit      int
	zeros      uint // at the present tap
	result     decode.Result
	newest     map[conform.Conversation]csig.Tag // at the present tap
}

// read processes a tap's packets.
func (t *tracer) read(ctx context.Context, path string, tap *hop.Tap) error {
	t.newest, t.zeros = make(map[conform.Conversation]csig.Tag), 0
	return new(pass).read(ctx, path, func(b *packets) error {
		for i := range b.frames {
			if !b.ethernet(&b.frames[i]) {
				continue
			}
			t.see(tap, &b.frames[i])
			for max(len(tap.Packets), len(tap.Tags), len(tap.Reflections)) > t.limit {
				t.zeros++
				tap.Packets = slices.DeleteFunc(tap.Packets, func(s hop.PacketRecord) bool { return !t.takes(s.ID) })
				tap.Tags = slices.DeleteFunc(tap.Tags, func(m hop.SegmentTag) bool { return !t.takes(m.Segment) })
				tap.Reflections = slices.DeleteFunc(tap.Reflections, func(m hop.SegmentTag) bool { return !t.takes(m.Segment) })
			}
		}
		return nil
	})
}

func (t *tracer) takes(id uint64) bool { return id>>(64-t.zeros) == 0 }

// see records the sampled parts of a packet.
func (t *tracer) see(tap *hop.Tap, f *capture.Frame) {
	if f.NoTime {
		t.out.NoTime++
		return
	}
	id, hops, known := t.identifier.Identify(f.Data)
	s := hop.PacketRecord{ID: id, TimeNS: f.TimeNS, Size: f.WireLen, Hops: hops}
	t.decoder.Decode(f.Data, &t.result)
	var reflection *csig.Tag
	for i := range t.result.Obs[:t.result.N] {
		switch o := &t.result.Obs[i]; {
		case o.Flags&decode.Orphan != 0:
		case o.Kind == decode.Reflection:
			reflection = &o.Tag
		default:
			s.Tagged, s.Tag = true, o.Tag
			s.Src, s.Dst = o.Addrs()
		}
	}
	if known && t.takes(id) {
		tap.Packets = append(tap.Packets, s)
	}
	if marked := t.mark(tap, &s, reflection, f); !known && !marked {
		t.out.Unknown++
	}
}

// maxConversations is the maximum number of conversations whose newest tags are stored for
// reflections.
const maxConversations = 1 << 16

// mark records a TCP segment in any tunnel: the newest tag of its conversation, which the receiver
// reflects if it acknowledges up to this segment, and the reflection on an acknowledgement. Without
// acknowledgement numbers, as over UDP, the reflected tag cannot be identified.
func (t *tracer) mark(tap *hop.Tap, s *hop.PacketRecord, reflection *csig.Tag, f *capture.Frame) (marked bool) {
	segment, ok := t.identifier.Segment()
	if !ok {
		return false
	}
	if reflection != nil {
		tap.Reflections = t.append(tap.Reflections, segment.Back(), segment.Ack, *reflection, f)
	}
	if !segment.Data {
		return true
	}
	if s.Tagged {
		if len(t.newest) >= maxConversations {
			clear(t.newest)
		}
		t.newest[segment.Conversation] = s.Tag
	}
	if tag, ok := t.newest[segment.Conversation]; ok {
		tap.Tags = t.append(tap.Tags, segment.Conversation, segment.End, tag, f)
	}
	return true
}

func (t *tracer) append(list []hop.SegmentTag, c conform.Conversation, end uint32, tag csig.Tag, f *capture.Frame) []hop.SegmentTag {
	id := t.identifier.IdentifyData(&c, end)
	if !t.takes(id) {
		return list
	}
	return append(list, hop.SegmentTag{Segment: id, Tag: tag, TimeNS: f.TimeNS, Size: f.WireLen})
}
