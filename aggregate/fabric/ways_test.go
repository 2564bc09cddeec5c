package fabric

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func flowBetween(src, dst string, srcPort, dstPort uint16) *aggregate.Flow {
	return &aggregate.Flow{Src: netip.MustParseAddr(src).As16(), Dst: netip.MustParseAddr(dst).As16(), SrcPort: srcPort, DstPort: dstPort, Proto: 6}
}

// candidatesOn returns the ports that a locator names on the way of a flow at a time.
func candidatesOn(t *testing.T, f *Fabric, fl *aggregate.Flow, lm uint16, ns int64) string {
	t.Helper()
	way, from, until := f.Way(fl, ns)
	if ns < from || ns >= until {
		t.Errorf("the way at %d holds from %d until %d", ns, from, until)
	}
	src, dst := netip.AddrFrom16(fl.Src).Unmap(), netip.AddrFrom16(fl.Dst).Unmap()
	id, _, _ := f.LocateOn(way, compact, csig.MinABW.Type(), lm, src, dst)
	l, ok := f.Location(id)
	if !ok {
		t.Fatalf("location %x is not known", id)
	}
	return strings.Join(l.Candidates, " ")
}

// TestEvidenceOfAnswers: a result has the evidence of a way if that changed the ports that the
// locator names on all paths, whatever else is known of the flow.
func TestEvidenceOfAnswers(t *testing.T) {
	t.Parallel()
	byPath := []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine2"}}}
	byHash := []ECMPSpec{{Hash: "xor16", Fields: []string{"src_port"}}}
	for _, test := range []struct {
		name  string
		paths []PathSpec
		ecmp  []ECMPSpec
		tap   bool // at spine1
		lm    uint16
		want  aggregate.Evidence
	}{
		{"the locator alone", nil, nil, false, class(leaf, up, g100), 0},
		{"a path", byPath, nil, false, class(leaf, up, g100), aggregate.ByPathTable},
		{"a path that passes all ports", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"leaf1"}}}, nil, false, class(leaf, up, g100), 0},
		{"a locator of one port", byPath, nil, false, class(leaf, down, g25), 0},
		{"a path against the locator", byPath, nil, false, class(spine, up, g100), 0},
		{"hashes", nil, byHash, false, class(leaf, up, g100), aggregate.ByECMP},
		{"hashes of another stage", nil, []ECMPSpec{{Hash: "xor16", Stages: []string{"spine"}}}, false, class(leaf, up, g100), 0},
		{"a tap", nil, nil, true, class(leaf, up, g100), aggregate.ByTap},
		{"a tap before hashes", nil, byHash, true, class(leaf, up, g100), aggregate.ByTap},
		{"a path before a tap", byPath, byHash, true, class(spine, down, g100), aggregate.ByPathTable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec, _ := load(t, "leafspine.yaml")
			spec.Paths, spec.ECMP = test.paths, test.ecmp
			f, fl := compile(t, spec), flowBetween("10.0.1.1", "10.0.2.1", 1, 80)
			if test.tap {
				f.RecordSighting(observationPoint(t, f, "spine1"), fl, noon.UnixNano())
				f.UseSightings()
			}
			src, dst := netip.AddrFrom16(fl.Src).Unmap(), netip.AddrFrom16(fl.Dst).Unmap()
			plain, _ := f.Locate(compact, csig.MinABW.Type(), test.lm, src, dst)
			way, _, _ := f.Way(fl, noon.UnixNano())
			id, _, by := f.LocateOn(way, compact, csig.MinABW.Type(), test.lm, src, dst)
			if by != test.want || (id != plain) != (by != 0) {
				t.Errorf("evidence %d, expected %d; the location is another one: %t", by, test.want, id != plain)
			}
		})
	}
}

