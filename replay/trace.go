package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Hop is what is known of two taps that saw the same packets.
type Hop struct {
	From, To string // captures
	*hop.Between
}

// Trace follows packets from tap to tap: it compares all captures that have enough packets
// in common. They are read twice.
func Trace(ctx context.Context, cfg TraceConfig) ([]Hop, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	scan, err := conform.NewScan(&conform.Config{Decode: cfg.Decode})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	for _, path := range cfg.Files {
		err := eachFrame(ctx, path, func(f *capture.Frame) { scan.Add(&conform.Packet{Data: f.Data}) })
		if err != nil {
			return nil, err
		}
	}
	cut, prefix := scan.Cut()
	if cut > 0 && prefix < minPrefix {
		return nil, fmt.Errorf("trace: packets are cut %d bytes behind the IP header: expected at least %d, capture with a longer snap length", prefix, minPrefix)
	}
	t := &tracer{decoder: d, known: conform.NewKnown(d, prefix), limit: cfg.MaxPackets}
	if t.limit <= 0 {
		t.limit = 1 << 20
	}
	seen := make([][]hop.Sighting, len(cfg.Files))
	for i, path := range cfg.Files {
		if seen[i], err = t.sightings(ctx, path); err != nil {
			return nil, err
		}
	}
	var hops []Hop
	for i := range seen {
		for k := i + 1; k < len(seen); k++ {
			b := hop.Compare(seen[i], seen[k], 2*cfg.Error)
			if b.Common() >= hop.MinPackets {
				hops = append(hops, Hop{From: cfg.Files[i], To: cfg.Files[k], Between: b})
			}
		}
	}
	return hops, nil
}

// tracer samples packets: those whose number begins with so many zeros.
type tracer struct {
	decoder *decode.Decoder
	known   *conform.Known
	limit   int
	zeros   uint
	result  decode.Result
}

func (t *tracer) sightings(ctx context.Context, path string) ([]hop.Sighting, error) {
	var list []hop.Sighting
	err := eachFrame(ctx, path, func(f *capture.Frame) {
		if f.NoTime {
			return
		}
		id, hops, ok := t.known.Of(f.Data)
		if !ok || !t.takes(id) {
			return
		}
		s := hop.Sighting{ID: id, TimeNS: f.TimeNS, Hops: hops}
		t.decoder.Decode(f.Data, &t.result)
		for i := range t.result.Obs[:t.result.N] {
			if o := &t.result.Obs[i]; o.Kind == decode.Tag && o.Flags&decode.Orphan == 0 {
				s.Tagged, s.Tag = true, o.Tag
				s.Src, s.Dst = o.Addrs()
			}
		}
		list = append(list, s)
		for len(list) > t.limit {
			t.zeros++
			list = t.sample(list)
		}
	})
	return list, err
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

// eachFrame hands on the Ethernet frames of a capture. One that ends early is as long as it
// is: what can be compared is compared.
func eachFrame(ctx context.Context, path string, f func(*capture.Frame)) error {
	r, err := capture.Open(path, listOptions())
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	defer r.Close()
	var batch capture.Batch
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); err != nil {
			if cut := new(capture.CutError); errors.Is(err, io.EOF) || errors.As(err, &cut) {
				return nil
			}
			return fmt.Errorf("trace: %w", err)
		}
		for i := range batch.N {
			if link, ok := feed.LinkOf(r.Interfaces(), batch.Frames[i].Interface); ok && link == decode.Ethernet {
				f(&batch.Frames[i])
			}
		}
	}
	return ctx.Err()
}
