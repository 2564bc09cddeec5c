package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
)

// TraceConfig is what Trace needs.
type TraceConfig struct {
	Files  []string // each of one tap
	Decode decode.Config
	// Error is how far timestamps are off at most.
	Error time.Duration
	// MaxPackets bounds what is remembered of each tap, 0 for 1 << 20: of more packets
	// the same ones at every tap.
	MaxPackets int
}

// Traced is what was compared, and what came of it.
type Traced struct {
	Hops []Hop
	// Packets is how many the captures hold; of those, NoTime have no time, and Unknown
	// are not IP, cut or encrypted: nothing tells them from others.
	Packets, NoTime, Unknown uint64
	SkippedLink              feed.Links // packets that are not Ethernet
	Damaged                  Damage
}

// Hop is what is known of two taps that saw the same packets.
type Hop struct {
	From, To string // captures
	*hop.Between
}

// Trace follows packets from tap to tap: it compares all captures that have enough packets
// in common. They are read twice. Where captures end early or are damaged, there is a
// result of what could be read beside the error.
func Trace(ctx context.Context, cfg TraceConfig) (*Traced, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	scan, err := conform.NewScan(&conform.Config{Decode: cfg.Decode})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	out, first := &Traced{}, &pass{}
	for _, path := range cfg.Files {
		if err := first.read(ctx, path, func(b *packets) error { out.scan(scan, b); return nil }); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	out.Damaged = first.damaged
	cut, prefix := scan.Cut()
	if cut > 0 && prefix < minPrefix {
		return nil, fmt.Errorf("trace: packets are cut %d bytes behind the IP header: expected at least %d, capture with a longer snap length", prefix, minPrefix)
	}
	t := &tracer{out: out, decoder: d, known: conform.NewKnown(d, prefix), limit: cfg.MaxPackets}
	if t.limit <= 0 {
		t.limit = 1 << 20
	}
	seen := make([][]hop.Sighting, len(cfg.Files))
	for i, path := range cfg.Files {
		if seen[i], err = t.sightings(ctx, path); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
	}
	for i := range seen {
		for k := i + 1; k < len(seen); k++ {
			b := hop.Compare(seen[i], seen[k], 2*cfg.Error)
			if b.Common() >= hop.MinPackets {
				out.Hops = append(out.Hops, Hop{From: cfg.Files[i], To: cfg.Files[k], Between: b})
			}
		}
	}
	return out, errors.Join(first.ends...)
}

// scan counts packets and looks at how much of them there is.
func (t *Traced) scan(s *conform.Scan, b *packets) {
	t.Packets += uint64(len(b.frames))
	for i := range b.frames {
		f := &b.frames[i]
		if !b.ethernet(f) {
			t.SkippedLink.Add(b.interfaces[f.Interface].Link, 1)
			continue
		}
		s.Add(&conform.Packet{Data: f.Data})
	}
}

// tracer samples packets: those whose number begins with so many zeros.
type tracer struct {
	out     *Traced
	decoder *decode.Decoder
	known   *conform.Known
	limit   int
	zeros   uint
	result  decode.Result
}

func (t *tracer) sightings(ctx context.Context, path string) (list []hop.Sighting, err error) {
	err = new(pass).read(ctx, path, func(b *packets) error {
		for i := range b.frames {
			if !b.ethernet(&b.frames[i]) {
				continue
			}
			if list = t.see(list, &b.frames[i]); len(list) > t.limit {
				t.zeros++
				list = t.sample(list)
			}
		}
		return nil
	})
	return list, err
}

// see adds a packet, if it is in the sample.
func (t *tracer) see(list []hop.Sighting, f *capture.Frame) []hop.Sighting {
	if f.NoTime {
		t.out.NoTime++
		return list
	}
	id, hops, ok := t.known.Of(f.Data)
	if !ok {
		t.out.Unknown++
		return list
	}
	if !t.takes(id) {
		return list
	}
	s := hop.Sighting{ID: id, TimeNS: f.TimeNS, Hops: hops}
	t.decoder.Decode(f.Data, &t.result)
	for i := range t.result.Obs[:t.result.N] {
		if o := &t.result.Obs[i]; o.Kind == decode.Tag && o.Flags&decode.Orphan == 0 {
			s.Tagged, s.Tag = true, o.Tag
			s.Src, s.Dst = o.Addrs()
		}
	}
	return append(list, s)
}

func (t *tracer) takes(id uint64) bool { return t.zeros == 0 || id>>(64-t.zeros) == 0 }

func (t *tracer) sample(list []hop.Sighting) []hop.Sighting {
	kept := list[:0]
	for _, s := range list {
		if t.takes(s.ID) {
			kept = append(kept, s)
		}
	}
	return kept
}
