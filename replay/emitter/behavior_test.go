package emitter

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// hop is what one switch port did to one packet.
type hop struct {
	number        int32
	policy        *policy
	before, after packet
}

// watch runs a scenario to its end and shows every hop of a switch's port to see.
func watch(t *testing.T, m *sim, see func(h hop)) {
	t.Helper()
	if err := m.timeline.change(0, m.ports); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		number, arrival := m.arriving.next()
		_, sending := m.sending.next()
		p := &m.ports[number]
		switchPort := arrival <= sending && arrival < m.end && p.transit
		h := hop{number: number}
		var next *port
		var tail uint32
		var newest mark
		if switchPort {
			h.before = *p.at(p.head)
			f := &m.flows[h.before.flow]
			r := &f.forward
			if h.before.ack {
				r = &f.reverse
			}
			if h.before.hop+1 < r.n {
				next = &m.ports[r.ports[h.before.hop+1]]
				tail = next.tail
			}
		}
		var err error
		if more, err = m.step(); err != nil {
			t.Fatal(err)
		}
		h.policy = p.policy
		switch {
		case next != nil && next.tail != tail:
			h.after = *next.at(next.tail - 1)
			see(h)
		case switchPort && next == nil && !h.before.ack && h.before.tag.set:
			if newest = m.flows[h.before.flow].newest; newest.set {
				h.after = h.before
				h.after.tag = newest
				see(h)
			}
		}
	}
	if err := m.finish(); err != nil {
		t.Fatal(err)
	}
}

func (h *hop) code() uint32 { return h.before.tag.code }

// Transit devices that do not update S do not alter LM, those that update S update LM
// (section 4.1.3), S moves only in its signal's direction (sections 5.3.3 and 5.4.2),
// and nobody adds a tag (section 4.4.2).
func TestHopsObeyTheDraft(t *testing.T) {
	slow := tiny()
	slow.Devices = []Behavior{{Match: "leaf1", Kind: Software, Every: 30 * time.Millisecond}, {Match: "spine*", Kind: Complete}}
	trimmed := tiny()
	trimmed.TrimBuffer = 8 << 10
	first := tiny()
	first.ReplaceInitial = true
	for name, s := range map[string]Scenario{
		"plain": tiny(), "compact": tiny().WithLayout(compactIETF), "software": slow, "trimming": trimmed, "replacing": first,
	} {
		m := prepare(t, s)
		replaced, tagged := 0, 0
		watch(t, m, func(h hop) {
			before, after := &h.before.tag, &h.after.tag
			if after.set != before.set {
				t.Fatalf("%s: a tag appears or disappears: %+v, %+v", name, before, after)
			}
			if !before.set {
				return
			}
			tagged++
			sig := &m.signals[before.signal]
			lm := sig.metadata[h.number]
			switch {
			case after.code == before.code && after.lm == before.lm:
			case after.code == before.code && m.scenario.ReplaceInitial && before.writer == none && after.lm == lm:
			case sig.direction.Tighter(after.code, before.code) && after.lm == lm:
				replaced++
			default:
				t.Fatalf("%s: %s at %s: %+v became %+v", name, sig.kind, m.topology.ports[h.number].name(), before, after)
			}
			if before.is(flagTrimmed) && (!after.sameOnWire(before)) {
				t.Fatalf("%s: a frozen tag changes: %+v became %+v", name, before, after)
			}
			// A run without unfaithful ports keeps no second account of its tags.
			if m.watchful && (after.faithCode() != after.code || after.faithWriter != after.writer) && name != "software" {
				t.Fatalf("%s: a faithful fabric would have written something else: %+v", name, after)
			}
		})
		if replaced < 1000 || tagged < 5000 {
			t.Errorf("%s: %d of %d tags were replaced", name, replaced, tagged)
		}
	}
}

