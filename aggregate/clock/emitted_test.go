package clock_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/clock"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// packet is the part of a packet that no hop changes.
type packet [36]byte

// identity finds a packet of IPv4 and TCP behind Ethernet and a wide tag, if there is one:
// addresses, identification, length, ports and numbers.
func identity(frame []byte) (id packet, src byte, ok bool) {
	const wide, ipv4, tcp = 0x88b6, 0x0800, 6
	at := 12
	if len(frame) > 20 && binary.BigEndian.Uint16(frame[at:]) == wide {
		at += 8
	}
	if len(frame) < at+2+20+16 || binary.BigEndian.Uint16(frame[at:]) != ipv4 || frame[at+2+9] != tcp {
		return id, 0, false
	}
	ip := frame[at+2:]
	copy(id[:], ip[2:6])
	copy(id[4:], ip[12:36])
	return id, ip[14], true
}

// TestEmitted: two taps of a simulated fabric, with clocks 1 ms and 20 ppm apart and timestamp
// errors of up to 5 us, have 10,000 packets in common. These give the offset within 2 us and the
// drift within 1 ppm.
func TestEmitted(t *testing.T) {
	const jitter, offset, drift, wanted = 5 * time.Microsecond, time.Millisecond, 20_000, 10_000
	s, err := scenario.Named("alltoall")
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithSize(2, 2, 4)
	s.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Duration, s.CaptureUntagged, s.AckEvery = 2*time.Second, true, 2
	for rack, hosts := range []string{"host1-*", "host2-*"} {
		tap := scenario.Tap{Name: hosts[:5], Before: []string{hosts}, After: []string{hosts}, Jitter: jitter}
		if rack == 1 {
			tap.Offset, tap.Drift = offset, drift
		}
		s.Taps = append(s.Taps, tap)
	}
	out, in := io.Pipe()
	var report simulation.Report
	go func() {
		var err error
		report, err = simulation.Write(t.Context(), s, in, nil)
		in.CloseWithError(err)
	}()
	forwards, backwards := match(t, out)
	if min(len(forwards), len(backwards)) < wanted/2 {
		t.Fatalf("%d and %d packets of %d matched", len(forwards), len(backwards), report.Captured)
	}
	spread := func(list []clock.Pair) (kept []clock.Pair) {
		for i := range wanted / 2 {
			kept = append(kept, list[i*len(list)/(wanted/2)])
		}
		return kept
	}
	r, err := clock.Between(spread(forwards), spread(backwards), clock.Options{Error: 2 * jitter})
	if err != nil {
		t.Fatal(err)
	}
	offsetAt := func(a int64) float64 { return float64(offset) + drift*float64(a-s.Start.UnixNano())/1e9 }
	off, fast := r.Offset-offsetAt(r.At), r.Drift-drift
	low, high := r.Bound(r.At)
	t.Logf("of %d packets %d and %d: off by %.0f ns (bound %.0f to %.0f) and %.0f ppb (sure of %.0f, bound %.0f to %.0f), round trip %.0f ns",
		wanted, len(forwards), len(backwards), off, low-offsetAt(r.At), high-offsetAt(r.At), fast, r.DriftError, r.DriftLow-drift, r.DriftHigh-drift, r.RoundTrip)
	if math.Abs(off) > 2000 || math.Abs(fast) > 1000 {
		t.Errorf("off by %.0f ns and %.0f ppb", off, fast)
	}
	if v := offsetAt(r.At); v < low || v > high || drift < r.DriftLow || drift > r.DriftHigh {
		t.Errorf("the truth is not within the bound")
	}
}

// match reads a capture of two taps, and finds the packets that went from one rack to the other and
// that both have seen once, in the order of the first tap.
func match(t *testing.T, from io.Reader) (forwards, backwards []clock.Pair) {
	t.Helper()
	r, err := capture.NewReader(from, "emitted", capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type seen struct {
		at    [2]int64
		times [2]int
		src   byte
		kind  uint32
	}
	met := make(map[packet]*seen)
	var b capture.Batch
	for {
		err := r.ReadBatch(&b)
		for _, f := range b.Frames[:b.N] {
			id, src, ok := identity(f.Data)
			if !ok {
				continue
			}
			p := met[id]
			if p == nil {
				p = &seen{src: src}
				met[id] = p
			}
			p.at[f.Interface] = f.TimeNS
			p.times[f.Interface]++
			p.kind = f.WireLen
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range met {
		if p.times != [2]int{1, 1} {
			continue
		}
		if pair := (clock.Pair{A: p.at[0], B: p.at[1], Kind: p.kind}); p.src == 1 {
			forwards = append(forwards, pair)
		} else {
			backwards = append(backwards, pair)
		}
	}
	for _, list := range [][]clock.Pair{forwards, backwards} {
		slices.SortFunc(list, func(a, b clock.Pair) int { return cmp.Compare(a.A, b.A) })
	}
	return forwards, backwards
}
