package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
)

// ExamineConfig configures Examine.
type ExamineConfig struct {
	Files   []string // or folders of files
	Decode  decode.Config
	Finding finding.Config
	// Dedup is the time within which a repeated frame at the same tap is left out. With 0, repeats
	// within capture.DefaultDedup are only counted.
	Dedup time.Duration
	// Tap works as in Config; its Place may also be outside.
	Tap func(name string) window.Tap
	// Windows configures the 1 s windows in which stuck ports are detected, with its Resolver,
	// Flows, LocateUntouched and UDPRepeat. Without a Resolver there is no such detection.
	Windows window.Settings
	// Group, unless nil, returns the group of an address. Packets are then counted by the groups of
	// their endpoints.
	Group func(netip.Addr) aggregate.GroupID
	// Progress, unless nil, is called with the number of bytes read.
	Progress func(bytes int64)
}

// Examined is the result of Examine.
type Examined struct {
	Packets, Observations uint64
	From, To              int64 // first and last observation, Unix ns; 0 if there is none
	Skipped               window.UnreadableLinks
	Repeated              uint64 // frames captured twice by a tap, left out or not
	Decoded               decode.Counters
	Findings              []finding.Finding
	Untracked             uint64 // observations and packets of flows beyond the tracked number
	Ways                  []Way  // in any order
}

// Examine searches each observation in captures for protocol violations and contradictions to the
// configuration. If captures end early, it returns the result for the readable part together with
// the error.
func Examine(ctx context.Context, cfg ExamineConfig) (*Examined, error) {
	cfg.Decode.Segments = true
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	f, err := finding.New(cfg.Finding)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	w := newWays(cfg.Group)
	e := &examiner{cfg: &cfg, decoder: d, detector: f, ways: w, identifier: conform.NewPacketIdentifier(d, 0, 0)}
	p := &pass{progress: cfg.Progress}
	for _, path := range cfg.Files {
		if err := p.read(ctx, path, func(b *packets) error { return e.add(ctx, b) }); err != nil {
			return nil, fmt.Errorf("examine: %w", err)
		}
	}
	if err := e.end(ctx); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	e.out.Decoded, e.out.Findings = d.Counters(), f.Findings()
	e.out.Untracked, e.out.Ways = f.Untracked(), w.list()
	return &e.out, errors.Join(p.ends...)
}

// examiner is the state of one run.
type examiner struct {
	cfg        *ExamineConfig
	decoder    *decode.Decoder
	detector   *finding.Detector
	ways       *ways // nil without Group
	out        Examined
	result     decode.Result
	untagged   decode.Observation
	of         finding.Frame
	identifier *conform.PacketIdentifier
	taps       []examinedTap // of the present capture, by interface
}

// examinedTap is a capture interface.
type examinedTap struct {
	finding.Tap
	mirrors decode.Mirrors
	dedup   *capture.Dedup
	windows *window.Shard // nil if there are none
}

func (e *examiner) add(ctx context.Context, b *packets) error {
	if len(e.taps) > 0 && e.taps[0].File != b.path {
		if err := e.end(ctx); err != nil {
			return err
		}
	}
	named := source{path: b.path}
	for n := len(e.taps); n < max(len(b.interfaces), 1); n++ {
		tap := examinedTap{Tap: finding.Tap{Name: named.tapName(b.interfaces, uint32(n)), File: b.path}}
		at := e.cfg.Tap(tap.Name)
		tap.mirrors, tap.dedup = at.Mirrors, capture.NewDedup(cmp.Or(e.cfg.Dedup, capture.DefaultDedup))
		var err error
		if tap.Place, err = finding.ParsePlace(at.Place); err != nil {
			return fmt.Errorf("place tap %q: %w", tap.Name, err)
		}
		if tap.windows, err = e.windows(&tap.Tap, at); err != nil {
			return fmt.Errorf("make windows of tap %q: %w", tap.Name, err)
		}
		e.taps = append(e.taps, tap)
	}
	for i := range b.frames {
		if err := e.frame(ctx, &b.frames[i], b); err != nil {
			return err
		}
	}
	return nil
}

// windows returns the windows of a tap in the present capture, or nil. Beyond maxTaps taps there is
// no detection of stuck ports.
func (e *examiner) windows(tap *finding.Tap, at window.Tap) (*window.Shard, error) {
	s := &e.cfg.Windows
	if s.Resolver == nil || len(e.taps) >= maxTaps {
		return nil, nil
	}
	at.Weight = max(at.Weight, 1)
	return window.NewShard(window.Config{
		Domain: e.cfg.Decode.Domain, Resolver: s.Resolver, Resolutions: []time.Duration{time.Second}, Flows: s.Flows,
		LocateUntouched: s.LocateUntouched, UDPRepeat: s.UDPRepeat, Tap: at, Watch: e.detector.Windows(tap),
	}, aggregate.Sinks{})
}

