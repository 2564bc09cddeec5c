package simulation

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// total adds up a count over the truth's port lines.
func total(file truthFile, of func(truth.Port) uint64) (n uint64) {
	for _, p := range file.ports {
		n += of(p)
	}
	return n
}

// "If a port is configured to strip CSIG, then all CSIG-tagged packets that egress on
// this port must have the tag removed before being forwarded" (section 6.1).
func TestStrippingLeavesNone(t *testing.T) {
	s := tiny()
	s.TagEvery, s.CaptureUntagged = 1, true
	for i := range s.Workloads {
		s.Workloads[i].TagEvery = 1
	}
	s.Devices = []scenario.Behavior{{Match: "spine*", Peer: "leaf2", Kind: scenario.Strip}}
	r, dir := run(t, s)
	s = s.WithDefaults()
	tags := map[string]int{}
	for _, name := range []string{"rack1", "rack2"} {
		for _, c := range readCapture(t, dir+"/"+name+".pcapng", s.Layout) {
			c.checksums(t)
			if c.tag != nil && c.ip.SrcIP.To4()[2] != c.ip.DstIP.To4()[2] {
				tags[name]++
			}
		}
	}
	if tags["rack2"] != 0 || tags["rack1"] < 100 {
		t.Errorf("tagged packets that arrive from other racks: %v, want none in rack 2", tags)
	}
	if n := total(readTruth(t, r.Truth), func(p truth.Port) uint64 { return p.Stripped }); n < 100 {
		t.Errorf("%d tags were stripped", n)
	}
}

// "No CSIG-tagged packet should be dropped in the network due to a lack of CSIG support on a
// device" (section 6.3.1): devices of the category Discard drop tagged packets unless an earlier
// device strips the tags.
func TestDiscardNeedsStrippingBeforeIt(t *testing.T) {
	discards := func(devices ...scenario.Behavior) uint64 {
		s := tiny()
		s.Devices = devices
		s.Workloads = []scenario.Workload{{Kind: scenario.Flows, Rate: scenario.Mbps, TagEvery: 2, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 2, Host: 1}}}}}
		r, _ := run(t, s)
		file := readTruth(t, r.Truth)
		n := total(file, func(p truth.Port) uint64 { return p.Discards })
		if drops := total(file, func(p truth.Port) uint64 { return p.Drops }); drops+n != r.Dropped {
			t.Errorf("%d packets dropped, %d by queues and %d discarded", r.Dropped, drops, n)
		}
		return n
	}
	if n := discards(scenario.Behavior{Match: "leaf2", Kind: scenario.Discard}); n < 10 {
		t.Errorf("%d tagged packets were discarded", n)
	}
	if n := discards(scenario.Behavior{Match: "leaf2", Kind: scenario.Discard}, scenario.Behavior{Match: "spine*", Peer: "leaf2", Kind: scenario.Strip}); n != 0 {
		t.Errorf("%d tagged packets were discarded behind ports that strip", n)
	}
	s := named(t, "partial-deployment")
	s.Duration = time.Second
	r, _ := run(t, s)
	if n := total(readTruth(t, r.Truth), func(p truth.Port) uint64 { return p.Discards }); n != 0 {
		t.Errorf("partial-deployment discards %d tagged packets", n)
	}
}

// "Any recognized IBCS field arriving from an untrusted interface MUST be reset to its
// protocol-defined UNINITIALIZED state" (IBCS, section 4.1); later devices must not reset it.
func TestIngressEdgeScrubs(t *testing.T) {
	forgeries := func(devices ...scenario.Behavior) (heavy, agree, observations uint64) {
		s := tiny()
		s.Devices = devices
		s.Faults = []scenario.Behavior{{Match: "host1-1", Kind: scenario.Forge, Values: map[string]string{"max_delay": "90ms"}}}
		s.Workloads = []scenario.Workload{{Kind: scenario.Flows, Rate: scenario.Mbps, TagEvery: 1, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 2, Host: 1}}}}}
		r, _ := run(t, s)
		for _, c := range readTruth(t, r.Truth).cells {
			if c.Signal == "max_delay" {
				heavy, agree, observations = heavy+c.Heavy, agree+*c.Agree, observations+c.Observations
			}
			if c.Faithful.Heavy != 0 {
				t.Errorf("an idle fabric has a bottleneck: %+v", c)
			}
		}
		return heavy, agree, observations
	}
	if heavy, agree, n := forgeries(); heavy != n || agree != 0 || n == 0 {
		t.Errorf("of %d forged tags %d are heavy and %d agree with a faithful fabric", n, heavy, agree)
	}
	if heavy, agree, n := forgeries(scenario.Behavior{Match: "leaf1", Kind: scenario.IngressEdge}); heavy != 0 || agree != n {
		t.Errorf("of %d scrubbed tags %d are heavy and %d agree", n, heavy, agree)
	}
	// Only the first switch is the edge.
	if heavy, _, n := forgeries(scenario.Behavior{Match: "spine*", Kind: scenario.IngressEdge}); heavy != n {
		t.Errorf("of %d forged tags a spine scrubbed %d", n, n-heavy)
	}
}

