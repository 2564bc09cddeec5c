package finding

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/decode"
)

const (
	// A finding needs at least minRepeated frames that the tap captured twice, and at least one in
	// repeatedShare of its frames: applications sometimes send the same bytes again.
	minRepeated, repeatedShare = 20, 1000
	// copyTime is the maximum interval between the copies of a frame, and copySilence the time for
	// which no other frame has the same bytes: a sender that repeats them, as probes do, continues
	// for longer.
	copyTime, copySilence = time.Millisecond, time.Second
	// maxCopies bounds the contents that wait for the end of copySilence.
	maxCopies = 1 << 16
	// minBack is how far a clock must go back to count as set, and staysBack is for how many frames
	// it must stay back: frames captured out of order are closer together, and few.
	minBack, staysBack = 100 * time.Millisecond, 50
	// minAhead is how far a clock must go ahead to count as set, while other taps continue.
	minAhead = time.Second
	// A finding needs at least minUnseen acknowledged segments that the tap missed, and at least one
	// in unseenShare of the acknowledged ones.
	minUnseen, unseenShare = 20, 1000
	// maxSegments bounds the remembered segments of all taps, and separately the acknowledgements.
	// If there are more, both keep the same sample.
	maxSegments = 1 << 17
)

// Frame is a frame at a tap, whatever it carries.
type Frame struct {
	TimeNS int64  // Unix ns, 0 if the capture has none
	Number uint64 // in its file, from 1
	// Content is a hash of the bytes of the frame. Repeated says that the tap captured the same
	// bytes at most 1 ms before.
	Content  uint64
	Repeated bool
	Untagged bool // it carries no CSIG
	Class    Class
	TTL      uint8 // or hop limit, of the outermost IP header; 0 if unknown
	// Sent is a number for the TCP segment in the frame, from its connection and the sequence
	// number after it; Acked is the number of the segment that the frame acknowledges. Both are the
	// same for the same segment wherever it is captured; 0 for none.
	Sent, Acked uint64
	// Flow and AckedFlow are numbers for the connection and direction of Sent and Acked. Flow is 0 if
	// the segment carries no data, as after trimming: its receiver may acknowledge it all the same.
	Flow, AckedFlow uint64
	// End and Ack are the sequence numbers themselves.
	End, Ack uint32
}

// Class is a packet's treatment according to L2 and IP.
type Class struct {
	VLAN uint16 // of the outermost tag, 0 without one
	DSCP uint8
}

// tapState is the state of a tap's frames.
type tapState struct {
	Tap
	frames           uint64
	whole            bool // untagged data is captured as well: there is no filter
	copies           copies
	repeated, back   Finding
	reportedRepeated uint64 // those of repeated that a Watcher's finding counts
	reportedBack     uint64 // likewise
	first, last      int64  // times; last is the latest
	before           int64  // the latest time before the clock went back
	behind           uint64
	gapFrom, gapTo   int64 // the longest time without a frame
	paused           bool  // it lies between two files: the capture may have stopped meanwhile
}

// segments are a sample of the segments that taps saw, and of the acknowledged ones.
type segments struct {
	sent  map[uint64]struct{}
	acked map[uint64]ack
	flows map[uint64]*sentFlow
	zeros uint // leading zeros of a number in the sample
}

// ack acknowledges the segment of a flow that ends at a sequence number.
type ack struct {
	flow uint64
	end  uint32
	time int64
}

// sentFlow is a direction of a connection at the receiver's tap.
type sentFlow struct {
	tap      *tapState
	from, to uint32 // sequence numbers of segment ends
}

func newSegments() segments {
	return segments{sent: make(map[uint64]struct{}), acked: make(map[uint64]ack), flows: make(map[uint64]*sentFlow)}
}

// Frame takes a frame, before its observations. It keeps no reference to it.
func (d *Detector) Frame(tap *Tap, f *Frame) {
	d.class, d.ttl = f.Class, f.TTL
	key := *tap
	key.File = ""
	t := d.taps[key]
	if t == nil {
		if len(d.taps) >= d.cfg.MaxSubjects {
			return
		}
		t = &tapState{Tap: *tap}
		d.taps[key] = t
	}
	rotated := t.File != tap.File
	t.File = tap.File
	t.frames++
	t.whole = t.whole || f.Untagged && f.Flow != 0
	if f.TimeNS != 0 {
		t.copied(f)
		t.clock(f, rotated)
	}
	d.segments.add(t, f, d.cfg.MaxFlows)
}

