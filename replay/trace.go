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

// TraceConfig is what Trace needs.
type TraceConfig struct {
	Files  []string // each of one tap
	Decode decode.Config
	// Error is how far timestamps are off at most.
	Error time.Duration
	// MaxPackets bounds what is remembered of each tap, 0 for 1 << 20: so many packets,
	// tags and reflections. Of more, the same ones are at every tap.
	MaxPackets int
}

// Traced is what was compared, and what came of it.
type Traced struct {
	Hops []Hop
	// Packets is how many the captures hold; of those, NoTime have no time, and Unknown
	// are not IP, cut or encrypted: nothing tells them from others.
	Packets, NoTime, Unknown uint64
	SkippedLink              window.Links // packets that are not Ethernet
	Damaged                  Damage
}

// Hop is what is known of two taps that saw the same packets, or tags and their
// reflections.
type Hop struct {
	From, To string // captures
	*hop.Between
}

// errNoEthernet says that there is nothing to compare.
var errNoEthernet = errors.New("trace: expected captures of Ethernet packets")

// Trace follows packets from tap to tap: it compares all captures that have enough packets
// in common, or tags whose reflections are in the other. They are spooled (Spool) and read
// twice. Where captures end early or are damaged, there is a result of what could be read
// beside the error.
func Trace(ctx context.Context, cfg TraceConfig) (out *Traced, err error) {
	err = Spool(ctx, cfg.Files, func(files []string) (err error) {
		cfg.Files = files
		out, err = trace(ctx, cfg)
		return err
	})
	return out, err
}

// trace is Trace of files that can be read again.
func trace(ctx context.Context, cfg TraceConfig) (*Traced, error) {
	cfg.Decode.Segments = true
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	scan, err := conform.NewScan(&conform.Config{Decode: cfg.Decode})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	out, first, times := &Traced{}, &pass{}, xxhash.New()
	for _, path := range cfg.Files {
		if err := first.read(ctx, path, func(b *packets) error { out.scan(scan, times, b); return nil }); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	out.Damaged = first.damaged
	cut, prefix := scan.Cut()
	if cut > 0 && prefix < minPrefix {
		return nil, fmt.Errorf("trace: packets are cut %d bytes behind the IP header: expected at least %d, capture with a longer snap length", prefix, minPrefix)
	}
	t := &tracer{out: out, decoder: d, known: conform.NewKnown(d, prefix, times.Sum64()), limit: cfg.MaxPackets}
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
				out.Hops = append(out.Hops, Hop{From: cfg.Files[i], To: cfg.Files[k], Between: b})
			}
		}
	}
	ends := first.ends
	if out.Packets > 0 && out.SkippedLink.Total() == out.Packets {
		ends = append(ends, errNoEthernet)
	}
	return out, errors.Join(ends...)
}

// scan counts packets and looks at how much of them there is, and at their times: by those,
// which nobody can foresee who sends them, packets come into the sample, so that of the same
// captures it is the same one.
func (t *Traced) scan(s *conform.Scan, times *xxhash.Digest, b *packets) {
	t.Packets += uint64(len(b.frames))
	for i := range b.frames {
		f := &b.frames[i]
		_, _ = times.Write(binary.LittleEndian.AppendUint64(nil, uint64(f.TimeNS))) // never fails
		if !b.ethernet(f) {
			t.SkippedLink.Add(b.unread(f), 1)
			continue
		}
		s.Add(&conform.Packet{Data: f.Data})
	}
}

// tracer samples packets and segments: those whose number begins with so many zeros, 64 at
// most. No number is 0, so that none is in the sample at last, however many are made alike.
type tracer struct {
	out     *Traced
	decoder *decode.Decoder
	known   *conform.Known
	limit   int
	zeros   uint
	result  decode.Result
	newest  map[conform.Conversation]csig.Tag // at the tap at hand
}

// read takes in what a tap saw.
func (t *tracer) read(ctx context.Context, path string, tap *hop.Tap) error {
	t.newest = make(map[conform.Conversation]csig.Tag)
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

// see takes in what of a packet is in the sample.
func (t *tracer) see(tap *hop.Tap, f *capture.Frame) {
	if f.NoTime {
		t.out.NoTime++
		return
	}
	id, hops, known := t.known.Of(f.Data)
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

// maxConversations bounds what is remembered to know tags again by their reflections.
const maxConversations = 1 << 16

// mark takes in a TCP segment, in whatever tunnel, with the newest tag of its conversation, which the receiver
// reflects if it acknowledges up to here, and the reflection that comes with an
// acknowledgement. Without such numbers, as over UDP, nothing tells which tag is reflected.
func (t *tracer) mark(tap *hop.Tap, s *hop.PacketRecord, reflection *csig.Tag, f *capture.Frame) (marked bool) {
	segment, ok := t.known.Segment()
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
	id := t.known.Upto(&c, end)
	if !t.takes(id) {
		return list
	}
	return append(list, hop.SegmentTag{Segment: id, Tag: tag, TimeNS: f.TimeNS, Size: f.WireLen})
}
