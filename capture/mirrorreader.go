package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// FrameSource is where a MirrorReader takes packets from: a Ring of a tap, or a
// MirrorSocket.
type FrameSource interface {
	// ReadBatch fills b, or leaves it empty without an error when nothing came for a
	// while. What b refers to is valid until the next call.
	ReadBatch(b *Batch) error
	// QuietUntil is a time (Unix ns) before which nothing came that is yet to be
	// delivered, as of the last empty batch.
	QuietUntil() int64
	Close() error
}

// SessionKey tells mirror sessions apart: each is a tap of its own, which stands where
// its switch mirrors.
type SessionKey struct {
	Kind   MirrorKind
	Source netip.Addr // the switch
	ID     uint32     // see Session
}

// String is the key as kind/address/session, such as erspan/192.0.2.1/77.
func (k SessionKey) String() string { return fmt.Sprintf("%s/%s/%d", k.Kind, k.Source, k.ID) }

// Key is what the session is known by.
func (s *Session) Key() SessionKey { return SessionKey{s.Kind, s.Source, s.ID} }

// DefaultMaxSessions bounds the sessions of a MirrorReader.
const DefaultMaxSessions = 256

// MirrorConfig is what a MirrorReader needs to know.
type MirrorConfig struct {
	Mirrors Mirrors
	// Only, unless empty, are the sessions whose frames are wanted; frames of others are
	// counted and left out.
	Only []SessionKey
	// MaxSessions is how many sessions are told apart. Default 256: frames of further
	// ones are counted and left out, since anybody may send them.
	MaxSessions int
}

// MirrorCounters are the totals of a MirrorReader.
type MirrorCounters struct {
	Results [NumMirrorResults]uint64 // packets, by what Unwrap made of them
	Foreign uint64                   // frames of sessions that are not wanted
	Excess  uint64                   // frames of sessions beyond MaxSessions
	Lost    uint64                   // gaps in the sequence numbers of sessions, in frames
}

// MirrorReader reads the frames that switches mirrored, out of the packets that a
// source brings. It belongs to one goroutine, except for Counters.
type MirrorReader struct {
	source   FrameSource
	cfg      MirrorConfig
	of       map[SessionKey]*sessionState
	last     *sessionState
	list     []Interface
	sessions [BatchSize]Session // of the frames of the last batch

	local MirrorCounters
	mu    sync.Mutex
	count MirrorCounters
}

// sessionState is what is kept of a session. One that is not wanted has none.
type sessionState struct {
	key      SessionKey
	index    uint32
	next     uint32 // sequence number
	expected bool   // next is known
}

// NewMirrorReader makes a reader of the source's packets, which it owns from then on.
func NewMirrorReader(source FrameSource, cfg MirrorConfig) *MirrorReader {
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = DefaultMaxSessions
	}
	return &MirrorReader{source: source, cfg: cfg, of: make(map[SessionKey]*sessionState)}
}

// ReadBatch fills b with the next mirrored frames, whose Interface indexes Interfaces:
// one for each session. Like the source's, it returns an empty batch where none came,
// and what b refers to is valid until the next call. TimeNS is when the packet was
// received here; the switch's own time is in SessionOf.
func (r *MirrorReader) ReadBatch(b *Batch) error {
	if err := r.source.ReadBatch(b); err != nil {
		return err
	}
	n := 0
	for i := range b.N {
		inner, session, result := r.cfg.Mirrors.Unwrap(&b.Frames[i])
		r.local.Results[result]++
		if result != MirrorOK {
			continue
		}
		state := r.state(&session)
		if state == nil {
			continue
		}
		r.follow(state, &session)
		inner.Interface = state.index
		b.Frames[n], r.sessions[n] = inner, session
		n++
	}
	if b.N > 0 {
		r.mu.Lock()
		r.count = r.local
		r.mu.Unlock()
	}
	b.N = n
	return nil
}

// state finds a session, or makes it known; nil says that its frames are left out.
func (r *MirrorReader) state(s *Session) *sessionState {
	key := s.Key()
	if r.last != nil && r.last.key == key {
		return r.last
	}
	state := r.of[key]
	switch {
	case state != nil:
	case len(r.cfg.Only) > 0 && !slices.Contains(r.cfg.Only, key):
		r.local.Foreign++
		return nil
	case len(r.of) >= r.cfg.MaxSessions:
		r.local.Excess++
		return nil
	default:
		state = &sessionState{key: key, index: uint32(len(r.list))}
		r.of[key] = state
		r.list = append(r.list, Interface{Name: key.String(), Link: LinkEthernet, NanosPerTick: 1})
	}
	r.last = state
	return state
}

// follow counts gaps in sequence numbers. A large one is a switch that began anew.
func (r *MirrorReader) follow(state *sessionState, s *Session) {
	const largest = 1 << 20
	if !s.Sequenced {
		return
	}
	gap := s.Sequence - state.next
	if state.expected && gap >= 1<<31 && -gap <= largest {
		return // it was overtaken on the way
	}
	if state.expected && gap <= largest {
		r.local.Lost += uint64(gap)
	}
	state.next, state.expected = s.Sequence+1, true
}

// SessionOf is what frame i of the last batch came in. It is valid until the next
// ReadBatch.
func (r *MirrorReader) SessionOf(i int) *Session { return &r.sessions[i] }

// Interfaces are the sessions seen so far, each named by its key. The list grows while
// frames are read, and its entries never change.
func (r *MirrorReader) Interfaces() []Interface { return r.list[:len(r.list):len(r.list)] }

// QuietUntil is that of the source.
func (r *MirrorReader) QuietUntil() int64 { return r.source.QuietUntil() }

// Counters are the totals up to the last batch. It is safe to call at any time.
func (r *MirrorReader) Counters() MirrorCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Close closes the source.
func (r *MirrorReader) Close() error { return r.source.Close() }
