package replay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// faultsEnv requests longer runs of all scenarios and names the file for the table; make accuracy
// sets it.
const faultsEnv = "CSIGSCOPE_TEST_FAULTS"

// compactTags is the suffix of scenario names with compact tags.
const compactTags = " compact"

// faulty is a fabric with a fault, captured at all racks, at all senders, and around spine1.
type faulty struct {
	replay.ExamineConfig
	places   map[string]finding.Place // by tap
	fabric   *fabric.Fabric
	racks    []string
	senders  string
	in       string
	out      []replay.PortCapture
	differ   uint64 // observations at receivers that differ from a faithful fabric's
	observed uint64
}

func newFaulty(t *testing.T, name string, f *injected, duration time.Duration) *faulty {
	t.Helper()
	base, compact := strings.CutSuffix(name, compactTags)
	s := emittertest.Named(t, base)
	if compact {
		s = s.WithLayout(csig.Layout{Format: csig.Compact, Profile: csig.UEC050})
		s.Locator = "port"
	}
	s.Duration, s.Faults, s.Devices, s.CaptureUntagged = duration, nil, nil, true
	if f.change != nil {
		f.change(&s)
	}
	s.Taps = []scenario.Tap{{Racks: true}, {Name: "senders", After: []string{"host*"}}, {Name: "into-spine1", Before: []string{"spine1"}}}
	var ports []string
	for i := range s.Leaves {
		ports = append(ports, fmt.Sprintf("down%d", i+1))
		s.Taps = append(s.Taps, scenario.Tap{Name: "spine1-" + ports[i], Ports: []string{"spine1:" + ports[i]}})
	}
	dir := t.TempDir()
	report := emittertest.Run(t, s, dir)
	network, domain := emittertest.Network(t, report.Fabric)
	out := &faulty{
		fabric: network, places: map[string]finding.Place{"senders": finding.Sender},
		in: filepath.Join(dir, "into-spine1.pcapng"), senders: filepath.Join(dir, "senders.pcapng"),
	}
	for _, p := range ports {
		out.out = append(out.out, replay.PortCapture{Port: "spine1:" + p, Path: filepath.Join(dir, "spine1-"+p+".pcapng")})
	}
	out.Decode, out.Finding = decode.Config{Domain: domain}, finding.Config{Domain: domain, Locator: network}
	var err error
	if out.racks, err = filepath.Glob(filepath.Join(dir, "rack*.pcapng")); err != nil {
		t.Fatal(err)
	}
	if f.config != nil {
		f.config(out)
	}
	out.truth(t, report.Truth)
	return out
}