// copies are frames that were captured again within copyTime, ordered by time, until copySilence
// has passed.
type copies struct {
	of    map[uint64]*copied // by content
	queue []*copied
}

// copied is one such frame.
type copied struct {
	content uint64
	n       uint64 // copies
	time    int64  // of the first one, Unix ns
	packet  Packet
	sent    bool // the sender sends the same bytes again and again
}

// copied takes the content of a frame. Equal ones count as copies once copySilence has passed, or
// once the clock is set back by more than that.
func (t *tapState) copied(f *Frame) {
	c := &t.copies
	for len(c.queue) > 0 && !c.queue[0].within(copySilence, f) {
		one := c.queue[0]
		one.count(&t.repeated)
		delete(c.of, one.content)
		c.queue = c.queue[1:]
	}
	if len(c.of) == 0 && !f.Repeated {
		return
	}
	switch one := c.of[f.Content]; {
	case one != nil && one.within(copyTime, f):
		one.n++
	case one != nil:
		one.sent = true
	case f.Repeated && len(c.of) < maxCopies:
		if c.of == nil {
			c.of = make(map[uint64]*copied)
		}
		one = &copied{content: f.Content, n: 1, time: f.TimeNS, packet: Packet{t.File, f.Number}}
		c.of[f.Content], c.queue = one, append(c.queue, one)
	}
}

// within reports whether a frame is at most that long after or before the first one.
func (c *copied) within(d time.Duration, f *Frame) bool {
	apart := f.TimeNS - c.time
	return apart <= int64(d) && apart >= -int64(d)
}

// count adds the copies to a finding, unless the sender repeated the bytes.
func (c *copied) count(f *Finding) {
	if !c.sent {
		f.seen(c.packet.File, &decode.Observation{TimeNS: c.time, Packet: c.packet.Number})
		f.Count += c.n - 1
	}
}

// repeats reports whether n copies are more than applications cause.
func (t *tapState) repeats(n uint64) bool { return n >= minRepeated && n*repeatedShare >= t.frames }

// clock follows the times of a tap's frames. rotated says that the frame begins another file.
func (t *tapState) clock(f *Frame, rotated bool) {
	now := f.TimeNS
	switch {
	case t.first == 0:
		t.first, t.last = now, now
	case now < t.last-int64(minBack):
		if t.behind++; t.behind == 1 {
			t.before = t.last
		}
		if t.behind == staysBack {
			t.back.seen(t.File, &decode.Observation{TimeNS: now, Packet: f.Number})
			t.back.Of = max(t.back.Of, uint64(t.before-now))
			t.last, t.behind = now, 0
		}
		return
	case now-t.last > t.gapTo-t.gapFrom:
		t.gapFrom, t.gapTo, t.paused = t.last, now, rotated
	}
	t.behind = 0
	t.last = max(t.last, now)
}

// add records the segment that a frame carries and the one that it acknowledges.
func (s *segments) add(t *tapState, f *Frame, most int) {
	if f.Sent != 0 && t.Place == Receiver {
		one := s.flows[f.Flow]
		switch {
		case f.Flow == 0:
		case one == nil && len(s.flows) >= most:
			return
		case one == nil:
			s.flows[f.Flow] = &sentFlow{tap: t, from: f.End, to: f.End}
		case int32(f.End-one.from) < 0:
			one.from = f.End
		case int32(f.End-one.to) > 0:
			one.to = f.End
		}
		if s.takes(f.Sent) {
			s.sent[f.Sent] = struct{}{}
		}
	}
	if f.Acked != 0 && s.takes(f.Acked) {
		s.acked[f.Acked] = ack{f.AckedFlow, f.Ack, f.TimeNS}
	}
	for max(len(s.sent), len(s.acked)) > maxSegments {
		s.zeros++
		maps.DeleteFunc(s.sent, func(id uint64, _ struct{}) bool { return !s.takes(id) })
		maps.DeleteFunc(s.acked, func(id uint64, _ ack) bool { return !s.takes(id) })
	}
}

