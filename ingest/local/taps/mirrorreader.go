package taps

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// otherSessions is the name of index 0 in Interfaces: all sessions without an index of their
// own.
const otherSessions = "others"

// mirrorConfig configures a MirrorReader.
type mirrorConfig struct {
	Mirrors decode.Mirrors
	// MaxSessions is the maximum number of sessions with an index of their own. Anybody may
	// send more; they count as otherSessions.
	MaxSessions int
	Expected    Expected // Expect changes it
	// SwitchTime, unless nil, reports whether the frames of a session get the time of their
	// switch, if it is usable: see local.SessionCounters. It is called once for each session.
	SwitchTime func(decode.SessionKey) bool
}

// Expected says which sessions are expected: Reserved of the MaxSessions are kept for them, whatever
// else arrives.
type Expected struct {
	Reserved int
	Has      func(decode.SessionKey) bool // nil: none
}

// MirrorCounters holds the totals of a MirrorReader.
type MirrorCounters struct {
	Results [decode.NumMirrorResults]uint64 // packets, by result of Unwrap
	Excess  uint64                          // frames of sessions beyond MaxSessions
}

// MirrorReader extracts mirrored frames from the packets of a source. It belongs to one
// goroutine, except for Expect, Counters, Session and Sessions.
type MirrorReader struct {
	source   local.Source
	cfg      mirrorConfig
	unwrap   *decode.Unwrapper
	of       map[decode.SessionKey]*sessionState
	last     *sessionState
	others   *sessionState
	counted  *Expected // by which unknown was counted
	unknown  int       // number of sessions that are not expected
	list     []capture.Interface
	received int64 // see Received

	local   MirrorCounters
	batch   uint64          // number of the last one
	touched []*sessionState // sessions in the last batch

	expected atomic.Pointer[Expected]

	mu      sync.Mutex
	count   MirrorCounters
	counts  []local.SessionCounters // by index
	indexes map[string]uint32       // by name
}

// sessionState is the state of a session.
type sessionState struct {
	key      decode.SessionKey
	index    uint32
	next     uint32 // expected sequence number
	expected bool   // next is valid
	count    local.SessionCounters
	batch    uint64 // last batch with a frame of it
	switched bool   // its frames get the switch's time
	clock    switchTime
}

// newMirrorReader makes a reader of the source's packets, and takes ownership of the source.
func newMirrorReader(source local.Source, cfg mirrorConfig) *MirrorReader {
	r := &MirrorReader{source: source, cfg: cfg, unwrap: decode.NewUnwrapper(cfg.Mirrors), of: make(map[decode.SessionKey]*sessionState), indexes: make(map[string]uint32)}
	r.others = r.add(&sessionState{count: local.SessionCounters{Name: otherSessions}})
	r.Expect(cfg.Expected)
	return r
}

// Expect changes which sessions are expected. Those that have an index keep it. It is safe for
// concurrent use.
func (r *MirrorReader) Expect(e Expected) { r.expected.Store(&e) }

// add assigns an index to a session.
func (r *MirrorReader) add(s *sessionState) *sessionState {
	s.index = uint32(len(r.list))
	r.list = append(r.list, capture.Interface{Name: s.count.Name, Link: capture.LinkEthernet, NanosPerTick: 1})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts = append(r.counts, s.count)
	r.indexes[s.count.Name] = s.index
	return s
}

// ReadBatch fills b with the next mirrored frames; their Interface indexes Interfaces. Like the
// source's, it returns an empty batch if none arrived, and data in b is valid until the next
// call. TimeNS is the time of reception. In sessions with ClockSwitch it is the switch's time, if that is
// usable.
func (r *MirrorReader) ReadBatch(b *capture.Batch) error {
	if err := r.source.ReadBatch(b); err != nil {
		return err
	}
	if b.N == 0 {
		return nil
	}
	r.received = b.Frames[b.N-1].TimeNS
	r.batch++
	n := 0
	for i := range b.N {
		packet := &b.Frames[i]
		in := window.FrameOf(packet)
		inner, session, result := r.unwrap.Unwrap(&in)
		r.local.Results[result]++
		if result != decode.MirrorOK {
			continue
		}
		f := &b.Frames[n]
		*f = *packet
		f.Data, f.WireLen, f.TPID, f.TCI = inner.Data, inner.WireLen, 0, 0 // the tag belonged to the outer packet
		r.take(f, &session)
		n++
	}
	b.N = n
	r.publish()
	return nil
}

