package simulation

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// load keeps a meter's link busy for a share of the time between from and to, in packets of a
// microsecond.
func load(m *meter, from, to time.Duration, ppm int64) {
	const packet = 1_000_000
	gap := int64(packet) * 1_000_000 / ppm
	for at := exact.Picoseconds(from); at+packet <= exact.Picoseconds(to); at += gap {
		m.advance(at)
		m.add(at, at+packet)
	}
	m.advance(exact.Picoseconds(to))
}

// All estimators must agree on a steady load, after the time that each needs to adapt to a change
// (section 5.1.1).
func TestEstimatorsAgreeOnSteadyLoads(t *testing.T) {
	for _, ppm := range []int64{20_000, 250_000, 500_000, 990_000, 1_000_000} {
		for _, e := range []scenario.Estimator{scenario.Raw, scenario.EWMA, scenario.DRE} {
			m := newMeter(e, exact.Picoseconds(time.Millisecond), 4)
			load(&m, 0, 20*time.Millisecond, ppm)
			abw, ratio := m.available(uint64(scenario.Gbps))
			want := 1_000_000 - ppm
			// DRE has just decayed by a sixteenth.
			tolerance := int64(12_000)
			if e == scenario.DRE {
				tolerance = 1_000_000 / 16
			}
			if diff := int64(ratio) - want; diff < -tolerance || diff > tolerance {
				t.Errorf("%s at load %d ppm: %d ppm available, want %d", e, ppm, ratio, want)
			}
			if diff := int64(abw) - int64(ratio); diff < -1 || diff > 1 {
				t.Errorf("%s: %d kbit/s of 1 Gbit/s, but %d ppm", e, abw, ratio)
			}
		}
	}
}

// Known values: DRE follows a step as 1 - (1-1/16)^n with its decrements, EWMA with its samples,
// and raw shows it when the interval is over.
func TestEstimatorsFollowSteps(t *testing.T) {
	const interval = time.Millisecond
	raw := newMeter(scenario.Raw, exact.Picoseconds(interval), 4)
	load(&raw, 0, interval-time.Microsecond, 1_000_000)
	if _, ratio := raw.available(uint64(scenario.Gbps)); ratio != 1_000_000 {
		t.Errorf("raw: %d ppm before the interval is over", ratio)
	}
	load(&raw, interval-time.Microsecond, interval, 1_000_000)
	if _, ratio := raw.available(uint64(scenario.Gbps)); ratio != 0 {
		t.Errorf("raw: %d ppm of a full interval", ratio)
	}

	dre := newMeter(scenario.DRE, exact.Picoseconds(interval), 4)
	// One interval has 16 decrements; each period adds 62.5 us, then a sixteenth is subtracted.
	load(&dre, 0, interval, 1_000_000)
	// busy = sum of (15/16)^k for k = 1 to 16, times 62.5 us: 603.6 us.
	if _, ratio := dre.available(uint64(scenario.Gbps)); ratio < 393_000 || ratio > 400_000 {
		t.Errorf("dre: %d ppm after one interval of full load, want about 396000", ratio)
	}
	dre.advance(exact.Picoseconds(2 * interval))
	if _, ratio := dre.available(uint64(scenario.Gbps)); ratio < 784_000 || ratio > 789_000 {
		t.Errorf("dre: %d ppm after an idle interval, want about 785000", ratio)
	}
	dre.advance(exact.Picoseconds(time.Hour))
	if _, ratio := dre.available(uint64(scenario.Gbps)); ratio != 1_000_000 {
		t.Errorf("dre: %d ppm after an idle hour", ratio)
	}

	ewma := newMeter(scenario.EWMA, exact.Picoseconds(interval), 4)
	load(&ewma, 0, interval, 1_000_000)
	// (15/16)^16 of the idle share remains after 16 samples.
	if _, ratio := ewma.available(uint64(scenario.Gbps)); ratio < 355_000 || ratio > 357_000 {
		t.Errorf("ewma: %d ppm after one interval of full load, want about 356074", ratio)
	}
	ewma.advance(exact.Picoseconds(2 * interval))
	if _, ratio := ewma.available(uint64(scenario.Gbps)); ratio < 769_000 || ratio > 772_000 {
		t.Errorf("ewma: %d ppm after an idle interval, want about 770700", ratio)
	}
	ewma.advance(exact.Picoseconds(time.Hour))
	if _, ratio := ewma.available(uint64(scenario.Gbps)); ratio != 1_000_000 {
		t.Errorf("ewma: %d ppm after an idle hour", ratio)
	}
	if ewma.coded || dre.coded {
		t.Error("a smooth estimate is kept over steps")
	}
}

