package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	From, To              int64 // first and last observation with a time, Unix ns; 0 if there is none
	Skipped               window.UnreadableLinks
	Repeated              uint64          // frames captured twice by a tap, left out or not
	Decoded               decode.Counters // without frames that are left out
	Findings              []finding.Finding
	Untracked             uint64         // observations and packets of flows beyond the tracked number
	Pairs                 []GroupPackets // in any order
}

// Examine searches each observation in captures for protocol violations and contradictions to the
// configuration. The order of files does not matter. Files with the same taps that follow one another
// in time, as those of a rotated capture, give the findings of one file; files that overlap are
// separate. If captures end early, it returns the result for the readable part together with the
// error.
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
	w := newPairCounts(cfg.Group)
	e := &examiner{cfg: &cfg, decoder: d, detector: f, pairs: w, open: make(map[tapKey]*examinedTap), identifier: conform.NewPacketIdentifier(d, 0, 0)}
	p := &pass{progress: cfg.Progress}
	files, err := p.byTap(cfg.Files)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	for _, file := range files {
		e.begin(file)
		if err := p.file(ctx, file, func(b *packets) error { return e.add(ctx, b) }); err != nil {
			return nil, fmt.Errorf("examine: %w", err)
		}
	}
	if err := e.end(ctx); err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	e.out.Decoded, e.out.Findings = d.Counters(), f.Findings()
	e.out.Untracked, e.out.Pairs = f.Untracked(), w.list()
	return &e.out, errors.Join(p.ends...)
}

// examiner is the state of one run.
type examiner struct {
	cfg        *ExamineConfig
	decoder    *decode.Decoder
	detector   *finding.Detector
	pairs      *pairCounts // nil without Group
	out        Examined
	timed      bool // an observation has a time
	result     decode.Result
	untagged   decode.Observation
	of         finding.Frame
	identifier *conform.PacketIdentifier
	captures   int
	first      string // tap of the last files
	open       map[tapKey]*examinedTap
	// Of the present file, by interface; a tap is nil before its first frame.
	file    string
	keys    []tapKey
	taps    []*examinedTap
	numbers map[string]int // of interfaces of the present section, by tap
}

// tapKey is a tap, with a number for each of its interfaces in a section of a pcapng file.
type tapKey struct {
	name   string
	number int
}

// examinedTap is a capture interface, in a file or in the files of a rotated capture.
type examinedTap struct {
	finding.Tap
	mirrors decode.Mirrors
	dedup   *capture.Dedup
	windows *window.Shard // nil if there are none
	from    int64         // first time in the present file
	until   int64         // latest time of the tap so far
	// overlaps means that an earlier capture has the same times: which of them a later file
	// continues is unknown.
	overlaps bool
}

// maxDisorder is by how much frames may be captured out of order.
const maxDisorder = 100 * time.Millisecond

// begin begins a file.
func (e *examiner) begin(path string) { e.file, e.keys, e.taps = path, nil, nil }

func (e *examiner) add(ctx context.Context, b *packets) error {
	named := source{path: e.file}
	if first := named.tapName(b.interfaces, 0); len(e.keys) == 0 && (first != e.first || len(e.open) > maxTaps) {
		if err := e.end(ctx); err != nil {
			return err
		}
		e.first = first
	}
	for n := len(e.keys); n < max(len(b.interfaces), 1); n++ {
		if n == 0 || b.interfaces[n].Section != b.interfaces[n-1].Section {
			e.numbers = make(map[string]int)
		}
		name := named.tapName(b.interfaces, uint32(n))
		e.keys, e.taps = append(e.keys, tapKey{name, e.numbers[name]}), append(e.taps, nil)
		e.numbers[name]++
	}
	for i := range b.frames {
		if err := e.frame(ctx, &b.frames[i], b); err != nil {
			return err
		}
	}
	return nil
}

// tap returns the tap of a frame in b. A file begins another capture of the tap, unless its first frame
// with a time follows all that was captured at the tap before.
func (e *examiner) tap(ctx context.Context, f *capture.Frame, b *packets) (*examinedTap, error) {
	at := min(int(f.Interface), len(e.taps)-1)
	if tap := e.taps[at]; tap != nil {
		return tap, nil
	}
	key := e.keys[at]
	tap := e.open[key]
	first := f
	if i := slices.IndexFunc(b.frames, func(one capture.Frame) bool { return one.Interface == f.Interface && !one.NoTime }); i >= 0 {
		first = &b.frames[i]
	}
	overlaps := tap != nil && !first.NoTime && (first.TimeNS <= tap.from || first.TimeNS < tap.until-int64(maxDisorder))
	if tap == nil || overlaps || tap.overlaps {
		next, err := e.newTap(key.name)
		if err != nil {
			return nil, err
		}
		if tap != nil {
			next.overlaps, next.until = overlaps, tap.until
			if err := tap.close(ctx); err != nil {
				return nil, err
			}
		}
		tap = next
		e.open[key] = tap
	}
	tap.File, tap.from = e.file, first.TimeNS
	e.taps[at] = tap
	return tap, nil
}

