package simulation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cellKey is the key of the truth's counts; recount fills the same keys from captures alone.
type cellKey struct {
	window           time.Time
	source, signal   string
	srcRack, dstRack string
}

type cellCount struct {
	observations, untouched, sum uint64
}

// recount decodes the frames without any knowledge of the simulator.
func recount(t *testing.T, s *scenario.Scenario, dir string) (map[cellKey]cellCount, uint64) {
	t.Helper()
	domain := domainOf(t, dir)
	counts := map[cellKey]cellCount{}
	add := func(c *captured, tag *csig.Tag, source string, src, dst byte) {
		table := domain.Table(s.Layout, tag.T)
		k := cellKey{
			c.at.Truncate(s.Window), source, tag.Signal().String(),
			fmt.Sprintf("rack%d", src), fmt.Sprintf("rack%d", dst),
		}
		n := counts[k]
		n.observations++
		n.sum += table.Value(table.Code(tag.S))
		if table.Untouched(tag.S) {
			n.untouched++
			if tag.LM != 0 {
				t.Errorf("an untouched tag has locator metadata %d", tag.LM)
			}
		}
		counts[k] = n
	}
	repeats, newest := uint64(0), map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.pcap*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		for _, c := range readCapture(t, path, s.Layout) {
			src, dst := c.ip.SrcIP.To4(), c.ip.DstIP.To4()
			if c.tag != nil {
				add(&c, c.tag, "tag", src[2], dst[2])
			}
			if c.reflection == nil {
				continue
			}
			flow := fmt.Sprint(src, dst, c.tcp.SrcPort, c.tcp.DstPort)
			content := fmt.Sprint(c.tcp.Ack, *c.reflection)
			if newest[flow] == content {
				repeats++
				continue
			}
			newest[flow] = content
			add(&c, c.reflection, "reflection", dst[2], src[2])
		}
	}
	return counts, repeats
}

func TestTruthAgreesWithCaptures(t *testing.T) {
	long(t)
	for _, layout := range []csig.Layout{
		wideUEC, compactIETF,
		{Format: csig.Compact, Profile: csig.UEC050},
		{Format: csig.Wide, Profile: csig.IETF01},
	} {
		t.Run(layout.String(), func(t *testing.T) {
			s := tiny()
			s.TagAcks = layout == wideUEC
			s = s.WithLayout(layout).WithDefaults()
			r, dir := run(t, s)
			want, repeats := recount(t, &s, dir)
			if repeats == 0 {
				t.Error("no acknowledgement was repeated")
			}
			signals := map[string]bool{}
			for _, c := range readTruth(t, r.Truth).cells {
				k := cellKey{c.WindowStart, c.Source, c.Signal, c.SrcGroup, c.DstGroup}
				got := cellCount{c.Observations, c.Untouched, c.Sum}
				if got != want[k] {
					t.Errorf("%v: truth has %+v, captures %+v", k, got, want[k])
				}
				delete(want, k)
				signals[c.Signal+c.Source] = true
			}
			if len(want) > 0 {
				t.Errorf("%d cells of the captures are not in the truth", len(want))
			}
			if len(signals) != 2*len(s.Signals) {
				t.Errorf("signals and sources in the truth: %v", slices.Collect(maps.Keys(signals)))
			}
		})
	}
}

func TestTruthOfCells(t *testing.T) {
	r, _ := run(t, tiny())
	modes := 0
	for _, c := range readTruth(t, r.Truth).cells {
		var sum, most uint64
		for _, n := range c.Ports {
			sum, most = sum+n, max(most, n)
		}
		if sum != c.Heavy || c.Heavy+c.Untouched > c.Observations {
			t.Errorf("%+v: ports hold %d heavy observations", c, sum)
		}
		if c.Heavy == 0 {
			continue
		}
		modes++
		if c.BottleneckCount != most || c.Ports[c.Bottleneck] != most || !strings.HasPrefix(c.Bottleneck, c.Stage) {
			t.Errorf("%+v: bottleneck has not the most heavy observations", c)
		}
		for _, tie := range c.Ties {
			if c.Ports[tie] != most {
				t.Errorf("%+v: %s is no tie", c, tie)
			}
		}
	}
	if modes == 0 {
		t.Error("no cell has a bottleneck")
	}
}