// TestPathTable: the most specific rule for a flow at a time decides which of the ports that the
// locator allows may be the bottleneck.
func TestPathTable(t *testing.T) {
	t.Parallel()
	up1, down1 := class(leaf, up, g100), class(spine, down, g100)
	hour := int64(time.Hour)
	year1000, year9999 := noon.AddDate(-1026, 0, 0), noon.AddDate(7973, 0, 0) // not Unix ns of 64 bits
	for _, test := range []struct {
		name  string
		paths []PathSpec
		port  uint16 // of the source
		lm    uint16
		after int64 // after noon
		want  string
	}{
		{"without paths", nil, 1, up1, 0, "leaf1:up1 leaf1:up2"},
		{"pair of groups", []PathSpec{{Src: "rack1", Dst: "rack2", Via: []string{"spine2"}}}, 1, up1, 0, "leaf1:up2"},
		{"toward the receiver", []PathSpec{{Src: "rack1", Dst: "rack2", Via: []string{"spine2"}}}, 1, down1, 0, "spine2:down2"},
		{"last hop", []PathSpec{{Src: "rack1", Dst: "rack2", Via: []string{"spine2"}}}, 1, class(leaf, down, g25), 0, "leaf2:down1"},
		{"all ports", []PathSpec{{Src: "h11", Dst: "10.0.2.1", Via: []string{"leaf1:up1", "spine1:down2", "leaf2:down1"}}}, 1, down1, 0, "spine1:down2"},
		{"the other flow", []PathSpec{{Src: "h11", Dst: "h21", SrcPort: 2, Via: []string{"spine1"}}}, 1, up1, 0, "leaf1:up1 leaf1:up2"},
		{"flow before pair", []PathSpec{
			{Src: "h11", Dst: "h21", Via: []string{"spine1"}},
			{Src: "h11", Dst: "h21", SrcPort: 1, Via: []string{"spine2"}},
		}, 1, up1, 0, "leaf1:up2"},
		{"host before group", []PathSpec{
			{Src: "rack1", Dst: "rack2", SrcPort: 1, Proto: 6, Via: []string{"spine1"}},
			{Src: "h11", Dst: "rack2", Via: []string{"spine2"}},
		}, 1, up1, 0, "leaf1:up2"},
		{"before it is valid", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: noon}}, 1, up1, -1, "leaf1:up1 leaf1:up2"},
		{"when it becomes valid", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: noon}}, 1, up1, 0, "leaf1:up1"},
		{"until the year 9999", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: noon, Until: year9999}}, 1, up1, 0, "leaf1:up1"},
		{"from the year 9999", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: year9999}}, 1, up1, 0, "leaf1:up1 leaf1:up2"},
		{"from the year 1000", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: year1000}}, 1, up1, 0, "leaf1:up1"},
		{"until the year 1000", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, Until: year1000}}, 1, up1, 0, "leaf1:up1 leaf1:up2"},
		{"when it ends", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, Until: noon}}, 1, up1, 0, "leaf1:up1 leaf1:up2"},
		{"one after the other", []PathSpec{
			{Src: "h11", Dst: "h21", Via: []string{"spine1"}, Until: noon.Add(time.Hour)},
			{Src: "h11", Dst: "h21", Via: []string{"spine2"}, From: noon.Add(time.Hour)},
		}, 1, up1, hour, "leaf1:up2"},
		{"not the shortest", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1", "leaf3", "spine2"}}}, 1, down1, 0, "spine1:down3 spine2:down2"},
		{"against the locator", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"leaf1"}}}, 1, class(spine, down, g400), 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec, _ := load(t, "leafspine.yaml")
			spec.Paths = test.paths
			f := compile(t, spec)
			if got := candidatesOn(t, f, flowBetween("10.0.1.1", "10.0.2.1", test.port, 80), test.lm, noon.UnixNano()+test.after); got != test.want {
				t.Errorf("candidates %q, want %q", got, test.want)
			}
		})
	}
}

// TestSourceWithTwoHomes: a flow of a host with links to leaf1 and leaf3 leaves it by the switch that is closest to the
// first point of its path; without a point, by either.
func TestSourceWithTwoHomes(t *testing.T) {
	t.Parallel()
	up1, down1 := class(leaf, up, g100), class(spine, down, g100)
	for _, test := range []struct {
		name string
		via  []string
		lm   uint16
		want string
	}{
		{"no path", nil, up1, "leaf1:up1 leaf1:up2 leaf3:up1"},
		{"a port of its first switch", []string{"leaf1:up1"}, up1, "leaf1:up1"},
		{"and then", []string{"leaf1:up1"}, down1, "spine1:down2"},
		{"a switch above both", []string{"spine1"}, up1, "leaf1:up1 leaf3:up1"},
		{"its second switch", []string{"leaf3", "spine1"}, up1, "leaf3:up1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec, _ := load(t, "leafspine.yaml")
			spec.Devices[2].Ports[4].Peer = "h11"
			if test.via != nil {
				spec.Paths = []PathSpec{{Src: "h11", Dst: "h21", Via: test.via}}
			}
			if got := candidatesOn(t, compile(t, spec), flowBetween("10.0.1.1", "10.0.2.1", 1, 80), test.lm, noon.UnixNano()); got != test.want {
				t.Errorf("candidates %q, want %q", got, test.want)
			}
		})
	}
}

// ttlOnly is a locator for max_nqd, which has none in testdata: the TTL alone.
var ttlOnly = csig.LocatorSpec{Format: "wide", Profile: "uec050", Signal: "max_nqd", ZeroIsLocation: true, Fields: []csig.FieldSpec{{Field: "ttl", Bits: 8}}}

