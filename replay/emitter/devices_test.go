package emitter

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// "The match/action rules themselves can be updated at a slower cadence via the software
// agent" (section 6.4): within a period a port writes one value of each signal.
func TestSoftwareRenewsItsValuesSlowly(t *testing.T) {
	const cadence = 40 * time.Millisecond
	s := tiny()
	s.ABWInterval = time.Millisecond
	s.Devices = []Behavior{{Match: "leaf*", Kind: Software, Every: cadence}}
	// What happens elsewhere in between does not matter.
	s.Faults = []Behavior{{Match: "spine1:down1", Kind: Reset, Start: 333 * time.Millisecond}}
	m := prepare(t, s)
	type period struct {
		port   int32
		signal uint8
		number int64
	}
	values, changes, spines := map[period]uint32{}, map[[2]int32]int{}, 0
	last := map[[2]int32]uint32{}
	watch(t, m, func(h hop) {
		after := &h.after.tag
		if after.sameOnWire(&h.before.tag) {
			return
		}
		if m.topology.ports[h.number].stage == "spine" {
			spines++
			return
		}
		k := period{h.number, after.signal, h.before.started / ps(cadence)}
		if v, ok := values[k]; ok && v != after.code {
			t.Fatalf("%s wrote %d and %d in one period", m.topology.ports[h.number].name(), v, after.code)
		}
		values[k] = after.code
		id := [2]int32{h.number, int32(after.signal)}
		if v, ok := last[id]; ok && v != after.code {
			changes[id]++
		}
		last[id] = after.code
	})
	most := 0
	for _, n := range changes {
		most = max(most, n)
	}
	if most < 5 || spines < 100 {
		t.Errorf("values changed at most %d times; spines wrote %d tags", most, spines)
	}
}

// Both directions of the walk of Figure 5: the sender learns what the tag said at the
// receiver (section 4.3.2).
func TestFigure5IsReflected(t *testing.T) {
	s, err := Named("figure5")
	if err != nil {
		t.Fatal(err)
	}
	r, dir := run(t, s)
	domain := domainOf(t, dir)
	want := map[csig.Signal]string{csig.MinABW: "20Gbps", csig.MinABWRatio: "12.5%", csig.MaxDelay: "18us"}
	seen := map[csig.Signal]int{}
	for _, path := range r.Captures {
		for _, c := range readCapture(t, path, s.Layout) {
			for _, tag := range []*csig.Tag{c.tag, c.reflection} {
				if tag == nil {
					continue
				}
				table := domain.Table(s.Layout, tag.T)
				v, err := csig.ParseQuantity(tag.Signal().Unit(), want[tag.Signal()])
				if err != nil {
					t.Fatal(err)
				}
				if low, high, _ := table.Range(table.Code(tag.S)); v < low || v >= high {
					t.Fatalf("%s: [%d, %d), want %s", tag.Signal(), low, high, want[tag.Signal()])
				}
				if tag == c.reflection {
					seen[tag.Signal()]++
				}
			}
		}
	}
	for signal := range want {
		if seen[signal] < 100 {
			t.Errorf("%s: %d reflections", signal, seen[signal])
		}
	}
}

// Fail-open costs no packet (IBCS, section 7.2): a run whose switches all lack their
// metrics delivers what a healthy one does, and every tag arrives as it was sent.
func TestFailOpenLosesNothing(t *testing.T) {
	healthy, _ := run(t, tiny())
	s := tiny()
	s.Faults = []Behavior{{Match: "*", Kind: NoMetric}}
	r, _ := run(t, s)
	if r.Sent != healthy.Sent || r.Delivered != healthy.Delivered || r.Dropped != healthy.Dropped {
		t.Errorf("%+v without metrics, %+v with them", r, healthy)
	}
	for _, c := range readTruth(t, r.Truth).cells {
		if c.Untouched != c.Observations {
			t.Errorf("a tag was replaced: %+v", c)
		}
	}
}

// Same seed, same bytes, with every behaviour there is.
func TestFaultsAreReproducible(t *testing.T) {
	for _, name := range []string{"rogue", "trimming"} {
		s, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Duration = 1200 * time.Millisecond
		_, first := run(t, s)
		_, second := run(t, s)
		if digest(t, first) != digest(t, second) {
			t.Errorf("%s: two runs differ", name)
		}
	}
}

// Behaviours cost no allocation per packet, either.
func TestUnfaithfulStateDoesNotAllocate(t *testing.T) {
	s := tiny()
	s.Duration, s.Window, s.TrimBuffer, s.ABW = time.Minute, time.Minute, 8<<10, DRE
	s.Devices = []Behavior{{Match: "leaf1", Kind: Software}, {Match: "spine1", Kind: PassThrough}}
	s.Faults = []Behavior{{Match: "leaf2", Kind: WrongLM}, {Match: "spine2", Kind: Insert, OneIn: 5}, {Match: "leaf3", Kind: Reset}}
	m := prepare(t, s)
	steps := func(n int) {
		for range n {
			if more, err := m.step(); err != nil || !more {
				t.Fatal(more, err)
			}
		}
	}
	steps(300_000)
	if n := testing.AllocsPerRun(10, func() { steps(10_000) }); n != 0 {
		t.Errorf("%v allocations in 10000 events", n)
	}
}