// What each kind of behaviour does to tags, and that it does nothing else.
func TestBehaviorsDoWhatTheyAreCalled(t *testing.T) {
	tighter := func(m *sim, h *hop) bool {
		return m.signals[h.before.tag.signal].direction.Tighter(h.after.tag.code, h.code())
	}
	lmOf := func(m *sim, h *hop) uint16 { return m.signals[h.before.tag.signal].metadata[h.number] }
	unchanged := func(_ *sim, h *hop) bool { return h.after.tag.sameOnWire(&h.before.tag) }
	tests := []struct {
		behavior Behavior
		// tagged packets that leave by the port; untagged ones must stay so.
		right func(m *sim, h *hop) bool
	}{
		{Behavior{Kind: PassThrough}, unchanged},
		{Behavior{Kind: NoMetric}, unchanged},
		{Behavior{Kind: Limited, Signals: []string{"min_abw"}}, func(m *sim, h *hop) bool {
			return m.signals[h.before.tag.signal].kind == csig.MinABW || unchanged(m, h)
		}},
		{Behavior{Kind: Reset}, func(m *sim, h *hop) bool {
			return h.after.tag.code == m.signals[h.before.tag.signal].initial && h.after.tag.lm == 0 && h.after.tag.writer == none
		}},
		{Behavior{Kind: WrongLM}, func(m *sim, h *hop) bool {
			return unchanged(m, h) || tighter(m, h) && h.after.tag.lm == ^lmOf(m, h)&0x7fff
		}},
		{Behavior{Kind: LMOnly}, func(m *sim, h *hop) bool {
			return h.after.tag.code == h.code() && h.after.tag.lm == lmOf(m, h)
		}},
		{Behavior{Kind: ValueOnly}, func(m *sim, h *hop) bool {
			return h.after.tag.lm == h.before.tag.lm && (h.after.tag.code == h.code() || tighter(m, h))
		}},
		{Behavior{Kind: Overwrite, Values: map[string]string{"min_abw": "9Mbps"}}, func(m *sim, h *hop) bool {
			sig := &m.signals[h.before.tag.signal]
			return h.after.tag.lm == lmOf(m, h) && (sig.kind != csig.MinABW || h.after.tag.code == sig.table.Quantize(9000))
		}},
		{Behavior{Kind: Stuck, Values: map[string]string{"max_delay": "1ms"}}, func(m *sim, h *hop) bool {
			sig := &m.signals[h.before.tag.signal]
			stuck := sig.table.Quantize(1e6)
			return sig.kind != csig.MaxDelay || h.after.tag.code == max(stuck, h.code())
		}},
		{Behavior{Kind: Misbucketed, Shift: -1 << 20}, func(m *sim, h *hop) bool {
			return m.signals[h.before.tag.signal].direction == csig.Max && unchanged(m, h) || h.after.tag.code == 0
		}},
	}
	for _, tt := range tests {
		t.Run(tt.behavior.Kind, func(t *testing.T) {
			s := tiny()
			tt.behavior.Match = "spine1"
			if _, ok := deviceKinds[tt.behavior.Kind]; ok {
				s.Devices = []Behavior{tt.behavior}
			} else {
				s.Faults = []Behavior{tt.behavior}
			}
			m := prepare(t, s)
			seen := 0
			watch(t, m, func(h hop) {
				if h.before.tag.set != h.after.tag.set {
					t.Fatalf("a tag appears or disappears at %s", m.topology.ports[h.number].name())
				}
				if !h.before.tag.set || m.topology.ports[h.number].device != "spine1" {
					return
				}
				seen++
				if !tt.right(m, &h) {
					t.Fatalf("%s: %+v became %+v", m.signals[h.before.tag.signal].kind, h.before.tag, h.after.tag)
				}
			})
			if seen < 500 {
				t.Errorf("%d tags passed", seen)
			}
		})
	}
}

// Behaviours hold from their start to their end.
func TestBehaviorsEnd(t *testing.T) {
	s := tiny()
	s.Faults = []Behavior{{Match: "spine1:down2", Kind: Reset, Start: 300 * time.Millisecond, End: 600 * time.Millisecond}}
	m := prepare(t, s)
	first, last := int64(never), int64(0)
	watch(t, m, func(h hop) {
		if h.policy != nil {
			first, last = min(first, m.now), max(last, m.now)
			if name := m.topology.ports[h.number].name(); name != "spine1:down2" {
				t.Fatalf("%s has a policy", name)
			}
		}
	})
	if first < 300e9 || last > 600e9 || last-first < 100e9 {
		t.Errorf("the fault held from %d ps to %d ps", first, last)
	}
}