// truth counts the observations that differ from a faithful fabric's.
func (f *faulty) truth(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = truth.Read(file, truth.Visitor{Cell: func(c truth.Cell) error {
		f.observed += c.Observations
		if c.Agree != nil {
			f.differ += c.Observations - *c.Agree
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// frozen counts the tags into spine1 with the D bit. Packets trimmed on the way to another spine,
// or without a tag, do not show the fault.
func (f *faulty) frozen(t *testing.T) (n int) {
	t.Helper()
	f.eachTag(t, []string{f.in}, func(o *decode.Observation) {
		if o.Tag.D {
			n++
		}
	})
	return n
}

// eachTag passes all tags in captures to show, orphans too.
func (f *faulty) eachTag(t *testing.T, files []string, show func(*decode.Observation)) {
	t.Helper()
	d, err := decode.New(f.Decode)
	if err != nil {
		t.Fatal(err)
	}
	m := capture.MergeFiles(files, capture.Options{})
	defer m.Close()
	var result decode.Result
	for {
		frame, _, err := m.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		in := window.FrameOf(frame)
		d.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &in, &result)
		for i := range result.Obs[:result.N] {
			window.SetCaptureFields(&result.Obs[i], frame)
			if o := &result.Obs[i]; o.Kind == decode.Tag {
				show(o)
			}
		}
	}
}

// report feeds a detector with all receivers' captures, and the senders' if senders is set, in time
// order, and queries it at intervals. It returns the final findings, and the number of packets
// after which the wanted kind named one of the places.
func (f *faulty) report(t *testing.T, senders bool, want string, at []string) (list []finding.Finding, after int) {
	t.Helper()
	d, err := finding.New(f.Finding)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := decode.New(f.Decode)
	if err != nil {
		t.Fatal(err)
	}
	files := f.racks
	if senders {
		files = append(slices.Clone(files), f.senders)
	}
	var taps []finding.Tap
	var windows []*window.Shard
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".pcapng")
		tap := finding.Tap{Name: name, File: path, Place: f.places[name]}
		taps, windows = append(taps, tap), append(windows, f.windows(t, d.Windows(&tap), tap.Place))
	}
	m := capture.MergeFiles(files, capture.Options{})
	defer m.Close()
	var result decode.Result
	var bare decode.Observation
	const first = 500
	for n, next := 0, first; ; n++ {
		frame, reader, err := m.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		in := window.FrameOf(frame)
		decoder.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &in, &result)
		if data, ok := decoder.DecodeUntagged(decode.Ethernet, frame.Data, &bare); ok && (result.N == 0 || result.Obs[0].Kind == decode.Reflection) {
			window.SetCaptureFields(&bare, frame)
			d.ObserveUntagged(&taps[reader], &bare, data)
		}
		for k := range result.N {
			window.SetCaptureFields(&result.Obs[k], frame)
			d.Observe(&taps[reader], &result.Obs[k])
		}
		if err := windows[reader].Add(t.Context(), result.Obs[:result.N]); err != nil {
			t.Fatal(err)
		}
		if after == 0 && want != "" && n >= next {
			if next += max(next/8, first); found(d.Findings(), want, at) {
				after = n
			}
		}
	}
	for _, w := range windows {
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return d.Findings(), after
}

// windows returns the 1 s windows of a tap.
func (f *faulty) windows(t *testing.T, watch window.Watch, at finding.Place) *window.Shard {
	t.Helper()
	place := map[finding.Place]string{finding.Sender: "sender", finding.Outside: "outside"}[at]
	s, err := window.NewShard(window.Config{
		Domain: f.Decode.Domain, Resolver: f.fabric, Resolutions: []time.Duration{time.Second}, Flows: window.FlowLimits{Top: 100},
		UDPRepeat: window.DefaultUDPRepeat, Tap: window.TapAt(place, 1), Watch: watch,
	}, aggregate.Sinks{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// names reports whether a finding names one of the places.
func names(f *finding.Finding, at []string) bool {
	for _, place := range at {
		is := func(name string) bool {
			return name == place || strings.HasPrefix(name, place+":") || strings.HasPrefix(name, place+" ")
		}
		if is(f.Device) || f.Device == "" && (is(f.Subject) || slices.ContainsFunc(f.Candidates, is)) {
			return true
		}
	}
	return false
}

// found reports whether a finding of the kind names one of the places, or, if there are no places,
// nothing.
func found(list []finding.Finding, kind string, at []string) bool {
	return slices.ContainsFunc(list, func(f finding.Finding) bool {
		return f.Kind.String() == kind && (names(&f, at) || at == nil && f.Device == "" && len(f.Candidates) == 0)
	})
}

// anywhere reports whether a finding has one of the places among its candidates.
func anywhere(list []finding.Finding, at []string) bool {
	return slices.ContainsFunc(list, func(f finding.Finding) bool { return len(f.Candidates) > 0 && names(&f, at) })
}

// judge returns conform's verdict on spine1, and the first packet that shows the fault.
func (f *faulty) judge(t *testing.T, want string) (rules []string, after int) {
	t.Helper()
	c, err := replay.Conform(context.Background(), replay.ConformConfig{
		Judge: conform.Config{Decode: f.Decode}, Before: []string{f.in}, After: f.out,
		Fabric: f.fabric,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Findings {
		if found := &c.Findings[i]; found.Severity != conform.Note {
			rules = append(rules, found.Rule)
			if found.Rule == want {
				after = int(found.Examples[0].After)
			}
		}
	}
	return rules, after
}

// score counts outcomes.
type score struct{ hits, placed, misses, hidden, right, vague, wrong int }

// add scores the findings of one run: right ones name the fault, wrong ones anything else.
func (s *score) add(list []finding.Finding, f *injected) (outcome string) {
	var texts []string
	for i := range list {
		one := &list[i]
		text := one.Kind.String()
		switch {
		case one.Device != "":
			text += "@" + one.Device
		case len(one.Candidates) > 0:
			text += fmt.Sprintf("@%d places", len(one.Candidates))
		case !strings.HasPrefix(one.Subject, "unknown lm"):
			text += "@" + one.Subject
		}
		switch meant := text[:len(one.Kind.String())]; {
		case meant != f.reported && meant != f.watched && meant != f.knownBySenders && !slices.Contains(f.also, meant):
			text += "!" // false alarm
			s.wrong++
		case names(one, f.at):
			s.right++
		case one.Device == "" && len(one.Candidates) == 0:
			text += "?" // names nothing
			s.vague++
		default:
			text += "!" // names the wrong place
			s.wrong++
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return cmp.Or(strings.Join(slices.Compact(texts), " "), "-")
}

// outcome scores a run of report by whether it finds the fault and its place. why explains an
// incomplete result; missed means that nothing reveals the fault.
func (s *score) outcome(t *testing.T, e *faulty, f *injected, list []finding.Finding, want string) (why string, missed bool) {
	t.Helper()
	switch {
	case want == "" || e.hides(f) && !found(list, want, f.at):
		s.hidden += min(len(want), 1)
	case found(list, want, f.at):
		s.hits++
		s.placed++
	case found(list, want, nil):
		s.hits++
		return "too few values name what the flows pass", false
	case anywhere(list, f.at):
		s.misses++
		return "another fault of one of these places explains it as well", false
	default:
		if f.hidden != nil {
			if why = f.hidden(e, t); why != "" {
				s.hidden++
				return why, false
			}
		}
		s.misses++
		return cmp.Or(f.missed, fmt.Sprintf("of %d values, %d are of it", e.observed, e.differ)), true
	}
	return "", false
}

// hides reports whether no receiver saw the fault's values.
func (f *faulty) hides(i *injected) bool { return i.hideable && f.differ == 0 }

// faultRow injects a fault into a scenario, scores the findings, and returns a row of the table.
func faultRow(t *testing.T, name string, f *injected, duration time.Duration, reported, judged *score) []string {
	t.Helper()
	if f.fine && strings.HasSuffix(name, compactTags) {
		coarse := *f
		coarse.reported, coarse.blind = "", "a saturated port may say one of 32 codes for long"
		f = &coarse
	}
	e := newFaulty(t, name, f, max(duration, f.lasts))
	defer os.RemoveAll(filepath.Dir(e.senders)) // all rows together are gigabytes
	row, reason := []string{name, f.name}, f.blind
	if e.hides(f) {
		reason = fmt.Sprintf("none of %d values at receivers is of it", e.observed)
	}
	for _, senders := range []bool{false, true} {
		want := f.reported
		if senders {
			want = cmp.Or(f.watched, f.reported, f.knownBySenders)
		}
		list, after := e.report(t, senders, want, f.at)
		text := reported.add(list, f)
		why, missed := reported.outcome(t, e, f, list, want)
		row, reason = append(row, text, packets(after)), cmp.Or(reason, why)
		if missed && name == "ring" {
			t.Errorf("%s, %s: %s at %v is not found, but %s", name, f.name, want, f.at, text)
		}
		if f.honest && len(list) > 0 && want == "" {
			t.Errorf("%s, %s: %s is found", name, f.name, text)
		}
	}
	rules, after := []string(nil), 0
	if !f.elsewhere {
		rules, after = e.judge(t, f.judged)
		invisible := f.judged == "trim-frozen" && name != "ring" && e.frozen(t) == 0
		if invisible {
			reason += "; no tag with D goes into spine1"
		}
		judged.rules(rules, f, invisible)
		if f.judged != "" && !invisible && !slices.Contains(rules, f.judged) {
			t.Errorf("%s, %s: conform does not find %s, but %v", name, f.name, f.judged, rules)
		}
	}
	return append(row, cmp.Or(strings.Join(rules, " "), "-"), packets(after), reason)
}

// TestFaults injects each fault and each look-alike into several scenarios and scores the findings
// and the places that they name.
func TestFaults(t *testing.T) {
	scenarios, duration := []string{"ring", "alltoall" + compactTags}, 300*time.Millisecond
	file := os.Getenv(faultsEnv)
	if file != "" {
		scenarios, duration = []string{"ring", "tree", "alltoall", "storage", "incast", "alltoall" + compactTags, "ring" + compactTags}, time.Second
	} else if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tfault\treceivers show\tafter\tsenders too\tafter\tconform finds\tafter\tnot found, as")
	var reported, judged score
	for _, name := range scenarios {
		for i := range injections {
			row := faultRow(t, name, &injections[i], duration, &reported, &judged)
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&table, "\nreport: recall %d of %d, %d with their place, %d more cannot be seen; precision: of %d findings, %d name the fault and its place, or a few of which it is one, %d the fault alone\n",
		reported.hits, reported.hits+reported.misses, reported.placed, reported.hidden, reported.right+reported.vague+reported.wrong, reported.right, reported.vague)
	fmt.Fprintf(&table, "conform: recall %d of %d, %d more cannot be seen; precision %d of %d runs in which a rule is broken\n",
		judged.hits, judged.hits+judged.misses, judged.hidden, judged.right, judged.right+judged.wrong)
	t.Log("\n" + table.String())
	if 10*reported.misses > reported.hits || reported.wrong > 0 || judged.wrong > 0 {
		t.Errorf("too much is missed or wrong: %+v, %+v", reported, judged)
	}
	if file != "" {
		if err := os.WriteFile(file, []byte(table.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// rules scores the broken rules that conform reports. An invisible fault is not a miss.
func (s *score) rules(list []string, f *injected, invisible bool) {
	switch {
	case f.judged != "" && slices.Contains(list, f.judged):
		s.hits++
	case invisible:
		s.hidden++
	case f.judged != "":
		s.misses++
	}
	switch {
	case len(list) > 0 && f.honest:
		s.wrong++
	case len(list) > 0:
		s.right++
	}
}

func packets(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