func (s *segments) takes(id uint64) bool { return id>>(64-s.zeros) == 0 }

// unseen counts the acknowledged segments of taps, and those that a tap missed although it saw
// segments of the connection before and after: the receiver has them, so the network did not lose
// them.
func (s *segments) unseen() map[*tapState]*Finding {
	out := map[*tapState]*Finding{}
	for id, a := range s.acked {
		flow := s.flows[a.flow]
		if flow == nil || int32(a.end-flow.from) <= 0 || int32(flow.to-a.end) <= 0 {
			continue
		}
		f := out[flow.tap]
		if f == nil {
			f = new(Finding)
			out[flow.tap] = f
		}
		f.Of++
		if _, seen := s.sent[id]; !seen {
			f.during(a.time, a.time)
			f.Count++
		}
	}
	return out
}

// ofTaps returns the findings about the taps themselves.
func (d *Detector) ofTaps() (list []Finding) {
	about := func(f Finding, k Kind, t *tapState, of uint64, evidence string, args ...any) {
		f.Kind, f.ID, f.Subject, f.Of, f.Evidence = k, idOf(k, t.Name), t.Name, of, fmt.Sprintf(evidence, args...)
		list = append(list, f)
	}
	for _, t := range d.taps {
		repeated := t.repeated
		repeated.Packets = slices.Clip(repeated.Packets)
		for _, one := range t.copies.queue { // as at the end of the capture
			one.count(&repeated)
		}
		if n := repeated.Count; t.repeats(n) {
			about(repeated, DuplicateFrames, t, t.frames, "%d of %d frames have the same bytes as one that %s captured within 1 ms before, and none within 1 s after; --dedup drops them", n, t.frames, t.Name)
		}
		if t.back.Count > 0 {
			about(t.back, ClockSet, t, t.frames, "the clock of %s jumps back by %s", t.Name, time.Duration(t.back.Of))
		} else if d.ahead(t) {
			f := Finding{From: t.gapFrom, To: t.gapTo, Count: 1}
			about(f, ClockSet, t, t.frames, "the clock of %s jumps ahead by about %s, in which other taps have frames, and ends later than all of them", t.Name, time.Duration(t.gapTo-t.gapFrom))
		}
	}
	for t, f := range d.segments.unseen() {
		if t.whole && f.Count >= minUnseen && f.Count*unseenShare >= f.Of {
			about(*f, TapLoss, t, f.Of, "%s did not capture %d of %d segments that their receivers acknowledge", t.Name, f.Count, f.Of)
		}
	}
	return list
}

// ahead reports whether a tap's clock was set ahead: it jumps over a time in which each other tap
// has frames, and stays ahead of all of them by about as much.
func (d *Detector) ahead(t *tapState) bool {
	jump := t.gapTo - t.gapFrom
	others := 0
	for _, o := range d.taps {
		if o == t {
			continue
		}
		if others++; o.first > t.gapFrom || o.last > t.last-jump/2 || o.last < t.gapFrom || o.gapTo-o.gapFrom > jump/10 {
			return false
		}
	}
	return jump >= int64(minAhead) && !t.paused && others > 0
}

// shared returns the VLAN or DSCP that all flows of one list have and none of the other, as text;
// empty if there is none.
func shared(affected, kept []*flow) string {
	same := func(of func(*flow) int) (int, bool) {
		if len(affected) < minAffected || len(kept) < minAffected {
			return 0, false
		}
		v := of(affected[0])
		return v, !slices.ContainsFunc(affected, func(f *flow) bool { return of(f) != v }) && !slices.ContainsFunc(kept, func(f *flow) bool { return of(f) == v })
	}
	text := ""
	if v, ok := same(func(f *flow) int { return int(f.class.VLAN) }); ok {
		text += fmt.Sprintf("; only they have VLAN %d", v)
	}
	if v, ok := same(func(f *flow) int { return int(f.class.DSCP) }); ok {
		text += fmt.Sprintf("; only they have DSCP %d", v)
	}
	return text
}
