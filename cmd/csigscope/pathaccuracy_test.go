package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// pathEvidence is one kind of evidence about paths besides the locator.
type pathEvidence struct {
	name string
	full bool // gives the path of every flow
	// tunnels selects the scenarios in which tunnels hide flows.
	tunnels bool
	taps    string // patterns of taps in the fabric whose captures are read
	// tell adds the evidence to a fabric file that has none.
	tell func(f *fabric.Spec, emitted *fabric.Spec, flows []truth.Flow)
}

// oneTap is the first of the taps at all switches that join racks.
const oneTap = "mid-1"

var pathEvidences = []pathEvidence{
	{name: "locator", tell: func(*fabric.Spec, *fabric.Spec, []truth.Flow) {}},
	{name: "one tap", taps: oneTap, tell: func(*fabric.Spec, *fabric.Spec, []truth.Flow) {}},
	{name: "all taps", full: true, taps: "mid-*", tell: func(*fabric.Spec, *fabric.Spec, []truth.Flow) {}},
	{name: "path table", full: true, tell: tellPaths},
	{name: "some paths", tunnels: true, tell: tellPaths},
	{name: "ecmp", full: true, tell: func(f, emitted *fabric.Spec, _ []truth.Flow) { f.ECMP = emitted.ECMP }},
}

// tellPaths adds the path of every flow, as the hosts know it.
func tellPaths(f, _ *fabric.Spec, flows []truth.Flow) {
	for i := range flows {
		w := &flows[i]
		f.Paths = append(f.Paths,
			fabric.PathSpec{Src: w.SrcIP, Dst: w.DstIP, SrcPort: w.SrcPort, DstPort: w.DstPort, Via: w.Forward},
			fabric.PathSpec{Src: w.DstIP, Dst: w.SrcIP, SrcPort: w.DstPort, DstPort: w.SrcPort, Via: w.Reverse})
	}
}

// candidateScore measures how right the candidates of modes are, over cells and windows with
// heavy observations.
type candidateScore struct {
	windows     int
	right       float64 // the likeliest port is the true one; ties count in part
	singleWrong int     // one port is named, and it is wrong
	covered     int     // the true port is among the candidates
	size        int     // number of candidates
	brier       float64
	bins        [11]struct { // by probability, in tenths
		n, true int
		p       float64
	}
}

// add counts a mode whose candidates have these probabilities. If several true ports tie, the
// likeliest counts as the true one.
func (s *candidateScore) add(candidates []aggregate.Candidate, tied []string) {
	p := map[string]float64{}
	for _, c := range candidates {
		p[c.Port] = c.Probability
	}
	s.windows++
	s.size += len(p)
	truly := tied[0]
	for _, port := range tied {
		if p[port] > p[truly] {
			truly = port
		}
	}
	likeliest, ties := 0.0, 0
	for _, v := range p {
		switch {
		case v > likeliest:
			likeliest, ties = v, 1
		case v == likeliest:
			ties++
		}
	}
	own, covered := p[truly]
	switch {
	case !covered:
		s.brier++
		if len(p) == 1 {
			s.singleWrong++
		}
	case own == likeliest:
		s.right += 1 / float64(ties)
		fallthrough
	default:
		s.covered++
	}
	for _, port := range slices.Sorted(maps.Keys(p)) {
		v, hit := p[port], 0.0
		bin := &s.bins[int(v*10)]
		if port == truly {
			hit = 1
			bin.true++
		}
		bin.n++
		bin.p += v
		s.brier += (v - hit) * (v - hit)
	}
}

// miscalibration is the mean difference between probabilities and the share of ports that are
// right, by tenths.
func (s *candidateScore) miscalibration() float64 {
	sum, n := 0.0, 0
	for i := range s.bins {
		sum += math.Abs(s.bins[i].p - float64(s.bins[i].true))
		n += s.bins[i].n
	}
	return sum / float64(max(n, 1))
}

func (s *candidateScore) merge(o *candidateScore) {
	s.windows += o.windows
	s.right += o.right
	s.singleWrong += o.singleWrong
	s.covered += o.covered
	s.size += o.size
	s.brier += o.brier
	for i := range s.bins {
		s.bins[i].n += o.bins[i].n
		s.bins[i].true += o.bins[i].true
		s.bins[i].p += o.bins[i].p
	}
}

func (s *candidateScore) write(w io.Writer, locator, evidence string) {
	n := float64(max(s.windows, 1))
	fmt.Fprintf(w, "%s\t%s\t%d\t%.2f %%\t%d\t%.2f %%\t%.2f\t%.4f\t%.4f\n", locator, evidence, s.windows,
		100*s.right/n, s.singleWrong, 100*float64(s.covered)/n, float64(s.size)/n, s.brier/n, s.miscalibration())
}