// take counts a frame of a session.
func (r *MirrorReader) take(f *capture.Frame, session *decode.Session) {
	state := r.state(session)
	if state.batch != r.batch {
		state.batch = r.batch
		r.touched = append(r.touched, state)
	}
	state.count.Frames++
	if state != r.others {
		r.follow(state, session)
	}
	f.Interface = state.index
	if !state.switched {
		return
	}
	at, ok := state.clock.at(session, f.TimeNS)
	if !ok {
		state.count.Unusable++
		return
	}
	f.TimeNS = at
	state.count.SwitchTimes++
}

// publish makes the counts of the last batch visible to other goroutines.
func (r *MirrorReader) publish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count = r.local
	for _, s := range r.touched {
		r.counts[s.index] = s.count
	}
	r.touched = r.touched[:0]
}

// state returns the state of a session and adds new ones; without room it returns others.
func (r *MirrorReader) state(s *decode.Session) *sessionState {
	key := s.Key()
	if r.last != nil && r.last.key == key {
		return r.last
	}
	state := r.of[key]
	if state == nil {
		state = r.admit(key)
	}
	if state == nil {
		r.local.Excess++
		return r.others
	}
	r.last = state
	return state
}

// admit adds a session; nil means that there is no room.
func (r *MirrorReader) admit(key decode.SessionKey) *sessionState {
	e := r.expected.Load()
	if e != r.counted {
		r.counted, r.unknown = e, 0
		for old := range r.of {
			if !e.has(old) {
				r.unknown++
			}
		}
	}
	known := e.has(key)
	if len(r.of) >= r.cfg.MaxSessions || !known && r.unknown >= r.cfg.MaxSessions-e.Reserved {
		return nil
	}
	if !known {
		r.unknown++
	}
	state := r.add(&sessionState{key: key, switched: r.cfg.SwitchTime != nil && r.cfg.SwitchTime(key), count: local.SessionCounters{Name: key.String()}})
	r.of[key] = state
	return state
}

func (e *Expected) has(k decode.SessionKey) bool { return e.Has != nil && e.Has(k) }

// follow counts gaps in sequence numbers. A very large gap means that the switch restarted.
func (r *MirrorReader) follow(state *sessionState, s *decode.Session) {
	const largest = 1 << 20
	if !s.Sequenced {
		return
	}
	gap := s.Sequence - state.next
	if state.expected && gap >= 1<<31 && -gap <= largest {
		return // reordered on the way
	}
	if state.expected && gap <= largest {
		state.count.Lost += uint64(gap)
	}
	state.next, state.expected = s.Sequence+1, true
}

// Interfaces returns the entry of all other sessions, then the sessions, each named by its key, as they
// came. The list grows while frames are read, and its entries never change.
func (r *MirrorReader) Interfaces() []capture.Interface { return r.list[:len(r.list):len(r.list)] }

// LowWatermark returns the source's value.
func (r *MirrorReader) LowWatermark() int64 { return r.source.LowWatermark() }

// Ahead returns the source's value.
func (r *MirrorReader) Ahead() int64 { return r.source.Ahead() }

// Received returns when the last packet was received, with or without a mirrored frame.
func (r *MirrorReader) Received() int64 { return r.received }

// Counters returns the totals up to the last batch. It is safe for concurrent use.
func (r *MirrorReader) Counters() MirrorCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Session returns the totals of the named session, up to the last batch. It is safe for
// concurrent use.
func (r *MirrorReader) Session(name string) (c local.SessionCounters, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.indexes[name]
	if ok {
		c = r.counts[i]
	}
	return c, ok
}

// Sessions returns the totals of each session up to the last batch, by index. It is safe for
// concurrent use.
func (r *MirrorReader) Sessions() []local.SessionCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.counts)
}

// Close closes the source.
func (r *MirrorReader) Close() error { return r.source.Close() }
