package replay_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// climb is a three-tier fabric with taps before and behind each switch on a path from a rack up to
// the core and down. Their clocks differ. Tap into-X covers all links into X, X-port the link
// behind one port.
type climb struct {
	scenario scenario.Scenario
	fabric   *fabric.Fabric
	domain   *csig.Domain
	devices  []string
	ports    map[string][]string // by device
}

func newClimb(t *testing.T, layout csig.Layout, exact bool) *climb {
	t.Helper()
	s := emittertest.Named(t, "three-tier")
	c := &climb{scenario: s.WithLayout(layout), ports: map[string][]string{}}
	spec, err := scenario.Fabric(c.scenario)
	if err != nil {
		t.Fatal(err)
	}
	if c.domain, err = csig.DefaultSpec().Overlay(spec.CSIG).Compile(); err != nil {
		t.Fatal(err)
	}
	if c.fabric, err = fabric.New(spec, c.domain); err != nil {
		t.Fatal(err)
	}
	at := spec.Devices[0] // a switch of the first stage
	for at.Name != "" {
		c.devices = append(c.devices, at.Name)
		next := ""
		for _, p := range at.Ports {
			c.ports[at.Name] = append(c.ports[at.Name], p.Name)
			if p.Orientation == "up" && next == "" {
				next = p.Peer
			}
		}
		i := slices.IndexFunc(spec.Devices, func(d fabric.DeviceSpec) bool { return d.Name == next })
		if i < 0 {
			break
		}
		at = spec.Devices[i]
	}
	c.taps(exact)
	return c
}

// taps adds taps around the devices, with different clocks unless exact is set.
func (c *climb) taps(exact bool) {
	c.scenario.Taps, c.scenario.CaptureUntagged, c.scenario.SnapLen = nil, true, 96
	for _, d := range c.devices {
		c.scenario.Taps = append(c.scenario.Taps, scenario.Tap{Name: "into-" + d, Before: []string{d}})
		for _, p := range c.ports[d] {
			c.scenario.Taps = append(c.scenario.Taps, scenario.Tap{Name: d + "-" + p, Ports: []string{d + ":" + p}})
		}
	}
	for i := range c.scenario.Taps {
		if !exact {
			tap := &c.scenario.Taps[i]
			tap.Offset, tap.Drift, tap.Jitter = time.Duration(i)*137*time.Microsecond, int64(i%7-3)*9_000, traceJitter
		}
	}
}

const traceJitter = 2 * time.Microsecond

