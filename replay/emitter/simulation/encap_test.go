package simulation

import (
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// encapRow says whether an encapsulation hides whole frames or only reflections from readers.
type encapRow struct {
	encap         string
	hidden, outer bool
}

func everyEncap() (rows []encapRow) {
	for _, e := range scenario.Encapsulations() {
		rows = append(rows, encapRow{encap: e, hidden: e == "macsec-encrypted", outer: e == "esp" || e == "psp"})
	}
	return rows
}

func stackName(s *decode.Stack) string {
	var list []string
	for _, l := range s.Layers() {
		list = append(list, string(l.Append(nil)))
	}
	return strings.Join(list, " ")
}

// TestEncapsulatedRunsTellTheTruth runs a scenario in every encapsulation between hosts and
// compares the captures at the receivers with the truth: every observation is there or counted as
// hidden.
func TestEncapsulatedRunsTellTheTruth(t *testing.T) {
	for _, row := range everyEncap() {
		t.Run(row.encap, func(t *testing.T) {
			s := tiny()
			s.Encap, s.SingleFile, s.SnapLen = row.encap, true, 256
			s.Duration, s.BufferBytes = 300*1e6, 1<<20
			s.IP = 4 + 2*(len(row.encap)%2)
			r, dir := run(t, s)
			got := decodeFile(t, filepath.Join(dir, "tiny.pcapng"))
			var tags, reflections uint64
			for _, c := range readTruth(t, r.Truth).cells {
				if c.Source == "tag" {
					tags += c.Observations
				} else {
					reflections += c.Observations
				}
			}
			if tags == 0 || reflections == 0 {
				t.Fatal("the truth has no observations")
			}
			if row.hidden {
				if got.reasons[decode.Hidden] != r.Captured || got.kinds != [3]uint64{} {
					t.Errorf("%d of %d frames are hidden, %v observations", got.reasons[decode.Hidden], r.Captured, got.kinds)
				}
				return
			}
			if row.outer {
				reflections = 0
			}
			// Some acknowledgements are sent twice; the truth counts their reflections once.
			if got.kinds[decode.Tag] != tags || got.kinds[decode.Reflection] < reflections || (reflections == 0) != (got.kinds[decode.Reflection] == 0) {
				t.Errorf("%d tags and %d reflections, want %d and at least %d", got.kinds[decode.Tag], got.kinds[decode.Reflection], tags, reflections)
			}
			if got.orphans > 0 || got.reasons[decode.OK]+got.reasons[decode.NoCSIG] != r.Captured {
				t.Errorf("%d orphans, reasons %v", got.orphans, got.reasons)
			}
		})
	}
}

// decodedFile sums up the decoded frames of a capture.
type decodedFile struct {
	kinds   [3]uint64 // observations by decode.Kind
	orphans uint64
	reasons [decode.NumReasons]uint64
	stacks  map[string]uint64 // frames by encapsulation
}

func decodeFile(t *testing.T, path string) decodedFile {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := decodedFile{stacks: map[string]uint64{}}
	var batch capture.Batch
	var result decode.Result
	for {
		if err := r.ReadBatch(&batch); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return out
		}
		for i := range batch.N {
			d.Decode(batch.Frames[i].Data, &result)
			out.reasons[result.Reason]++
			out.stacks[stackName(&result.Encap)]++
			for _, o := range result.Obs[:result.N] {
				out.kinds[o.Kind]++
				if o.Flags&decode.Orphan != 0 {
					out.orphans++
				}
			}
		}
	}
}