// TestHopOnWay: a TTL selects the hop on the way of a flow, if it counts hops there.
func TestHopOnWay(t *testing.T) {
	t.Parallel()
	detour := []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1", "leaf3:up2"}}}
	for _, test := range []struct {
		name  string
		paths []PathSpec
		ecmp  []ECMPSpec
		want  []string // by hop, from 1
	}{
		{"a path", []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine2"}}}, nil, []string{"leaf1:up2", "spine2:down2", "leaf2:down1", "leaf1:up2 leaf2:down1 spine2:down2"}},
		{"not the shortest", detour, nil, []string{"leaf1:up1", "spine1:down3", "leaf3:up2", "spine2:down2", "leaf2:down1"}},
		{"hashes", nil, []ECMPSpec{{Hash: "xor16", Fields: []string{"src_port"}}}, []string{"leaf1:up2", "spine2:down2", "leaf2:down1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec, _ := load(t, "leafspine.yaml")
			spec.CSIG.Locators = append(spec.CSIG.Locators, ttlOnly)
			spec.Paths, spec.ECMP = test.paths, test.ecmp
			f := compile(t, spec)
			way, _, _ := f.Way(flowBetween("10.0.1.1", "10.0.2.1", 1, 80), noon.UnixNano())
			for i, want := range test.want {
				id, _, _ := f.LocateOn(way, wide, csig.MaxNQD.Type(), 63-uint16(i), addr("10.0.1.1"), addr("10.0.2.1"))
				l, _ := f.Location(id)
				if got := strings.Join(l.Candidates, " "); got != want {
					t.Errorf("hop %d: candidates %q, want %q", i+1, got, want)
				}
			}
		})
	}
}

// TestWaysOnlyNarrow: whatever a locator names, on a shortest path there are no other candidates
// than on all of them.
func TestWaysOnlyNarrow(t *testing.T) {
	t.Parallel()
	var values []uint16
	for named := range uint16(1 << 4) {
		for ttl := range uint16(10) {
			values = append(values, named<<8|(64-ttl)) // stage and orientation, or a TTL alone
		}
	}
	compactValues := make([]uint16, 1<<7)
	for i := range compactValues {
		compactValues[i] = uint16(i)
	}
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		spec, _ := load(t, file)
		spec.CSIG.Locators = append(spec.CSIG.Locators, ttlOnly)
		spec.ECMP = []ECMPSpec{{Hash: "crc16"}}
		f := compile(t, spec)
		narrowed := 0
		for _, from := range spec.Hosts {
			for _, to := range spec.Hosts {
				src, dst := addr(from.Addresses[0]), addr(to.Addresses[0])
				way, _, _ := f.Way(flowBetween(from.Addresses[0], to.Addresses[0], 1, 80), noon.UnixNano())
				for _, test := range []struct {
					layout csig.Layout
					signal csig.Signal
					values []uint16
				}{{compact, csig.MinABW, compactValues}, {wide, csig.MinABW, values}, {wide, csig.MaxNQD, values}} {
					for _, lm := range test.values {
						all, _ := f.Locate(test.layout, test.signal.Type(), lm, src, dst)
						one, _, by := f.LocateOn(way, test.layout, test.signal.Type(), lm, src, dst)
						if by == 0 {
							continue
						}
						narrowed++
						onAll, _ := f.Location(all)
						onOne, _ := f.Location(one)
						if onAll.Kind == KindUnknown || slices.ContainsFunc(onOne.Candidates, func(port string) bool { return !slices.Contains(onAll.Candidates, port) }) {
							t.Fatalf("%s, %s, lm %#x from %s to %s: %q on the way, %s %q on all paths", file, test.signal, lm, from.Name, to.Name, onOne.Candidates, onAll.Kind, onAll.Candidates)
						}
					}
				}
			}
		}
		if narrowed == 0 {
			t.Errorf("%s: no way changes any location", file)
		}
	}
}

// TestContradictedPath: a path without any port of the locator is not used, and counted.
func TestContradictedPath(t *testing.T) {
	t.Parallel()
	spec, _ := load(t, "leafspine.yaml")
	spec.Paths = []PathSpec{{Src: "h31", Dst: "h21", Via: []string{"leaf3:up1"}}}
	f := compile(t, spec)
	if got := candidatesOn(t, f, flowBetween("10.0.3.1", "10.0.2.1", 1, 2), class(leaf, up, g50), 0); got != "leaf3:up2" {
		t.Errorf("the locator names leaf3:up2, the path leaf3:up1: candidates %q", got)
	}
	if n := f.Counts().Ways; n.Contradicted != 1 || n.Found[0] != 1 {
		t.Errorf("counts %+v: expected one flow with a path, and one contradiction", n)
	}
}

