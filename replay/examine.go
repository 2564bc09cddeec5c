package replay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// ExamineConfig is what Examine needs.
type ExamineConfig struct {
	Files   []string // or folders of such
	Decode  decode.Config
	Finding finding.Config
	// Tap is as Config has it; its Place may be outside as well.
	Tap func(name string) window.Tap
	// Group, unless nil, is the group of an address: packets are counted by those of their
	// ends.
	Group func(netip.Addr) aggregate.GroupID
	// Progress, unless nil, is told how many bytes were read.
	Progress func(bytes int64)
}

// Examined is what was looked at, and found.
type Examined struct {
	Packets, Observations uint64
	From, To              int64 // of the first and the last observation, Unix ns; 0 without any
	Skipped               window.Links
	Decoded               decode.Counters
	Findings              []finding.Finding
	Untracked             uint64 // observations and packets of more flows than are told apart
	Pathless              uint64 // reflections of such that clear no port
	Ways                  []Way  // in any order
}

// Examine looks at each observation of captures for what breaks the protocol or
// contradicts the configuration. Where captures end early, there is a result of what could
// be read beside the error.
func Examine(ctx context.Context, cfg ExamineConfig) (*Examined, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	f, err := finding.New(cfg.Finding)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	w := newWays(cfg.Group)
	e := &examiner{cfg: &cfg, decoder: d, detector: f, ways: w}
	p := &pass{progress: cfg.Progress}
	for _, path := range cfg.Files {
		if err := p.read(ctx, path, e.add); err != nil {
			return nil, fmt.Errorf("examine: %w", err)
		}
	}
	e.out.Decoded, e.out.Findings = d.Counters(), f.Findings()
	e.out.Untracked, e.out.Pathless, e.out.Ways = f.Untracked(), f.Pathless(), w.list()
	return &e.out, errors.Join(p.ends...)
}

// examiner is one run.
type examiner struct {
	cfg      *ExamineConfig
	decoder  *decode.Decoder
	detector *finding.Detector
	ways     *ways // nil where they are not counted
	out      Examined
	result   decode.Result
	bare     decode.Observation
	taps     []examinedTap // by interface, of the capture at hand
}

// examinedTap is a capture interface.
type examinedTap struct {
	finding.Tap
	mirrors decode.Mirrors
}

func (e *examiner) add(b *packets) error {
	if len(e.taps) > 0 && e.taps[0].File != b.path {
		e.taps = nil
	}
	named := source{path: b.path}
	for n := len(e.taps); n < max(len(b.interfaces), 1); n++ {
		tap := examinedTap{Tap: finding.Tap{Name: named.tapName(b.interfaces, uint32(n)), File: b.path}}
		at := e.cfg.Tap(tap.Name)
		tap.mirrors = at.Mirrors
		var err error
		if tap.Place, err = finding.ParsePlace(at.Place); err != nil {
			return fmt.Errorf("place tap %q: %w", tap.Name, err)
		}
		e.taps = append(e.taps, tap)
	}
	for i := range b.frames {
		e.frame(&b.frames[i], b.interfaces)
	}
	return nil
}

func (e *examiner) frame(f *capture.Frame, interfaces []capture.Interface) {
	e.out.Packets++
	link, known := window.LinkOf(interfaces, f.Interface)
	if !known {
		e.out.Skipped.Add(interfaces[f.Interface].Link, 1)
		return
	}
	tap := &e.taps[min(int(f.Interface), len(e.taps)-1)]
	in := window.FrameOf(f)
	wireLen := e.decoder.DecodeFrame(decode.Framing{Link: link, Mirrors: tap.mirrors}, &in, &e.result)
	var bare *decode.Observation
	data := false
	if link == decode.Ethernet && (e.result.N == 0 || e.result.Obs[0].Kind == decode.Reflection) {
		frame := f.Data
		if inner, _, ok := e.decoder.Mirrored(); ok {
			frame = inner.Data
		}
		var ok bool
		if data, ok = e.decoder.Bare(frame, &e.bare); ok {
			bare = &e.bare
			window.Stamp(bare, f, wireLen)
			e.detector.Bare(&tap.Tap, bare, data)
		}
	}
	if e.ways != nil {
		e.ways.count(e.result.Obs[:e.result.N], bare, data, e.decoder.Counters(), tap.Place == finding.Receiver)
	}
	for i := range e.result.N {
		o := &e.result.Obs[i]
		window.Stamp(o, f, wireLen)
		if e.out.Observations++; e.out.Observations == 1 {
			e.out.From, e.out.To = o.TimeNS, o.TimeNS
		}
		e.out.From, e.out.To = min(e.out.From, o.TimeNS), max(e.out.To, o.TimeNS)
		e.detector.Observe(&tap.Tap, o)
	}
}