// TestScenariosTakeEncapsulations checks that frames stay well-formed in every encapsulation,
// including trimmed and stripped packets.
func TestScenariosTakeEncapsulations(t *testing.T) {
	long(t)
	next, rows := 0, everyEncap()
	for _, name := range scenario.Names() {
		for range 2 {
			s := named(t, name)
			row := rows[next%len(rows)]
			s.Encap, s.IP, s.Underlay = row.encap, 4+2*(next%2), 4+2*(next/2%2)
			if !row.outer && next%3 == 0 {
				s.EncapAt = "leaves"
			}
			for i := range s.Workloads {
				s.Workloads[i].Encap, s.Workloads[i].EncapAt = "", ""
			}
			next++
			s.Taps = []scenario.Tap{{Racks: true}, {Name: "all", Ports: []string{"*"}}}
			if s.Packets = 4_000; name == "trimming" {
				s.Packets, s.Duration = 0, 1200*time.Millisecond
			}
			s.SnapLen, s.SingleFile, s.Classic, s.CaptureUntagged = 512, true, false, true
			r, _ := run(t, s)
			got := decodeFile(t, r.Captures[0])
			good := got.reasons[decode.OK] + got.reasons[decode.NoCSIG] + got.reasons[decode.Hidden]
			if good != r.Captured || got.orphans > 0 && name != "rogue" {
				t.Errorf("%s in %s: %d of %d frames are whole: %v; %d orphans", name, row.encap, good, r.Captured, got.reasons, got.orphans)
			}
		}
	}
}

// TestTagsMoveThroughTunnels checks that between leaves the tunnel's own L2 carries the tag and
// that the receiver finds it in its original place. Values must not depend on the tunnel, and a
// route that turns around in its leaf has no tunnel.
func TestTagsMoveThroughTunnels(t *testing.T) {
	s := tiny()
	s.Encap, s.EncapAt = "vxlan", "leaves"
	s.Duration, s.BufferBytes = 300*1e6, 1<<20
	s.Workloads = append(s.Workloads, scenario.Workload{Kind: scenario.AllToAll, Racks: []int{1}, Rate: scenario.Mbps})
	s.Taps = []scenario.Tap{
		{Racks: true},
		{Name: "sent", After: []string{"host*"}},
		{Name: "spines", Before: []string{"spine*"}},
		{Name: "down", Ports: []string{"spine*:down*"}},
	}
	_, dir := run(t, s)
	for name, want := range map[string]string{"rack1": "", "sent": "", "spines": "vxlan", "down": "vxlan"} {
		got := decodeFile(t, filepath.Join(dir, name+".pcapng"))
		if got.orphans > 0 || got.kinds[decode.Tag] == 0 || len(got.stacks) != 1 || got.stacks[want] == 0 {
			t.Errorf("%s: %d tags, %d orphans, encapsulations %v, want %q", name, got.kinds[decode.Tag], got.orphans, got.stacks, want)
		}
	}
	// The tunnel uses the leaves' own addresses and is one hop for its payload; a route of one
	// switch is one hop without it.
	const wide = 2 + 6 // TPID and data fields
	captured, _ := framesOf(t, filepath.Join(dir, "down.pcapng"))
	for i := range captured {
		ip := captured[i].Data[frames.EthernetLen:]
		if binary.BigEndian.Uint16(captured[i].Data[12:]) != 0x0800 {
			ip = ip[wide:]
		}
		inner := ip[20+8+8+frames.EthernetLen:]
		if ip[15] != 254 || ip[19] != 254 || ip[8] != 63 || inner[8] != 63 {
			t.Fatalf("behind a spine: outer %x, inner %x", ip[:20], inner[:20])
		}
	}
	captured, _ = framesOf(t, filepath.Join(dir, "rack1.pcapng"))
	hops := map[bool]map[byte]bool{true: {}, false: {}}
	for i := range captured {
		ip := captured[i].Data[frames.EthernetLen:]
		if binary.BigEndian.Uint16(captured[i].Data[12:]) != 0x0800 {
			ip = ip[wide:]
		}
		hops[ip[14] == ip[18]][64-ip[8]] = true
	}
	if len(hops[true]) != 1 || !hops[true][1] || len(hops[false]) != 1 || !hops[false][2] {
		t.Errorf("hops to the receiver: %v inside of the rack, %v from others; want 1 and 2", hops[true], hops[false])
	}
}