// TestECMPHashes compares the functions with their check values (the catalogue of parametrised CRC
// algorithms by G. Cook: CRC-16/IBM-3740, CRC-32/ISO-HDLC, CRC-32/ISCSI).
func TestECMPHashes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint32{"crc16": 0x29b1, "crc32": 0xcbf43926, "crc32c": 0xe3069283, "xor16": 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900} {
		if got := ecmpHashes[name](0, []byte("123456789")); got != want {
			t.Errorf("%s: %#x, want %#x", name, got, want)
		}
		if ecmpHashes[name](1, []byte("123456789")) == want {
			t.Errorf("%s: the seed makes no difference", name)
		}
	}
}

// TestECMP: the hash of a flow selects one port of each device with a known hash.
func TestECMP(t *testing.T) {
	t.Parallel()
	up1 := class(leaf, up, g100)
	for _, test := range []struct {
		name      string
		ecmp      []ECMPSpec
		even, odd string
	}{
		{"xor of ports", []ECMPSpec{{Hash: "xor16", Fields: []string{"src_port"}}}, "leaf1:up1", "leaf1:up2"},
		{"of another stage", []ECMPSpec{{Hash: "xor16", Stages: []string{"spine"}}}, "leaf1:up1 leaf1:up2", "leaf1:up1 leaf1:up2"},
		{"the first of a stage", []ECMPSpec{
			{Hash: "xor16", Stages: []string{"spine"}},
			{Hash: "xor16", Fields: []string{"src_port"}, Stages: []string{"leaf"}},
			{Hash: "xor16", Fields: []string{"dst_port"}},
		}, "leaf1:up1", "leaf1:up2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec, _ := load(t, "leafspine.yaml")
			spec.ECMP = test.ecmp
			f := compile(t, spec)
			for port, want := range []string{test.even, test.odd} {
				if got := candidatesOn(t, f, flowBetween("10.0.1.1", "10.0.2.1", uint16(port), 80), up1, 0); got != want {
					t.Errorf("source port %d: candidates %q, want %q", port, got, want)
				}
			}
		})
	}
	spec, _ := load(t, "leafspine.yaml")
	spec.ECMP = []ECMPSpec{{Hash: "xor16", Fields: []string{"src_port"}}}
	spec.Devices[0].HashSeed = 1
	if got := candidatesOn(t, compile(t, spec), flowBetween("10.0.1.1", "10.0.2.1", 0, 80), up1, 0); got != "leaf1:up2" {
		t.Errorf("with seed 1: candidates %q, want leaf1:up2", got)
	}
}

// TestEvidenceErrors: errors in paths and hashes are named.
func TestEvidenceErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		spec Spec
		want string
	}{
		{Spec{Paths: []PathSpec{{Src: "nobody", Dst: "h21", Via: []string{"spine1"}}}}, `paths[0].src: "nobody": expected an address, a prefix, or the name of a host or of a group with prefixes`},
		{Spec{Paths: []PathSpec{{Src: "h11", Dst: "h21"}}}, "paths[0].via: 0 devices and ports: expected 1 to 64"},
		{Spec{Paths: []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1:up9"}}}}, `paths[0].via[0]: "spine1:up9": no device or port has that name`},
		{Spec{Paths: []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: noon, Until: noon}}}, "paths[0].until: 2026-01-05T12:00:00Z: is not after from"},
		{Spec{Paths: []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}, From: noon.AddDate(7973, 0, 0), Until: noon.AddDate(7000, 0, 0)}}}, "paths[0].until: 9026-01-05T12:00:00Z: is not after from"},
		{Spec{ECMP: []ECMPSpec{{Hash: "md5"}}}, `ecmp[0].hash: "md5": expected crc16, crc32, crc32c or xor16`},
		{Spec{ECMP: []ECMPSpec{{Hash: "crc16", Fields: []string{"src_ip", "src_ip"}}}}, `ecmp[0].fields[1]: "src_ip": expected src_ip, dst_ip, protocol, src_port or dst_port, each once`},
	} {
		spec, _ := load(t, "leafspine.yaml")
		spec.Paths, spec.ECMP = test.spec.Paths, test.spec.ECMP
		_, err := New(spec, domainOf(t, spec))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
}

// TestEvidenceIsInTheFingerprint: rows under other evidence belong to another epoch.
func TestEvidenceIsInTheFingerprint(t *testing.T) {
	t.Parallel()
	spec, plain := load(t, "leafspine.yaml")
	texts := map[string]bool{plain.Fingerprint(): true}
	for _, change := range []func(){
		func() { spec.Paths = []PathSpec{{Src: "h11", Dst: "h21", Via: []string{"spine1"}}} },
		func() { spec.Paths[0].Via[0] = "spine2" },
		func() { spec.ECMP = []ECMPSpec{{Hash: "crc16"}} },
		func() { spec.Devices[1].HashSeed = 7 },
	} {
		change()
		text := compile(t, spec).Fingerprint()
		if texts[text] {
			t.Error("two kinds of evidence have one fingerprint")
		}
		texts[text] = true
	}
}