// end closes the windows of the present capture.
func (e *examiner) end(ctx context.Context) error {
	for _, tap := range e.taps {
		if tap.windows == nil {
			continue
		}
		if err := tap.windows.Flush(ctx); err != nil {
			return fmt.Errorf("close windows of tap %q: %w", tap.Name, err)
		}
	}
	e.taps = nil
	return nil
}

func (e *examiner) frame(ctx context.Context, f *capture.Frame, b *packets) error {
	e.out.Packets++
	link, known := window.LinkOf(b.interfaces, f.Interface)
	if !known {
		e.out.Skipped.Add(b.unread(f), 1)
		return nil
	}
	tap := &e.taps[min(int(f.Interface), len(e.taps)-1)]
	repeated := tap.dedup.Seen(f)
	if repeated {
		e.out.Repeated++
	}
	in := window.FrameOf(f)
	e.decoder.DecodeFrame(decode.Framing{Link: link, Mirrors: tap.mirrors}, &in, &e.result)
	inner, _, mirrored := e.decoder.Mirrored()
	if !mirrored {
		inner = &in
	}
	ethernet := inner.Data
	if !mirrored && link != decode.Ethernet {
		ethernet = nil
	}
	e.detector.Frame(&tap.Tap, e.frameOf(f, ethernet, repeated, tap.dedup.Content()))
	if repeated && e.cfg.Dedup > 0 {
		return nil
	}
	var untagged *decode.Observation
	data := false
	own := e.result.Obs[e.result.Carrier:e.result.N]
	if ethernet != nil && (len(own) == 0 || own[0].Kind == decode.Reflection) {
		var ok bool
		if data, ok = e.decoder.DecodeUntagged(inner.Data, &e.untagged); ok {
			untagged = &e.untagged
			untagged.Bytes = inner.WireLen
			window.SetCaptureFields(untagged, f)
			e.detector.ObserveUntagged(&tap.Tap, untagged, data)
		}
	}
	if e.ways != nil {
		e.ways.count(e.result.Obs[:e.result.N], untagged, data, e.decoder.Counters(), tap.Place == finding.Receiver)
	}
	for i := range e.result.N {
		o := &e.result.Obs[i]
		window.SetCaptureFields(o, f)
		if e.out.Observations++; e.out.Observations == 1 {
			e.out.From, e.out.To = o.TimeNS, o.TimeNS
		}
		e.out.From, e.out.To = min(e.out.From, o.TimeNS), max(e.out.To, o.TimeNS)
		e.detector.Observe(&tap.Tap, o)
	}
	if tap.windows == nil {
		return nil
	}
	return tap.windows.Add(ctx, e.result.Obs[:e.result.N])
}

// frameOf returns the detector's view of the frame that was decoded last. ethernet is the mirrored
// frame in it, or the frame itself; nil if it is another link's.
func (e *examiner) frameOf(f *capture.Frame, ethernet []byte, repeated bool, content uint64) *finding.Frame {
	out := &e.of
	*out = finding.Frame{TimeNS: f.TimeNS, Number: f.Packet, Content: content, Repeated: repeated, Untagged: e.result.N == 0}
	if layers := e.result.Encap.Layers(); len(layers) > 0 && layers[0].Encap == decode.VLAN {
		out.Class.VLAN = uint16(layers[0].ID)
	}
	if _, packet, ok := e.decoder.Network(ethernet); ok && len(packet) > 8 {
		if out.Class.DSCP, out.TTL = packet[1]>>2, packet[8]; packet[0]>>4 == 6 {
			out.Class.DSCP, out.TTL = packet[0]&15<<2|packet[1]>>6, packet[7]
		}
	}
	if s, ok := e.identifier.Segment(); ok {
		out.End, out.Sent = s.End, e.identifier.IdentifyData(&s.Conversation, s.End)
		if s.Data {
			out.Flow = e.identifier.IdentifyData(&s.Conversation, 0)
		}
		back := s.Back()
		out.AckedFlow, out.Ack, out.Acked = e.identifier.IdentifyData(&back, 0), s.Ack, e.identifier.IdentifyData(&back, s.Ack)
	}
	return out
}
