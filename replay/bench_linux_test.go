package replay_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// Folder of the benchmark's captures, and their number of packets.
const (
	benchDirEnv     = "CSIGSCOPE_TEST_BENCH_DIR"
	benchPacketsEnv = "CSIGSCOPE_TEST_BENCH_PACKETS"
)

// Variants of the fabric-like scenario: with 16-bit tags, and as pcapng. All other captures are
// classic pcap.
const (
	compactTwin = "fabric-like-compact"
	pcapngTwin  = "fabric-like-pcapng"
)

// benchScenario returns a scenario by name, or a variant.
func benchScenario(name string) (scenario.Scenario, error) {
	if name != compactTwin && name != pcapngTwin {
		return scenario.Named(name)
	}
	s, err := scenario.Named("fabric-like")
	if s.Name = name; name == compactTwin {
		s = s.WithLayout(csig.Layout{Format: csig.Compact, Profile: csig.IETF01})
	} else {
		s.Classic = false
	}
	return s, err
}

// benchCapture returns the capture of a scenario, which is created once and kept for later runs.
func benchCapture(b *testing.B, name string) (path, fabricFile string) {
	b.Helper()
	s, err := benchScenario(name)
	if err != nil {
		b.Fatal(err)
	}
	s.Packets = 200_000
	if text := os.Getenv(benchPacketsEnv); text != "" {
		if s.Packets, err = strconv.ParseUint(text, 10, 64); err != nil {
			b.Fatalf("%s: %v", benchPacketsEnv, err)
		}
	}
	dir := os.Getenv(benchDirEnv)
	if dir == "" {
		dir = b.TempDir()
	}
	dir = filepath.Join(dir, fmt.Sprintf("%s-%d", name, s.Packets))
	path, fabricFile = filepath.Join(dir, name+".pcap"), filepath.Join(dir, scenario.FabricFile)
	if !s.Classic {
		path += "ng"
	}
	if _, err := os.Stat(path); err == nil {
		return path, fabricFile
	}
	partial := dir + ".partial" // an interrupted run leaves no complete capture
	report, err := simulation.Run(b.Context(), s, partial, nil)
	if err == nil {
		err = errors.Join(os.RemoveAll(dir), os.Rename(partial, dir))
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%s: %d packets of %d bytes on average, %.0f packets per partial",
		name, report.Captured, report.CapturedBytes/max(report.Captured, 1), float64(report.Captured)/float64(max(report.Partials, 1)))
	return path, fabricFile
}

// cpu returns the CPU time of the process.
func cpu(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// eachBatch reads a capture and returns the number of its packets.
func eachBatch(path string, see func(frames []capture.Frame)) (packets uint64, err error) {
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var batch capture.Batch
	for {
		if err := r.ReadBatch(&batch); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return packets, err
		}
		see(batch.Frames[:batch.N])
		packets += uint64(batch.N)
	}
}

// walkHeaders reads a capture's record headers only: the limit.
func walkHeaders(path string) (packets uint64, err error) {
	return eachBatch(path, func([]capture.Frame) {})
}

// decodeOnly reads and decodes a capture, as window.Stream does.
func decodeOnly(path string, domain *csig.Domain) (packets uint64, err error) {
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		return 0, err
	}
	var result decode.Result
	var plain [decode.MaxObservations]decode.Observation
	return eachBatch(path, func(frames []capture.Frame) {
		for i := range frames {
			f := &frames[i]
			if _, _, is := d.DecodePlain(f.Data, f.WireLen, &plain); is == decode.NotPlain {
				d.Decode(f.Data, &result)
			}
		}
	})
}

// BenchmarkReplay reports CPU time and allocations for each packet, per core, and
// the ratio to walking the record headers of the same file with the same reader in
// the same run.
//
//	CSIGSCOPE_TEST_BENCH_PACKETS=10000000 go test -run '^$' -bench Replay ./replay
func BenchmarkReplay(b *testing.B) {
	for _, name := range []string{"fabric-like", compactTwin, pcapngTwin, "worst-case"} {
		b.Run(name, func(b *testing.B) { benchmarkScenario(b, name) })
	}
}

func benchmarkScenario(b *testing.B, name string) {
	path, fabricFile := benchCapture(b, name)
	spec, err := fabric.Load(fabricFile)
	if err != nil {
		b.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		b.Fatal(err)
	}
	var headers float64
	b.Run("headers", func(b *testing.B) {
		headers = measure(b, 0, func() (uint64, error) { return walkHeaders(path) })
	})
	b.Run("decode", func(b *testing.B) {
		measure(b, headers, func() (uint64, error) { return decodeOnly(path, domain) })
	})
	for _, workers := range []int{1, 2} {
		for _, resolutions := range [][]time.Duration{
			{time.Second, time.Minute},
			{10 * time.Millisecond, time.Second, time.Minute},
		} {
			b.Run(fmt.Sprintf("replay-%v-cores-%d", resolutions[0], workers), func(b *testing.B) {
				measure(b, headers, func() (uint64, error) {
					return replayOnce(b, path, spec, domain, resolutions, workers, 0)
				})
			})
		}
	}
	b.Run("replay-1s-cores-1-flows", func(b *testing.B) {
		measure(b, headers, func() (uint64, error) {
			return replayOnce(b, path, spec, domain, []time.Duration{time.Second, time.Minute}, 1, 100)
		})
	})
}

// replayOnce replays a capture and names up to flows flows per window.
func replayOnce(b *testing.B, path string, spec *fabric.Spec, domain *csig.Domain, resolutions []time.Duration, workers, flows int) (uint64, error) {
	f, err := fabric.New(spec, domain)
	if err != nil {
		return 0, err
	}
	return replayTraffic(b, path, f, domain, workers, flows, table.New(totals), resolutions...)
}

// measure runs f and reports CPU and wall time and allocations per packet.
func measure(b *testing.B, limit float64, f func() (uint64, error)) float64 {
	var packets uint64
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := cpu(b)
	for b.Loop() {
		n, err := f()
		if err != nil {
			b.Fatal(err)
		}
		packets += n
	}
	used := cpu(b) - began
	runtime.ReadMemStats(&after)
	perPacket := float64(used.Nanoseconds()) / float64(packets)
	b.ReportMetric(perPacket, "cpu-ns/packet")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "wall-ns/packet")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(packets), "allocs/packet")
	b.ReportMetric(0, "ns/op")
	if limit > 0 {
		b.ReportMetric(perPacket/limit, "x-headers")
	}
	return perPacket
}
