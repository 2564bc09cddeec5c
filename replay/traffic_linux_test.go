package replay_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
)

// traffic is the view of a receiver with many peers: each burst belongs to a random flow, so
// neither caches nor branch predictors can anticipate the next one. The simulator is kinder than
// that.
type traffic struct {
	flows  int
	groups int // sources, and as many destinations: /24 and /64 prefixes
	burst  int // consecutive packets of a flow
	wide   bool
}

// hotPath lists the three traffic points for comparing changes of the per-packet path.
var hotPath = map[string]traffic{
	"compact-random-200":   {flows: 200, groups: 64, burst: 1},
	"compact-random-20000": {flows: 20_000, groups: 64, burst: 1},
	"wide-bursts-2000":     {flows: 2000, groups: 64, burst: 32, wide: true},
}

const (
	trafficLocators = 4
	trafficRate     = 1_000_000 // packets per second of capture time
)

// BenchmarkHotPath replays traffic without a fabric file into 1 s and 1 min windows, on one core,
// with flows. Compare two commits with .ci/bench-compare.
func BenchmarkHotPath(b *testing.B) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(hotPath)) {
		t := hotPath[name]
		path := t.write(b, 1_000_000)
		b.Run(name, func(b *testing.B) {
			measure(b, 0, func() (uint64, error) {
				return replayTraffic(b, path, fabric.None(domain), domain, 1, 100, table.New(totals), time.Second, time.Minute)
			})
		})
	}
}

// totals bounds the rows of a measured replay.
var totals = table.Bounds{Resolution: time.Minute, Rows: 1 << 20}

func replayTraffic(tb testing.TB, path string, resolver aggregate.Resolver, domain *csig.Domain, workers, flows int, sink aggregate.Sink, resolutions ...time.Duration) (uint64, error) {
	r, err := replay.New(replay.Config{
		Files: []string{path}, Sink: sink, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		Tap: func(string) window.Tap { return window.Tap{Tags: true, Reflections: true, Weight: 1} },
		Settings: window.Settings{
			Decode: decode.Config{Domain: domain}, Resolver: resolver,
			Resolutions: resolutions, FineHeavyOnly: true, Flows: window.FlowLimits{Top: flows},
		},
	})
	if err != nil {
		return 0, err
	}
	if err := r.Run(tb.Context()); err != nil {
		return 0, err
	}
	if result := r.Result(); !result.Conserved() || result.Counts.In == 0 {
		return 0, fmt.Errorf("replay %s: no observations, or some not conserved: %+v", path, result.Counts)
	}
	return r.Result().Packets, nil
}

// write writes the capture: half of the flows IPv4 and half IPv6, half TCP and half UDP, two
// signals, and random code and locator in each packet.
func (t *traffic) write(b testing.TB, packets int) (path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "traffic.pcapng")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	buffer := bufio.NewWriterSize(file, 1<<20)
	w := capture.NewWriter(buffer, capture.Interface{Name: "eth0", Link: capture.LinkEthernet})
	rng := rand.New(rand.NewPCG(1, uint64(t.flows)))
	flows := make([][]byte, t.flows) // bytes after the tag
	for i := range flows {
		flows[i] = t.flowHeaders(rng)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var data []byte
	flow := 0
	for i := range packets {
		if i%t.burst == 0 {
			flow = rng.IntN(t.flows)
		}
		data = append(t.appendTag(append(data[:0], 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2), rng), flows[flow]...)
		f := capture.Frame{TimeNS: begin + int64(i)*int64(time.Second)/trafficRate, Data: data, WireLen: uint32(len(data) + 1400)}
		if err := w.Write(&f, ""); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := buffer.Flush(); err != nil {
		b.Fatal(err)
	}
	return path
}

// appendTag appends TPID and tag: min ABW/C or max per-hop delay.
func (t *traffic) appendTag(data []byte, rng *rand.Rand) []byte {
	signal, locator := 1+rng.Uint32N(2), 1+rng.Uint32N(trafficLocators)
	if !t.wide {
		data = binary.BigEndian.AppendUint16(data, 0x9900)
		return binary.BigEndian.AppendUint16(data, uint16(signal<<13|rng.Uint32N(32)<<7|locator))
	}
	data = binary.BigEndian.AppendUint16(data, 0x88b6)
	data = binary.BigEndian.AppendUint16(data, uint16(locator<<1))
	return binary.BigEndian.AppendUint32(data, signal<<28|rng.Uint32N(1<<14)<<8)
}

// flowHeaders returns EtherType, IP and transport headers of a random flow.
func (t *traffic) flowHeaders(rng *rand.Rand) (h []byte) {
	src, dst := uint16(rng.IntN(t.groups)), 1<<15|uint16(rng.IntN(t.groups))
	protocol, transport := byte(6), make([]byte, 20)
	if rng.UintN(2) == 0 {
		protocol, transport = 17, make([]byte, 8)
	}
	binary.BigEndian.PutUint16(transport, uint16(1024+rng.UintN(60_000)))
	binary.BigEndian.PutUint16(transport[2:], 4420)
	const payload = 1400
	if protocol == 6 {
		transport[12], transport[13] = 5<<4, 0x10 // no options, ACK
	} else {
		binary.BigEndian.PutUint16(transport[4:], uint16(len(transport)+payload))
	}
	if rng.UintN(2) == 0 {
		h = append(h, 0x08, 0x00, 0x45, 0)
		h = binary.BigEndian.AppendUint16(h, uint16(20+len(transport)+payload))
		h = append(h, 0, 0, 0x40, 0, 64, protocol, 0, 0)
		for _, group := range []uint16{src, dst} {
			h = append(h, 10, byte(group>>8), byte(group), byte(rng.UintN(254)))
		}
		return append(h, transport...)
	}
	h = append(h, 0x86, 0xdd, 0x60, 0, 0, 0)
	h = binary.BigEndian.AppendUint16(h, uint16(len(transport)+payload))
	h = append(h, protocol, 64)
	for _, group := range []uint16{src, dst} {
		h = append(h, 0x20, 1, 0xd, 0xb8, 0, 0, byte(group>>8), byte(group), 0, 0, 0, 0, 0, 0, 0, byte(rng.UintN(254)))
	}
	return append(h, transport...)
}