func (s *candidateScore) writeBins(w io.Writer, locator, evidence string) {
	for i := range s.bins {
		if b := &s.bins[i]; b.n > 0 {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%d\t%.3f\t%.3f\n", locator, evidence, float64(i)/10, b.n, b.p/float64(b.n), float64(b.true)/float64(b.n))
		}
	}
}

// tunneled are the scenarios whose tunnels hide flows from path tables, and whose switches hash
// headers that no fabric file describes.
var tunneled = map[string]bool{"ipv6": true}

// sampleScenarios are the scenarios of a short run: with two stages and three, with uplinks of
// several speeds, and with flows that share ports.
var sampleScenarios = []string{"demo", "mixed-generations", "permutation", "three-tier", "ipv6"}

// Limits of the scores, the second with full evidence.
const (
	maxMiscalibration = 0.05
	maxBrier          = 0.01
)

// TestPathAccuracy replays scenarios with several seeds and increasing evidence about paths,
// and compares the candidate ports of each cell's bottleneck with the true one.
func TestPathAccuracy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: the simulations take half a minute")
	}
	file := os.Getenv(accuracyEnv)
	names, seeds := scenario.Names(), uint64(10)
	if file == "" {
		names, seeds = sampleScenarios, 2
	}
	scores := map[string]*candidateScore{}
	for _, name := range names {
		for seed := range seeds {
			s, err := scenario.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			if s.RandomFlows > 0 || imperfect[name] || len(s.Taps) > 0 {
				continue
			}
			s.Classic, s.SingleFile, s.Taps = false, false, append([]scenario.Tap{{Racks: true}}, tapsInside(t, s)...)
			if !tunneled[name] {
				s.ECMPHash = "crc32"
			}
			s.Duration, s.Packets, s.Seed = min(s.Duration, cmp.Or(otherRuns[name], shortRun)), 0, s.Seed+seed
			for _, l := range locatorLayouts {
				if unfit[name+" "+l.name] {
					continue
				}
				t.Run(fmt.Sprintf("%s seed %d %s", name, s.Seed, l.name), func(t *testing.T) {
					for evidence, score := range scoreEvidence(t, s.WithLayout(l.layout)) {
						key := l.layout.Format.String() + " " + evidence
						if scores[key] == nil {
							scores[key] = new(candidateScore)
						}
						scores[key].merge(score)
					}
				})
			}
		}
	}
	text := pathTable(scores)
	t.Log(text)
	for _, format := range []csig.Format{csig.Compact, csig.Wide} {
		for _, e := range pathEvidences {
			s := scores[format.String()+" "+e.name]
			switch {
			case s == nil || s.windows == 0:
				t.Errorf("%s, %s: no cell has heavy observations", format, e.name)
			case s.singleWrong > 0:
				t.Errorf("%s, %s: %d of %d cells and windows name a single port that is not the true one", format, e.name, s.singleWrong, s.windows)
			case float64(s.covered) < 0.995*float64(s.windows):
				t.Errorf("%s, %s: %d of %d cells and windows have the true port among the candidates", format, e.name, s.covered, s.windows)
			case s.miscalibration() > maxMiscalibration || e.full && s.brier > maxBrier*float64(s.windows):
				t.Errorf("%s, %s: probabilities are off by %.4f, with a Brier score of %.4f", format, e.name, s.miscalibration(), s.brier/float64(s.windows))
			case e.full && s.right < 0.995*float64(s.windows):
				t.Errorf("%s, %s: the likeliest port is the true one in %.1f of %d cells and windows", format, e.name, s.right, s.windows)
			}
		}
	}
	if file != "" {
		if err := os.WriteFile(file+".paths", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func pathTable(scores map[string]*candidateScore) string {
	var table strings.Builder
	table.WriteString(`Ports that may be the bottleneck, of cells and windows with heavy observations, by how much is
known of paths. Right: the likeliest port is the true one. Wrong: a single port is named that
is not. Covered: the true port is a candidate. Brier: mean squared error of probabilities.
Miscalibration: mean distance of probabilities, by tenths, from the share of true ports.

`)
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "locator\tevidence\theavy\tright\twrong\tcovered\tcandidates\tbrier\tmiscalibration")
	each := func(f func(s *candidateScore, locator, evidence string)) {
		for _, format := range []csig.Format{csig.Compact, csig.Wide} {
			for _, e := range pathEvidences {
				if s := scores[format.String()+" "+e.name]; s != nil {
					f(s, format.String(), e.name)
				}
			}
		}
	}
	each(func(s *candidateScore, locator, evidence string) { s.write(w, locator, evidence) })
	fmt.Fprintln(w, "\nlocator\tevidence\tfrom\tports\tprobability\ttrue")
	each(func(s *candidateScore, locator, evidence string) { s.writeBins(w, locator, evidence) })
	_ = w.Flush() // cannot fail: writes to a Builder
	return table.String()
}

// tapsInside returns taps at every switch that joins racks, and at every link between racks.
func tapsInside(t *testing.T, s scenario.Scenario) []scenario.Tap {
	t.Helper()
	f, err := scenario.Fabric(s)
	if err != nil {
		t.Fatal(err)
	}
	var spines []string
	var sides []scenario.Tap
	for i := range f.Devices {
		for _, p := range f.Devices[i].Ports {
			if p.Orientation == "side" {
				sides = append(sides, scenario.Tap{Name: "mid-" + f.Devices[i].Name + "-" + p.Name, Ports: []string{f.Devices[i].Name + ":" + p.Name}})
			}
		}
		if stage := f.Devices[i].Stage; stage == "spine" || stage == "core" || stage == "agg" {
			spines = append(spines, f.Devices[i].Name)
		}
	}
	if len(spines) == 0 {
		t.Fatalf("%s has no switch that joins racks", s.Name)
	}
	taps := []scenario.Tap{{Name: oneTap, After: spines[:1]}}
	for _, name := range spines[1:] {
		taps = append(taps, scenario.Tap{Name: "mid-" + name, After: []string{name}})
	}
	return append(taps, sides...)
}

// scoreEvidence emits a scenario once and replays it with each kind of evidence.
func scoreEvidence(t *testing.T, s scenario.Scenario) map[string]*candidateScore {
	t.Helper()
	dir := t.TempDir()
	report, err := simulation.Run(t.Context(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	cells := truthCells(t, emitted{dir}, "tag")
	emitted, err := fabric.Load(report.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	flows := truthFlows(t, dir)
	out := map[string]*candidateScore{}
	for _, e := range pathEvidences {
		if e.taps == "" && (e.full && tunneled[s.Name] || e.tunnels && !tunneled[s.Name]) {
			continue
		}
		told := *emitted
		told.ECMP = nil
		e.tell(&told, emitted, flows)
		n, err := newNetwork("", &told, e.name)
		if err != nil {
			t.Fatal(err)
		}
		var captures []string
		for _, path := range report.Captures {
			name := strings.TrimSuffix(filepath.Base(path), ".pcapng")
			if read, _ := filepath.Match(e.taps, name); read || !strings.HasPrefix(name, "mid-") {
				captures = append(captures, path)
			}
		}
		out[e.name] = scoreReplay(t, n, &s, captures, cells)
	}
	return out
}

func truthFlows(t *testing.T, dir string) (flows []truth.Flow) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, truth.File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := truth.Read(f, truth.Visitor{Flow: func(w truth.Flow) error { flows = append(flows, w); return nil }}); err != nil {
		t.Fatal(err)
	}
	return flows
}

// scoreReplay replays captures under a network, and compares the candidates with the truth.
func scoreReplay(t *testing.T, n *network, s *scenario.Scenario, captures []string, cells map[string]truth.Cell) *candidateScore {
	t.Helper()
	got := &modes{rows: map[modeKey]*modeRow{}}
	r, err := replay.New(replay.Config{
		Files: captures, Sink: got, Workers: 1, Logger: slog.New(slog.DiscardHandler),
		Tap:      func(name string) window.Tap { return n.Tap(name, config.TapDefaults{Place: "receiver"}) },
		Settings: window.Settings{Decode: n.Decode, Resolver: n.Fabric, Epoch: n.Epoch, Resolutions: []time.Duration{s.Window}, MaxSeries: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !r.Result().Conserved() {
		t.Errorf("observations are not conserved: %+v", r.Result().Counts)
	}
	score := new(candidateScore)
	stored, ports := got.windows(n.Fabric)
	for key, want := range cells {
		if want.Heavy == 0 {
			continue
		}
		have, ok := stored[key]
		if !ok || have.Heavy != want.Heavy {
			t.Errorf("%s: %d heavy observations are stored, the truth has %d", key, have.Heavy, want.Heavy)
			continue
		}
		tied := want.Ties
		if len(tied) == 0 {
			tied = []string{want.Bottleneck}
		}
		score.add(ports[key], tied)
	}
	return score
}