func (c *climb) emit(t *testing.T, duration time.Duration) string {
	t.Helper()
	c.scenario.Duration = duration
	dir := t.TempDir()
	if _, err := simulation.Run(t.Context(), c.scenario, dir, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// between traces packets from one tap to another. It returns nil if too few packets passed both.
func (c *climb) between(t *testing.T, dir, from, to string, off time.Duration) *replay.Hop {
	t.Helper()
	traced, err := replay.Trace(t.Context(), replay.TraceConfig{
		Files:  []string{filepath.Join(dir, from+".pcapng"), filepath.Join(dir, to+".pcapng")},
		Decode: decode.Config{Domain: c.domain}, Error: off,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(traced.Hops) == 0 || traced.Hops[0].Forward.Packets < 100 {
		return nil
	}
	return &traced.Hops[0]
}

// attributions counts where the trace located changes of tags, compared with the true egress port.
type attributions struct{ exact, contains, wrong int }

func (a *attributions) judge(f *fabric.Fabric, h *replay.Hop, allowed []string) {
	for _, c := range h.Forward.Changes {
		id, _ := f.Locate(c.Layout, c.T, c.LM, c.Src, c.Dst)
		at, _ := f.Location(id)
		switch {
		case len(at.Candidates) == 1 && slices.Contains(allowed, at.Candidates[0]):
			a.exact += c.Count
		case slices.ContainsFunc(at.Candidates, func(p string) bool { return slices.Contains(allowed, p) }):
			a.contains += c.Count
		default:
			a.wrong += c.Count
		}
	}
}

func (a *attributions) String() string {
	share := func(n int) float64 { return 100 * float64(n) / float64(max(a.exact+a.contains+a.wrong, 1)) }
	return fmt.Sprintf("%d values: %.1f %% at the true port alone, %.1f %% at several with it, %.1f %% at another",
		a.exact+a.contains+a.wrong, share(a.exact), share(a.contains), share(a.wrong))
}

// TestTraceAttribution checks that the places where tags change on the way up to the core are
// located correctly, across one hop and across two, from captures with different clocks.
func TestTraceAttribution(t *testing.T) {
	t.Parallel()
	duration, file := 200*time.Millisecond, os.Getenv(tracedEnv)
	if file != "" {
		duration = 2 * time.Second
	} else if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	layouts := []csig.Layout{{Format: csig.Wide, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.IETF01}}
	if file == "" {
		layouts = layouts[:2]
	}
	var text strings.Builder
	for _, layout := range layouts {
		c := newClimb(t, layout, false)
		dir := c.emit(t, duration)
		var hops, far attributions
		for i, d := range c.devices {
			for _, p := range c.ports[d] {
				if h := c.between(t, dir, "into-"+d, d+"-"+p, traceJitter); h != nil {
					hops.judge(c.fabric, h, []string{d + ":" + p})
				}
				if i == 0 {
					continue
				}
				if h := c.between(t, dir, "into-"+c.devices[i-1], d+"-"+p, traceJitter); h != nil {
					allowed := []string{d + ":" + p}
					for _, before := range c.ports[c.devices[i-1]] {
						allowed = append(allowed, c.devices[i-1]+":"+before)
					}
					far.judge(c.fabric, h, allowed)
				}
			}
		}
		fmt.Fprintf(&text, "trace, %s: over one switch %s\n", layout, &hops)
		fmt.Fprintf(&text, "trace, %s: over two switches %s\n", layout, &far)
		if hops.wrong+far.wrong > 0 || hops.exact+hops.contains == 0 || far.exact+far.contains == 0 {
			t.Errorf("%s: %s; %s", layout, &hops, &far)
		}
		if layout.Format == csig.Wide && hops.contains+far.contains > 0 {
			t.Errorf("%s: %s; %s", layout, &hops, &far)
		}
	}
	t.Log("\n" + text.String())
	appendTo(t, file, text.String())
}

// TestTraceDelays checks that captures with different clocks give a hop's delay within the clocks'
// bound, compared with captures with exact clocks.
func TestTraceDelays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	layout := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	off, exact := newClimb(t, layout, false), newClimb(t, layout, true)
	const duration = 400 * time.Millisecond
	offDir, exactDir := off.emit(t, duration), exact.emit(t, duration)
	told := 0
	for i, d := range off.devices[1:] {
		from, to := "into-"+off.devices[i], "into-"+d
		h := off.between(t, offDir, from, to, traceJitter)
		truth := exact.between(t, exactDir, from, to, 0)
		if h == nil || truth == nil || h.Clock == nil || h.Clock.OneWay || truth.Clock == nil || truth.Clock.OneWay {
			continue
		}
		told++
		low, high := h.Clock.Bound(h.Clock.At)
		// The truth has one clock; this adds the trace's own estimate of its offset, which is 0 in
		// truth.
		want := truth.Forward.Median + time.Duration(truth.Clock.Offset)
		if miss := h.Forward.Median - want; miss.Abs() > time.Duration(high-low)+2*traceJitter || h.Forward.Packets != truth.Forward.Packets {
			t.Errorf("%s to %s: %d packets in %s, want %d in %s within %s", from, to, h.Forward.Packets, h.Forward.Median, truth.Forward.Packets, want, time.Duration(high-low))
		} else {
			t.Logf("%s to %s: %s, truth %s, bound %s", from, to, h.Forward.Median, want, time.Duration(high-low))
		}
	}
	if told == 0 {
		t.Error("no hop is named")
	}
}