// congested adds up the heavy observations of some cells, by port.
func congested(file truthFile, signal string, cell func(truth.Cell) bool) map[string]uint64 {
	ports := map[string]uint64{}
	for _, c := range file.cells {
		if c.Signal == signal && c.Source == "tag" && cell(c) {
			for p, n := range c.Ports {
				ports[p] += n
			}
		}
	}
	return ports
}

func most(ports map[string]uint64) string {
	return slices.MaxFunc(slices.Collect(maps.Keys(ports)), func(a, b string) int { return cmp.Compare(ports[a], ports[b]) })
}

func TestIncastCongestsTheReceiver(t *testing.T) {
	s := named(t, "incast")
	s.Duration = 3 * time.Second
	r, _ := run(t, s)
	file := readTruth(t, r.Truth)
	for _, signal := range []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"} {
		ports := congested(file, signal, func(c truth.Cell) bool { return c.DstGroup == "rack4" && c.SrcGroup != "rack4" })
		if len(ports) == 0 || most(ports) != "leaf4:down1" {
			t.Errorf("%s: bottlenecks %v, want leaf4:down1", signal, ports)
		}
	}
	for _, p := range file.ports {
		active := p.WindowStart.Sub(file.header.Start) == 2*time.Second
		if p.Port == "leaf4:down1" && active && (p.Load < 0.99 || p.Drops == 0 || p.MaxQueueBytes < s.BufferBytes/2) {
			t.Errorf("the receiver's port is not congested: %+v", p)
		}
	}
}

// In the demo, and in a ring over a rack with slow links, only the slow links drop packets, and
// they are the bottleneck of all cells that use them.
func TestSlowLinksAreTheBottleneck(t *testing.T) {
	long(t)
	for name, rack := range map[string]string{"demo": "5", "ring": "2"} {
		s := named(t, name)
		s.Duration = 3 * time.Second
		r, _ := run(t, s)
		file := readTruth(t, r.Truth)
		for _, signal := range []string{"max_nqd", "max_delay"} {
			leaving := congested(file, signal, func(c truth.Cell) bool { return c.SrcGroup == "rack"+rack })
			entering := congested(file, signal, func(c truth.Cell) bool { return c.DstGroup == "rack"+rack })
			if len(leaving) == 0 || !strings.HasPrefix(most(leaving), "leaf"+rack+":up") {
				t.Errorf("%s: %s: what leaves rack %s is limited by %v", name, signal, rack, leaving)
			}
			if len(entering) == 0 || !strings.HasSuffix(most(entering), ":down"+rack) {
				t.Errorf("%s: %s: what enters rack %s is limited by %v", name, signal, rack, entering)
			}
		}
		for _, p := range file.ports {
			slow := strings.HasPrefix(p.Port, "leaf"+rack+":up") || (strings.HasPrefix(p.Port, "spine") && strings.HasSuffix(p.Port, ":down"+rack))
			if !slow && p.Drops > 0 {
				t.Errorf("%s: %s drops packets too: %+v", name, p.Port, p)
			}
		}
	}
}

func digest(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(path), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestSameSeedSameBytes(t *testing.T) {
	golden := func(name, got string) {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s changed: if that is meant, run the test with -update", path)
		}
	}
	r, first := run(t, tiny())
	_, second := run(t, tiny())
	if digest(t, first) != digest(t, second) {
		t.Error("two runs of one scenario differ")
	}
	golden("tiny.sha256", digest(t, first)+"\n")
	for name, path := range map[string]string{"tiny.truth.ndjson": r.Truth, "tiny.fabric.yaml": r.Fabric} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		golden(name, string(text))
	}
	other := tiny()
	other.Seed++
	if _, third := run(t, other); digest(t, first) == digest(t, third) {
		t.Error("another seed gives the same bytes")
	}
}