// Tags inserted by a port make observations that no sender requested; they count separately.
func TestInsertedTagsCountApart(t *testing.T) {
	s := tiny()
	s.TagEvery = -1
	for i := range s.Workloads {
		s.Workloads[i].TagEvery = -1
	}
	s.Faults = []scenario.Behavior{{Match: "spine*", Kind: scenario.Insert, OneIn: 3}}
	r, _ := run(t, s)
	var inserted, observations uint64
	file := readTruth(t, r.Truth)
	for _, c := range file.cells {
		inserted, observations = inserted+c.Inserted, observations+c.Observations
		if c.Faithful.Observations != 0 {
			t.Errorf("a fabric without tags has an observation: %+v", c)
		}
	}
	if inserted != observations || inserted < 500 || total(file, func(p truth.Port) uint64 { return p.Inserted }) < inserted/2 {
		t.Errorf("%d of %d observations are of inserted tags", inserted, observations)
	}
}

// The faithful tags of a run with faults must equal the tags of the same run without faults.
func TestFaithfulAccountIsThatOfACleanRun(t *testing.T) {
	dirty := tiny()
	dirty.Devices = []scenario.Behavior{{Match: "spine1", Kind: scenario.PassThrough}, {Match: "leaf3", Kind: scenario.Software, Every: 50 * time.Millisecond}}
	dirty.Faults = []scenario.Behavior{
		{Match: "leaf1", Kind: scenario.WrongLM, End: 500 * time.Millisecond},
		{Match: "leaf2", Kind: scenario.Overwrite, Start: 200 * time.Millisecond},
		{Match: "spine2", Kind: scenario.Reset, Start: 600 * time.Millisecond},
		{Match: "host1-2", Kind: scenario.Forge, Values: map[string]string{"min_abw": "0Mbps"}},
	}
	clean := tiny()
	r, _ := run(t, clean)
	want := map[string]truth.Cell{}
	key := func(c truth.Cell) string {
		return c.WindowStart.String() + c.Signal + c.Source + c.SrcGroup + c.DstGroup
	}
	for _, c := range readTruth(t, r.Truth).cells {
		if c.Source == "tag" {
			want[key(c)] = c
		}
	}
	r, _ = run(t, dirty)
	wrong := 0
	for _, c := range readTruth(t, r.Truth).cells {
		if c.Source != "tag" {
			continue
		}
		w, ok := want[key(c)]
		if !ok || !reflect.DeepEqual(c.Faithful.Mode, w.Mode) || c.Faithful.Observations != w.Observations {
			t.Errorf("%s: faithful %+v, a clean run has %+v", key(c), c.Faithful, w)
		}
		delete(want, key(c))
		if *c.Agree < c.Observations {
			wrong++
		}
	}
	if len(want) > 0 || wrong < 10 {
		t.Errorf("%d cells are missing, %d have wrong tags", len(want), wrong)
	}
}

