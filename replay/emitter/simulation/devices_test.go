package simulation

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// "The match/action rules themselves can be updated at a slower cadence via the software agent"
// (section 6.4): within a period a port writes one value per signal.
func TestSoftwareRenewsItsValuesSlowly(t *testing.T) {
	const cadence = 40 * time.Millisecond
	s := tiny()
	s.ABWInterval = time.Millisecond
	s.Devices = []scenario.Behavior{{Match: "leaf*", Kind: scenario.Software, Every: cadence}}
	// Changes on other ports in between must not matter.
	s.Faults = []scenario.Behavior{{Match: "spine1:down1", Kind: scenario.Reset, Start: 333 * time.Millisecond}}
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
		if after.SameOnWire(&h.before.tag) {
			return
		}
		if m.topology.Ports[h.number].Stage == "spine" {
			spines++
			return
		}
		k := period{h.number, after.Signal, h.before.started / exact.Picoseconds(cadence)}
		if v, ok := values[k]; ok && v != after.Code {
			t.Fatalf("%s wrote %d and %d in one period", m.topology.Ports[h.number].Name(), v, after.Code)
		}
		values[k] = after.Code
		id := [2]int32{h.number, int32(after.Signal)}
		if v, ok := last[id]; ok && v != after.Code {
			changes[id]++
		}
		last[id] = after.Code
	})
	most := 0
	for _, n := range changes {
		most = max(most, n)
	}
	if most < 5 || spines < 100 {
		t.Errorf("values changed at most %d times; spines wrote %d tags", most, spines)
	}
}

// Both directions of Figure 5: the sender receives the tag as it arrived at the receiver (section
// 4.3.2).
func TestFigure5IsReflected(t *testing.T) {
	s := named(t, "figure5")
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

// Fail-open costs no packet (IBCS, section 7.2): a run whose switches all lack their metrics
// delivers as many packets as a healthy run, and every tag arrives as it was sent.
func TestFailOpenLosesNothing(t *testing.T) {
	healthy, _ := run(t, tiny())
	s := tiny()
	s.Faults = []scenario.Behavior{{Match: "*", Kind: scenario.MissingMetric}}
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

// Same seed, same bytes, with every kind of behavior.
func TestFaultsAreReproducible(t *testing.T) {
	for _, name := range []string{"rogue", "trimming"} {
		s := named(t, name)
		s.Duration = 1200 * time.Millisecond
		_, first := run(t, s)
		_, second := run(t, s)
		if digest(t, first) != digest(t, second) {
			t.Errorf("%s: two runs differ", name)
		}
	}
}

// Behaviors must not allocate per packet.
func TestUnfaithfulStateDoesNotAllocate(t *testing.T) {
	s := tiny()
	s.Duration, s.Window, s.TrimBuffer, s.ABW = time.Minute, time.Minute, 8<<10, scenario.DRE
	s.Devices = []scenario.Behavior{{Match: "leaf1", Kind: scenario.Software}, {Match: "spine1", Kind: scenario.PassThrough}}
	s.Faults = []scenario.Behavior{{Match: "leaf2", Kind: scenario.WrongLM}, {Match: "spine2", Kind: scenario.Insert, OneIn: 5}, {Match: "leaf3", Kind: scenario.Reset}}
	doesNotAllocate(t, s, 300_000)
}
