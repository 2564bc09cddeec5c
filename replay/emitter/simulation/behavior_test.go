package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// hop is one packet before and after one switch port.
type hop struct {
	number        int32
	policy        *policy
	before, after packet
}

// find returns a packet from a port's ring, where trimmed packets overtake others.
func find(t *testing.T, p *port, like *packet) packet {
	t.Helper()
	for n := p.head; n != p.tail; n++ {
		if k := p.at(n); k.flow == like.flow && k.id == like.id && k.ack == like.ack {
			return *k
		}
	}
	t.Fatalf("packet %d of flow %d is not in its queue", like.id, like.flow)
	return packet{}
}

// watch runs a scenario to its end and passes every hop at a switch port to see.
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
		var newest truth.Tag
		if switchPort {
			h.before = *p.at(p.head)
			f := &m.flows[h.before.flow]
			r := &f.forward
			if h.before.ack {
				r = &f.reverse
			}
			if h.before.hop+1 < r.N {
				next = &m.ports[r.Ports[h.before.hop+1]]
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
			h.after = find(t, next, &h.before)
			see(h)
		case switchPort && next == nil && !h.before.ack && h.before.tag.Set:
			if newest = m.flows[h.before.flow].newest; newest.Set {
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

func (h *hop) code() uint32 { return h.before.tag.Code }

// Transit devices that do not update S do not alter LM, those that update S update LM (section
// 4.1.3), S moves only in its signal's direction (sections 5.3.3 and 5.4.2), and no device adds a
// tag (section 4.4.2).
func TestHopsObeyTheDraft(t *testing.T) {
	slow := tiny()
	slow.Devices = []scenario.Behavior{{Match: "leaf1", Kind: scenario.Software, Every: 30 * time.Millisecond}, {Match: "spine*", Kind: scenario.Complete}}
	trimmed := tiny()
	trimmed.TrimBuffer = 8 << 10
	first := tiny()
	first.ReplaceInitial = true
	for name, s := range map[string]scenario.Scenario{
		"plain": tiny(), "compact": tiny().WithLayout(compactIETF), "software": slow, "trimming": trimmed, "replacing": first,
	} {
		m := prepare(t, s)
		replaced, tagged := 0, 0
		watch(t, m, func(h hop) {
			before, after := &h.before.tag, &h.after.tag
			if after.Set != before.Set {
				t.Fatalf("%s: a tag appears or disappears: %+v, %+v", name, before, after)
			}
			if !before.Set {
				return
			}
			tagged++
			sig := &m.signals[before.Signal]
			lm := sig.Metadata[h.number]
			switch {
			case after.Code == before.Code && after.LM == before.LM:
			case after.Code == before.Code && m.scenario.ReplaceInitial && before.Writer == scenario.None && after.LM == lm:
			case sig.Direction.Tighter(after.Code, before.Code) && after.LM == lm:
				replaced++
			default:
				t.Fatalf("%s: %s at %s: %+v became %+v", name, sig.Kind, m.topology.Ports[h.number].Name(), before, after)
			}
			if before.Is(truth.FlagTrimmed) && (!after.SameOnWire(before)) {
				t.Fatalf("%s: a frozen tag changes: %+v became %+v", name, before, after)
			}
			// A run without unfaithful ports keeps no faithful tags.
			if m.watchful && (after.FaithCode() != after.Code || after.FaithWriter != after.Writer) && name != "software" {
				t.Fatalf("%s: a faithful fabric would have written something else: %+v", name, after)
			}
		})
		if replaced < 1000 || tagged < 5000 {
			t.Errorf("%s: %d of %d tags were replaced", name, replaced, tagged)
		}
	}
}

// Each kind of behavior changes tags as described, and nothing else.
func TestBehaviorsDoWhatTheyAreCalled(t *testing.T) {
	tighter := func(m *sim, h *hop) bool {
		return m.signals[h.before.tag.Signal].Direction.Tighter(h.after.tag.Code, h.code())
	}
	lmOf := func(m *sim, h *hop) uint16 { return m.signals[h.before.tag.Signal].Metadata[h.number] }
	unchanged := func(_ *sim, h *hop) bool { return h.after.tag.SameOnWire(&h.before.tag) }
	tests := []struct {
		behavior scenario.Behavior
		// tagged packets that leave by the port; untagged ones must stay so.
		right func(m *sim, h *hop) bool
	}{
		{scenario.Behavior{Kind: scenario.PassThrough}, unchanged},
		{scenario.Behavior{Kind: scenario.MissingMetric}, unchanged},
		{scenario.Behavior{Kind: scenario.Limited, Signals: []string{"min_abw"}}, func(m *sim, h *hop) bool {
			return m.signals[h.before.tag.Signal].Kind == csig.MinABW || unchanged(m, h)
		}},
		{scenario.Behavior{Kind: scenario.Reset}, func(m *sim, h *hop) bool {
			return h.after.tag.Code == m.signals[h.before.tag.Signal].Initial && h.after.tag.LM == 0 && h.after.tag.Writer == scenario.None
		}},
		{scenario.Behavior{Kind: scenario.WrongLM}, func(m *sim, h *hop) bool {
			return unchanged(m, h) || tighter(m, h) && h.after.tag.LM == ^lmOf(m, h)&0x7fff
		}},
		{scenario.Behavior{Kind: scenario.LMOnly}, func(m *sim, h *hop) bool {
			return h.after.tag.Code == h.code() && h.after.tag.LM == lmOf(m, h)
		}},
		{scenario.Behavior{Kind: scenario.ValueOnly}, func(m *sim, h *hop) bool {
			return h.after.tag.LM == h.before.tag.LM && (h.after.tag.Code == h.code() || tighter(m, h))
		}},
		{scenario.Behavior{Kind: scenario.Overwrite, Values: map[string]string{"min_abw": "9Mbps"}}, func(m *sim, h *hop) bool {
			sig := &m.signals[h.before.tag.Signal]
			return h.after.tag.LM == lmOf(m, h) && (sig.Kind != csig.MinABW || h.after.tag.Code == sig.Table.Quantize(9000))
		}},
		{scenario.Behavior{Kind: scenario.Stuck, Values: map[string]string{"max_delay": "1ms"}}, func(m *sim, h *hop) bool {
			sig := &m.signals[h.before.tag.Signal]
			stuck := sig.Table.Quantize(1e6)
			return sig.Kind != csig.MaxDelay || h.after.tag.Code == max(stuck, h.code())
		}},
		{scenario.Behavior{Kind: scenario.Misbucketed, Shift: -1 << 20}, func(m *sim, h *hop) bool {
			return m.signals[h.before.tag.Signal].Direction == csig.Max && unchanged(m, h) || h.after.tag.Code == 0
		}},
	}
	for _, tt := range tests {
		t.Run(tt.behavior.Kind, func(t *testing.T) {
			s := tiny()
			tt.behavior.Match = "spine1"
			if slices.ContainsFunc(scenario.DeviceKinds(), func(k scenario.Kind) bool { return k.Example.Kind == tt.behavior.Kind }) {
				s.Devices = []scenario.Behavior{tt.behavior}
			} else {
				s.Faults = []scenario.Behavior{tt.behavior}
			}
			m := prepare(t, s)
			seen := 0
			watch(t, m, func(h hop) {
				if h.before.tag.Set != h.after.tag.Set {
					t.Fatalf("a tag appears or disappears at %s", m.topology.Ports[h.number].Name())
				}
				if !h.before.tag.Set || m.topology.Ports[h.number].Device != "spine1" {
					return
				}
				seen++
				if !tt.right(m, &h) {
					t.Fatalf("%s: %+v became %+v", m.signals[h.before.tag.Signal].Kind, h.before.tag, h.after.tag)
				}
			})
			if seen < 500 {
				t.Errorf("%d tags passed", seen)
			}
		})
	}
}

// Behaviors hold from their start to their end.
func TestBehaviorsEnd(t *testing.T) {
	s := tiny()
	s.Faults = []scenario.Behavior{{Match: "spine1:down2", Kind: scenario.Reset, Start: 300 * time.Millisecond, End: 600 * time.Millisecond}}
	m := prepare(t, s)
	first, last := int64(never), int64(0)
	watch(t, m, func(h hop) {
		if h.policy != nil {
			first, last = min(first, m.now), max(last, m.now)
			if name := m.topology.Ports[h.number].Name(); name != "spine1:down2" {
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
	many.Faults = make([]scenario.Behavior, 1025)
	if _, err := Run(t.Context(), many, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "expected at most 1024") {
		t.Errorf("%d faults: %v", len(many.Faults), err)
	}
	withoutD := tiny().WithLayout(compactIETF)
	withoutD.Faults = []scenario.Behavior{{Match: "leaf1", Kind: scenario.SetTrim}}
	if _, err := Run(t.Context(), withoutD, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "compact/ietf01 have no D bit") {
		t.Errorf("D without a bit: %v", err)
	}
	tests := []struct {
		name           string
		device, faulty scenario.Behavior
		want           string
	}{
		{"fault as a device", scenario.Behavior{Match: "leaf1", Kind: scenario.Reset}, scenario.Behavior{}, "devices[0]: kind"},
		{"device as a fault", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.PassThrough}, "faults[0]: kind"},
		{"no match", scenario.Behavior{Kind: scenario.Strip}, scenario.Behavior{}, "match: is missing"},
		{"nothing matches", scenario.Behavior{Match: "core*", Kind: scenario.Strip}, scenario.Behavior{}, "matches no port"},
		{"bad pattern", scenario.Behavior{Match: "leaf[", Kind: scenario.Strip}, scenario.Behavior{}, "pattern"},
		{"end before start", scenario.Behavior{Match: "leaf1", Kind: scenario.Strip, Start: 2, End: 1}, scenario.Behavior{}, "expected an end after"},
		{"unknown signal", scenario.Behavior{Match: "leaf1", Kind: scenario.Limited, Signals: []string{"x"}}, scenario.Behavior{}, "signals"},
		{"limited to nothing", scenario.Behavior{Match: "leaf1", Kind: scenario.Limited}, scenario.Behavior{}, "name the signals that limited supports"},
		{"values of a kind without", scenario.Behavior{Match: "leaf1", Kind: scenario.Strip, Values: map[string]string{"min_abw": "1Gbps"}}, scenario.Behavior{}, "no effect"},
		{"no values", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.Stuck}, "expected quantities"},
		{"bad value", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.Stuck, Values: map[string]string{"min_abw": "5us"}}, "min_abw"},
		{"wide lm", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.WrongLM, LM: &one}, "lm 32768"},
		{"no shift", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.Misbucketed}, "shift 0"},
		{"one_in of a kind without", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.Reset, OneIn: 3}, "one_in"},
		{"every of a kind without", scenario.Behavior{}, scenario.Behavior{Match: "leaf1", Kind: scenario.Reset, Every: 3}, "every"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tiny()
			if tt.device.Kind != "" {
				s.Devices = []scenario.Behavior{tt.device}
			}
			if tt.faulty.Kind != "" {
				s.Faults = []scenario.Behavior{tt.faulty}
			}
			if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// Figure 5 of draft -01, hop by hop: the tag's value after each port.
func TestLifeOfAPacket(t *testing.T) {
	s := named(t, "figure5")
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
		if !h.after.tag.Set {
			return
		}
		at := slices.Index(path, m.topology.Ports[h.number].Name())
		sig := &m.signals[h.before.tag.Signal]
		w := want[sig.Kind][at]
		v, err := csig.ParseQuantity(sig.Kind.Unit(), w.value)
		if err != nil {
			t.Fatal(err)
		}
		writer := m.topology.Ports[h.after.tag.Writer].Name()
		low, high, open := sig.Table.Range(h.after.tag.Code)
		if v < low || (!open && v >= high) || writer != w.writer || h.after.tag.LM != sig.Metadata[h.after.tag.Writer] {
			t.Errorf("%s after %s: [%d, %d) by %s, want %s by %s", sig.Kind, path[at], low, high, writer, w.value, w.writer)
		}
		checked[sig.Kind]++
	})
	for signal := range want {
		if checked[signal] < 5*len(path) {
			t.Errorf("%s: %d hops seen", signal, checked[signal])
		}
	}
}