// Under every fault, the truth's counts of tags and reflections must match the captures.
func TestTruthOfFaultsAgreesWithCaptures(t *testing.T) {
	long(t)
	for _, tt := range []struct {
		name   string
		change func(*scenario.Scenario)
	}{
		{"rogue", nil},
		{"trimming", nil},
		{"partial-deployment", nil},
		{"ring", func(s *scenario.Scenario) { // an LM beside the value of a port of another class
			*s = s.WithLayout(compactIETF)
			s.Faults = []scenario.Behavior{{Match: "spine1", Kind: scenario.LMOnly}}
		}},
	} {
		name := tt.name
		s := named(t, name)
		if tt.change != nil {
			tt.change(&s)
		}
		s.Duration, s.Window, s.TagEvery, s.RepeatAckEvery = 500*time.Millisecond, 100*time.Millisecond, 8, 3
		for i := range s.Faults {
			s.Faults[i].Start, s.Faults[i].End = s.Faults[i].Start/16, s.Faults[i].End/16
		}
		for i := range s.Workloads {
			s.Workloads[i].Start /= 16
		}
		r, dir := run(t, s)
		type count struct{ observations, untouched, trimmed, sum, heavy uint64 }
		got := map[cellKey]count{}
		domain := domainOf(t, dir)
		spec, err := fabric.Load(r.Fabric)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fabric.New(spec, domain)
		if err != nil {
			t.Fatal(err)
		}
		add := func(at time.Time, source string, tag *csig.Tag, src, dst net.IP) {
			table := domain.Table(s.Layout, tag.T)
			k := cellKey{at.Truncate(s.Window), source, tag.Signal().String(), fmt.Sprintf("rack%d", src[2]), fmt.Sprintf("rack%d", dst[2])}
			n := got[k]
			n.observations++
			switch {
			case tag.D:
				n.trimmed++
			case table.Untouched(tag.S):
				n.untouched++
				fallthrough
			default:
				n.sum += table.Value(table.Code(tag.S))
			}
			if !tag.D && !table.Untouched(tag.S) {
				_, capacity := f.Locate(s.Layout, tag.T, tag.LM, netip.AddrFrom4([4]byte(src)), netip.AddrFrom4([4]byte(dst)))
				lo, hi, known := table.HeavyCodes(capacity)
				if code := table.Code(tag.S); known && lo <= code && code <= hi {
					n.heavy++
				}
			}
			got[k] = n
		}
		newest, repeats := map[scenario.FiveTuple]string{}, 0
		for _, path := range r.Captures {
			for _, c := range readCapture(t, path, s.Layout) {
				src, dst := c.ip.SrcIP.To4(), c.ip.DstIP.To4()
				if c.tag != nil {
					add(c.at, "tag", c.tag, src, dst)
				}
				if c.reflection == nil {
					continue
				}
				flow := scenario.FiveTuple{
					Src: binary.BigEndian.Uint32(src), Dst: binary.BigEndian.Uint32(dst),
					SrcPort: uint16(c.tcp.SrcPort), DstPort: uint16(c.tcp.DstPort),
				}
				content := fmt.Sprint(c.tcp.Ack, *c.reflection)
				if newest[flow] == content {
					repeats++
					continue
				}
				newest[flow] = content
				add(c.at, "reflection", c.reflection, dst, src)
			}
		}
		if repeats == 0 {
			t.Errorf("%s: no reflection was repeated", name)
		}
		for _, c := range readTruth(t, r.Truth).cells {
			k := cellKey{c.WindowStart, c.Source, c.Signal, c.SrcGroup, c.DstGroup}
			if truth := (count{c.Observations, c.Untouched, c.Trimmed, c.Sum, c.Heavy}); truth != got[k] {
				t.Errorf("%s: %v: truth has %+v, captures %+v", name, k, truth, got[k])
			}
			delete(got, k)
		}
		if len(got) > 0 {
			t.Errorf("%s: %d cells of the captures are not in the truth", name, len(got))
		}
	}
}

// The truth names every fault with its device, port and time.
func TestTruthNamesFaults(t *testing.T) {
	s := named(t, "rogue")
	s.Packets = 1000
	r, _ := run(t, s)
	kinds := map[string]bool{}
	for _, b := range readTruth(t, r.Truth).behaviors {
		kinds[b.What] = true
		if b.What == scenario.Reset && (b.Kind != truth.FaultKind || b.Device != "spine2" || !b.To.Equal(b.From.Add(500*time.Millisecond))) {
			t.Errorf("reset: %+v", b)
		}
		if b.What == scenario.Forge && (b.Device != "host2-4" || b.Port != "" || !b.To.Equal(s.Start.Add(s.Duration))) {
			t.Errorf("forge: %+v", b)
		}
		if b.What == scenario.IngressEdge && b.Kind != truth.DeviceKind {
			t.Errorf("ingress edge: %+v", b)
		}
	}
	if len(kinds) != 11 {
		t.Errorf("kinds %v", kinds)
	}
}

// domainOf compiles the domain of a run's fabric file.
func domainOf(t *testing.T, dir string) *csig.Domain {
	t.Helper()
	spec, err := fabric.Load(filepath.Join(dir, scenario.FabricFile))
	if err != nil {
		t.Fatal(err)
	}
	d, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