// newTap begins a capture of a tap.
func (e *examiner) newTap(name string) (*examinedTap, error) {
	e.captures++
	tap := &examinedTap{Tap: finding.Tap{Name: name, File: e.file, Capture: e.captures}}
	at := e.cfg.Tap(name)
	tap.mirrors, tap.dedup = at.Mirrors, capture.NewDedup(cmp.Or(e.cfg.Dedup, capture.DefaultDedup))
	var err error
	if tap.Place, err = finding.ParsePlace(at.Place); err != nil {
		return nil, fmt.Errorf("place tap %q: %w", name, err)
	}
	if tap.windows, err = e.windows(&tap.Tap, at); err != nil {
		return nil, fmt.Errorf("make windows of tap %q: %w", name, err)
	}
	return tap, nil
}

// windows returns the windows of a capture of a tap, or nil. Beyond maxTaps taps there is no
// detection of stuck ports.
func (e *examiner) windows(tap *finding.Tap, at window.Tap) (*window.Shard, error) {
	s := &e.cfg.Windows
	if s.Resolver == nil || len(e.open) >= maxTaps {
		return nil, nil
	}
	at.Weight = max(at.Weight, 1)
	return window.NewShard(window.Config{
		Domain: e.cfg.Decode.Domain, Resolver: s.Resolver, Resolutions: []time.Duration{time.Second}, Flows: s.Flows,
		LocateUntouched: s.LocateUntouched, UDPRepeat: s.UDPRepeat, Tap: at, Watch: e.detector.Windows(tap),
	}, aggregate.Sinks{})
}

// end closes the windows of all taps.
func (e *examiner) end(ctx context.Context) error {
	byName := func(a, b tapKey) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.number, b.number)) }
	for _, key := range slices.SortedFunc(maps.Keys(e.open), byName) {
		if err := e.open[key].close(ctx); err != nil {
			return err
		}
	}
	clear(e.open)
	return nil
}

// close closes a tap's windows.
func (t *examinedTap) close(ctx context.Context) error {
	if t.windows == nil {
		return nil
	}
	if err := t.windows.Flush(ctx); err != nil {
		return fmt.Errorf("close windows of tap %q: %w", t.Name, err)
	}
	return nil
}

func (e *examiner) frame(ctx context.Context, f *capture.Frame, b *packets) error {
	e.out.Packets++
	link, known := window.LinkOf(b.interfaces, f.Interface)
	if !known {
		e.out.Skipped.Add(b.unread(f), 1)
		return nil
	}
	tap, err := e.tap(ctx, f, b)
	if err != nil {
		return err
	}
	tap.until = max(tap.until, f.TimeNS)
	repeated := tap.dedup.Seen(f)
	if repeated {
		e.out.Repeated++
	}
	leftOut := repeated && e.cfg.Dedup > 0
	var counted decode.Counters
	if leftOut {
		counted = e.decoder.Counters()
	}
	in := window.FrameOf(f)
	e.decoder.DecodeFrame(decode.Framing{Link: link, Mirrors: tap.mirrors}, &in, &e.result)
	inner, _, mirrored := e.decoder.Mirrored()
	if mirrored {
		link = decode.Ethernet
	} else {
		inner = &in
	}
	e.detector.Frame(&tap.Tap, e.frameOf(f, link, inner.Data, repeated, tap.dedup.Content()))
	if leftOut {
		e.decoder.SetCounters(counted)
		return nil
	}
	var untagged *decode.Observation
	data := false
	own := e.result.Obs[e.result.Carrier:e.result.N]
	if len(own) == 0 || own[0].Kind == decode.Reflection {
		var ok bool
		if data, ok = e.decoder.DecodeUntagged(link, inner.Data, &e.untagged); ok {
			untagged = &e.untagged
			untagged.Bytes = inner.WireLen
			window.SetCaptureFields(untagged, f)
			e.detector.ObserveUntagged(&tap.Tap, untagged, data)
		}
	}
	if e.pairs != nil {
		e.pairs.count(&e.result, untagged, data, e.decoder.Counters(), tap.Place == finding.Receiver)
	}
	from := 0
	if tap.Place != finding.Receiver { // where the switch mirrors, and not the place of the packet around the frame
		from = e.result.Carrier
	}
	for i := range e.result.N {
		o := &e.result.Obs[i]
		window.SetCaptureFields(o, f)
		e.out.Observations++
		if !f.NoTime {
			if !e.timed {
				e.out.From, e.out.To, e.timed = o.TimeNS, o.TimeNS, true
			}
			e.out.From, e.out.To = min(e.out.From, o.TimeNS), max(e.out.To, o.TimeNS)
		}
		if i >= from || o.Flags&decode.Orphan != 0 { // an orphan is one at any place
			e.detector.Observe(&tap.Tap, o)
		}
	}
	if tap.windows == nil {
		return nil
	}
	return tap.windows.Add(ctx, e.result.Obs[from:e.result.N])
}

// frameOf returns the detector's view of the frame that was decoded last. data is the mirrored
// frame in it, or the frame itself, and begins as its link says.
func (e *examiner) frameOf(f *capture.Frame, link decode.Link, data []byte, repeated bool, content uint64) *finding.Frame {
	out := &e.of
	*out = finding.Frame{TimeNS: f.TimeNS, Number: f.Packet, Content: content, Repeated: repeated, Untagged: e.result.N == e.result.Carrier}
	if layers := e.result.Encap.Layers(); len(layers) > 0 && layers[0].Encap == decode.VLAN {
		out.Class.VLAN = uint16(layers[0].ID)
	}
	if _, packet, ok := e.decoder.Network(link, data); ok && len(packet) > 8 {
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