// Estimators average over time, so they agree on bursts regardless of packet size: 9 us of full
// load every 10 ms leave 99.91 % free.
func TestEstimatorsAgreeOnBursts(t *testing.T) {
	const interval, period, burst = 10 * time.Millisecond, 10 * time.Millisecond, 9 * time.Microsecond
	for _, e := range []scenario.Estimator{scenario.Raw, scenario.EWMA, scenario.DRE} {
		for _, packet := range []time.Duration{100 * time.Nanosecond, time.Microsecond, burst} {
			m := newMeter(e, exact.Picoseconds(interval), 4)
			var sum, lowest, samples uint64 = 0, 1e6, 0
			for at := time.Duration(0); at < 100*period; at += 100 * time.Microsecond {
				for in := time.Duration(0); at%period == 0 && in < burst; in += packet {
					m.advance(exact.Picoseconds(at + in))
					m.add(exact.Picoseconds(at+in), exact.Picoseconds(at+in+packet))
				}
				m.advance(exact.Picoseconds(at + 50*time.Microsecond))
				if _, ratio := m.available(uint64(scenario.Gbps)); at >= 20*period {
					sum, lowest, samples = sum+ratio, min(lowest, ratio), samples+1
				}
			}
			if mean := sum / samples; mean < 999_000 || mean > 999_200 || lowest < 998_000 {
				t.Errorf("%s, packets of %s: %d ppm free on average and at least %d, want about 999100", e, packet, mean, lowest)
			}
		}
	}
}

// Runs with other estimators and intervals from 1 us to 1 s must obey the same rules.
func TestRunsWithEveryEstimator(t *testing.T) {
	for _, e := range []scenario.Estimator{scenario.Raw, scenario.EWMA, scenario.DRE} {
		for _, interval := range []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Second} {
			s := tiny()
			s.Duration, s.Window, s.ABW, s.ABWInterval = 500*time.Millisecond, 250*time.Millisecond, e, interval
			r, _ := run(t, s)
			observed, heavy := uint64(0), uint64(0)
			for _, c := range readTruth(t, r.Truth).cells {
				if c.Signal == "min_abw_ratio" {
					observed, heavy = observed+c.Observations, heavy+c.Heavy
				}
			}
			if observed == 0 || (heavy == 0) != (interval == time.Second) {
				t.Errorf("%s over %s: %d of %d observations are heavy", e, interval, heavy, observed)
			}
		}
	}
}

// Devices may use other intervals than their neighbors (section 5.3.2): a short interval shows
// bursts that a long one averages away.
func TestDevicesMeterOnTheirOwn(t *testing.T) {
	lowest := func(devices ...scenario.Behavior) uint64 {
		s := tiny()
		s.Devices = devices
		s.Workloads = []scenario.Workload{{
			Kind: scenario.Flows, Rate: 30 * scenario.Mbps, Period: 50 * time.Millisecond, Burst: 2 * time.Millisecond, TagEvery: 1,
			Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 1}, To: scenario.Host{Rack: 3, Host: 1}}},
		}}
		m := prepare(t, s)
		low := uint64(1e6)
		watch(t, m, func(h hop) {
			sig := &m.signals[h.before.tag.Signal]
			if sig.Kind == csig.MinABWRatio && m.topology.Ports[h.number].Stage == "spine" && h.after.tag.Set {
				low = min(low, sig.Table.Value(h.after.tag.Code))
			}
		})
		return low
	}
	long := lowest()
	short := lowest(scenario.Behavior{Match: "*", Kind: scenario.ABWEstimator, Every: time.Millisecond})
	if long < 900_000 || short > 800_000 {
		t.Errorf("lowest share %d ppm over 10 ms, %d ppm over 1 ms", long, short)
	}
	if smooth := lowest(scenario.Behavior{Match: "*", Kind: scenario.ABWEstimator, ABW: scenario.EWMA}); smooth == long {
		t.Error("another estimator gives the same")
	}
}
