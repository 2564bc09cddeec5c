package window

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// stateVersion changes with the layout of a shard's state, and with anything in this
// package that would go on from the same state in another way.
const stateVersion = 2

// AppendState appends all that the shard's future depends on: its series, its open
// windows at every resolution, its sense of time with what waits to be believed, the
// reflections it remembers, its counts and the next sequence number. RestoreShard makes
// a shard of it that goes on as this one would: the same observations give the same
// blocks in the same order. The shard is not changed. It takes time in proportion to
// what is open, and costs nothing per packet.
//
// The bytes carry no checksum: whoever stores them adds one. It fails after an error of
// the sink, which it returns.
func (s *Shard) AppendState(b []byte) ([]byte, error) {
	if s.err != nil {
		return b, s.err
	}
	b = append(b, stateVersion)
	b = binary.LittleEndian.AppendUint64(b, s.fingerprint())
	b = binary.AppendUvarint(b, s.rows.seq)
	b = binary.AppendUvarint(b, uint64(s.compactAt))
	counts := s.Counts()
	for _, n := range counts.Fields() {
		b = binary.AppendUvarint(b, *n)
	}
	b = s.clock.appendState(b)
	if s.repeats != nil {
		b = s.repeats.appendState(b)
	}
	b, renumbered := s.series.appendState(b)
	for i := range s.levels {
		l := &s.levels[i]
		b = binary.AppendVarint(b, l.first)
		b = binary.AppendUvarint(b, uint64(len(l.open)))
		for _, w := range l.open {
			b = w.appendState(b, renumbered, &s.rows)
		}
	}
	return b, nil
}

// RestoreShard makes a shard that goes on where the one was that AppendState was called
// on. The configuration has to be the same, but for the resolver and the sink, which
// have to do the same. Counts.CacheResets alone may differ later: caches begin empty.
//
// A state that is damaged, or of another configuration or version, is an ErrState. It
// takes no more memory than such a state describes.
func RestoreShard(cfg Config, sink aggregate.Sink, state []byte) (*Shard, error) {
	s, err := NewShard(cfg, sink)
	if err != nil {
		return nil, err
	}
	r := aggregate.NewStateReader(state)
	if v := r.U8(); r.Ok() && v != stateVersion {
		return nil, fmt.Errorf("restore shard: version %d, expected %d: %w", v, stateVersion, aggregate.ErrState)
	}
	if id := r.U64(); r.Ok() && id != s.fingerprint() {
		return nil, fmt.Errorf("restore shard: of other settings or another source: %w", aggregate.ErrState)
	}
	s.rows.seq = r.Uvarint()
	s.compactAt = int(r.UpTo(uint64(s.cfg.MaxKeys)))
	r.Check(s.compactAt >= min(s.cfg.MaxKeys, minCompactAt))
	for _, n := range s.counts.Fields() {
		*n = r.Uvarint()
	}
	s.clock.restore(r)
	if s.repeats != nil {
		s.repeats.restore(r)
		s.repeats.evictions, s.counts.ReflectionEvictions = s.counts.ReflectionEvictions, 0
	}
	s.series.restore(r)
	for i := range s.levels {
		s.levels[i].restore(r, &s.series, s.seeds)
	}
	if err := r.End("shard"); err != nil {
		return nil, err
	}
	s.settle()
	return s, nil
}

// fingerprint identifies all that a state is bound to.
func (s *Shard) fingerprint() uint64 {
	c := &s.cfg
	h := xxhash.New()
	fmt.Fprintln(h, c.Source, c.SeqBase, c.Resolutions, c.Lateness, c.FineHeavyOnly, int64(c.Horizon), int64(c.MaxAhead),
		c.MaxKeys, c.Flows, c.Tags, c.Reflections, c.Weight, c.LocateUntouched)
	for i := range s.traits {
		t := &s.traits[i]
		fmt.Fprintln(h, t.initial, uint8(t.signal), t.wide, t.class, t.located, t.code, t.value)
	}
	return h.Sum64()
}

func (c *watermark) appendState(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.now))
	b = aggregate.AppendFlag(b, c.started)
	b = binary.AppendUvarint(b, uint64(len(c.waiting)))
	for i := range c.waiting {
		b = appendObservation(b, &c.waiting[i])
	}
	return b
}

func (c *watermark) restore(r *aggregate.StateReader) {
	c.now = int64(r.UpTo(maxTime))
	c.started = r.Flag()
	n := r.Count(observationSize)
	r.Check(n < maxQuarantine)
	for i := 0; i < n && r.Ok(); i++ {
		c.waiting = append(c.waiting, takeObservation(r))
	}
}

// observationSize is the length of an encoded observation.
const observationSize = 8 + 8 + 4 + 2*16 + 2*2 + 3 + 4 + 3 + 4 + 2 + 2

func appendObservation(b []byte, o *decode.Observation) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(o.TimeNS))
	b = binary.LittleEndian.AppendUint64(b, o.Packet)
	b = binary.LittleEndian.AppendUint32(b, o.Bytes)
	b = append(append(b, o.Src[:]...), o.Dst[:]...)
	b = binary.LittleEndian.AppendUint16(b, o.SrcPort)
	b = binary.LittleEndian.AppendUint16(b, o.DstPort)
	b = append(b, o.Proto, uint8(o.Kind), uint8(o.Flags))
	b = binary.LittleEndian.AppendUint32(b, o.Ack)
	b = append(b, uint8(o.Tag.Layout.Format), uint8(o.Tag.Layout.Profile), o.Tag.T)
	b = binary.LittleEndian.AppendUint32(b, o.Tag.S)
	b = binary.LittleEndian.AppendUint16(b, o.Tag.LM)
	return append(aggregate.AppendFlag(b, o.Tag.D), o.Tag.R)
}

// takeObservation takes one that a shard may have waiting.
func takeObservation(r *aggregate.StateReader) (o decode.Observation) {
	o.TimeNS, o.Packet, o.Bytes = int64(r.U64()), r.U64(), r.U32()
	r.Copy(o.Src[:])
	r.Copy(o.Dst[:])
	o.SrcPort, o.DstPort = r.U16(), r.U16()
	o.Proto, o.Kind, o.Flags = r.U8(), decode.Kind(r.U8()), decode.Flags(r.U8())
	o.Ack = r.U32()
	o.Tag.Layout = csig.Layout{Format: csig.Format(r.U8()), Profile: csig.Profile(r.U8())}
	o.Tag.T, o.Tag.S, o.Tag.LM = r.U8(), r.U32(), r.U16()
	o.Tag.D, o.Tag.R = r.Flag(), r.U8()
	r.Check(o.TimeNS > 0 && o.TimeNS <= maxTime && layoutIndex(o.Tag.Layout) < csig.NumLayouts &&
		(o.Kind == decode.Tag || o.Kind == decode.Reflection))
	return o
}