func TestBehaviorErrors(t *testing.T) {
	one := uint16(1 << 15)
	many := tiny()
	many.Faults = make([]Behavior, maxBehaviors+1)
	if _, err := Run(t.Context(), many, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "expected at most 1024") {
		t.Errorf("%d faults: %v", len(many.Faults), err)
	}
	tests := []struct {
		name           string
		device, faulty Behavior
		want           string
	}{
		{"fault as a device", Behavior{Match: "leaf1", Kind: Reset}, Behavior{}, "devices[0]: kind"},
		{"device as a fault", Behavior{}, Behavior{Match: "leaf1", Kind: PassThrough}, "faults[0]: kind"},
		{"no match", Behavior{Kind: Strip}, Behavior{}, "match: is missing"},
		{"nothing matches", Behavior{Match: "core*", Kind: Strip}, Behavior{}, "matches no port"},
		{"bad pattern", Behavior{Match: "leaf[", Kind: Strip}, Behavior{}, "pattern"},
		{"end before start", Behavior{Match: "leaf1", Kind: Strip, Start: 2, End: 1}, Behavior{}, "expected an end after"},
		{"unknown signal", Behavior{Match: "leaf1", Kind: Limited, Signals: []string{"x"}}, Behavior{}, "signals"},
		{"limited to nothing", Behavior{Match: "leaf1", Kind: Limited}, Behavior{}, "limited to which"},
		{"values of a kind without", Behavior{Match: "leaf1", Kind: Strip, Values: map[string]string{"min_abw": "1Gbps"}}, Behavior{}, "no effect"},
		{"no values", Behavior{}, Behavior{Match: "leaf1", Kind: Stuck}, "expected quantities"},
		{"bad value", Behavior{}, Behavior{Match: "leaf1", Kind: Stuck, Values: map[string]string{"min_abw": "5us"}}, "min_abw"},
		{"wide lm", Behavior{}, Behavior{Match: "leaf1", Kind: WrongLM, LM: &one}, "lm 32768"},
		{"no shift", Behavior{}, Behavior{Match: "leaf1", Kind: Misbucketed}, "shift 0"},
		{"one_in of a kind without", Behavior{}, Behavior{Match: "leaf1", Kind: Reset, OneIn: 3}, "one_in"},
		{"every of a kind without", Behavior{}, Behavior{Match: "leaf1", Kind: Reset, Every: 3}, "every"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tiny()
			if tt.device.Kind != "" {
				s.Devices = []Behavior{tt.device}
			}
			if tt.faulty.Kind != "" {
				s.Faults = []Behavior{tt.faulty}
			}
			if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// Figure 5 of draft -01, hop by hop: the values that the tag has after each port.
func TestLifeOfAPacket(t *testing.T) {
	s, err := Named("figure5")
	if err != nil {
		t.Fatal(err)
	}
	m := prepare(t, s)
	path := []string{"tor1:up1", "agg1-1:up1", "core1:down2", "agg2-1:down1", "tor2:down1"}
	want := map[csig.Signal][]struct {
		value  string
		writer string
	}{
		csig.MinABW:      {{"100Gbps", path[0]}, {"95Gbps", path[1]}, {"70Gbps", path[2]}, {"70Gbps", path[2]}, {"20Gbps", path[4]}},
		csig.MinABWRatio: {{"12.5%", path[0]}, {"12.5%", path[0]}, {"12.5%", path[0]}, {"12.5%", path[0]}, {"12.5%", path[0]}},
		csig.MaxDelay:    {{"10us", path[0]}, {"10us", path[0]}, {"18us", path[2]}, {"18us", path[2]}, {"18us", path[2]}},
	}
	checked := map[csig.Signal]int{}
	watch(t, m, func(h hop) {
		if !h.after.tag.set {
			return
		}
		at := slices.Index(path, m.topology.ports[h.number].name())
		sig := &m.signals[h.before.tag.signal]
		w := want[sig.kind][at]
		v, err := csig.ParseQuantity(sig.kind.Unit(), w.value)
		if err != nil {
			t.Fatal(err)
		}
		writer := m.topology.ports[h.after.tag.writer].name()
		low, high, open := sig.table.Range(h.after.tag.code)
		if v < low || (!open && v >= high) || writer != w.writer || h.after.tag.lm != sig.metadata[h.after.tag.writer] {
			t.Errorf("%s after %s: [%d, %d) by %s, want %s by %s", sig.kind, path[at], low, high, writer, w.value, w.writer)
		}
		checked[sig.kind]++
	})
	for signal := range want {
		if checked[signal] < 5*len(path) {
			t.Errorf("%s: %d hops seen", signal, checked[signal])
		}
	}
}
