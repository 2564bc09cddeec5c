package emitter

import "github.com/csigscope/csigscope/decode/csig"

// Reflect is how a receiver makes one reflection of the tags that an acknowledgement
// covers (section 4.2).
type Reflect string

// The summaries. Latest reflects the tag of the last tagged packet. Worst reflects
// the worst tag of one signal, and the signals that the packets carried take turns:
// of the others nothing is told, as the draft allows.
const (
	ReflectLatest Reflect = ""
	ReflectWorst  Reflect = "worst"
)

// summary is the worst tag of each signal since the last acknowledgement.
type summary struct {
	worst [csig.NumKnown]mark // by index in Scenario.Signals
	turn  uint8               // signal that is reflected next if there is one
}

// remember keeps the tag of an arriving packet for the next acknowledgement.
func (s *sim) remember(f *flow, m *mark) {
	if f.summary == nil {
		f.newest = *m
		return
	}
	w := &f.summary.worst[m.signal]
	if !w.set || s.signals[m.signal].direction.Tighter(m.code, w.code) {
		*w = *m
	}
}

// reflection is what the acknowledgement of all that arrived since the last one
// carries, if anything.
func (f *flow) reflection(signals int) mark {
	if f.summary == nil {
		m := f.newest
		f.newest.set = false
		return m
	}
	var m mark
	for i := range signals {
		n := (int(f.summary.turn) + i) % signals
		if f.summary.worst[n].set {
			m, f.summary.turn = f.summary.worst[n], uint8((n+1)%signals)
			break
		}
	}
	f.summary.worst = [csig.NumKnown]mark{}
	return m
}
