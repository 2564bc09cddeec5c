package replay_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	matrixEnv  = "CSIGSCOPE_TEST_MATRIX_PACKETS"
	matrixRuns = 3 // of each point; the median counts
	// fabricLike is the minimum number of packets per row of a 1 s window in traffic that
	// aggregates. Below it, rows take most of the time.
	fabricLike = 50
)

// matrixPoint is one kind of traffic with the replay's configuration and result.
type matrixPoint struct {
	traffic
	fabric, named bool // with a fabric file; with the heaviest flows by name

	perPacket     float64 // CPU, ns
	walk, limit   float64 // of walking record headers, and of the necessary memory accesses
	packetsPerRow float64 // in 1 s windows
	allocs        float64 // per packet
	peak          uint64  // resident memory, bytes
}

func (p *matrixPoint) ratio() float64 { return p.perPacket / p.walk }

func (p *matrixPoint) String() string {
	order, tags := "random", "compact"
	if p.burst > 1 {
		order = "bursts"
	}
	if p.wide {
		tags = "wide"
	}
	word := func(has bool, text string) string {
		if has {
			return text
		}
		return "-"
	}
	return fmt.Sprintf("%7d %6d  %-6s  %-7s  %-6s  %-5s  %7.0f  %6.0f  %5.1fx  %5.0f  %6.3f  %4d MB",
		p.flows, p.groups, order, tags, word(p.fabric, "fabric"), word(p.named, "flows"), p.packetsPerRow, p.perPacket, p.ratio(), p.limit, p.allocs, p.peak>>20)
}

// TestMatrix measures CPU time per packet on one core for all kinds of traffic, relative to walking
// the record headers of the same file with the same reader. It checks no limits, since machines
// differ. See make bench.
func TestMatrix(t *testing.T) {
	packets := matrixPackets(t)
	var all []matrixPoint
	fmt.Println("  flows groups  order   tags     fabric  flows  packets/row  ns  ratio  limit  allocs  memory")
	for _, flows := range []int{20, 2000, 20_000, 200_000} {
		for _, groups := range []int{16, 64, 1024} {
			for _, burst := range []int{1, 32} {
				for _, wide := range []bool{false, true} {
					points := measureTraffic(t, &traffic{flows, groups, burst, wide}, packets)
					for i := range points {
						fmt.Println(&points[i])
					}
					all = append(all, points...)
				}
			}
		}
	}
	like := slices.DeleteFunc(slices.Clone(all), func(p matrixPoint) bool { return p.packetsPerRow < fabricLike })
	summarize(fmt.Sprintf("fabric-like: at least %d packets a row", fabricLike), like)
	summarize("all", all)
}

// matrixPackets returns the number of packets of each capture, and skips the test if none is asked
// for.
func matrixPackets(t *testing.T) int {
	t.Helper()
	text := os.Getenv(matrixEnv)
	if text == "" {
		t.Skip("SKIPPED: make bench runs it (" + matrixEnv + ")")
	}
	packets, err := strconv.Atoi(text)
	if err != nil || packets <= 0 {
		t.Fatalf("%s=%s: expected a number of packets", matrixEnv, text)
	}
	return packets
}

// summarize prints the median and the worst of points.
func summarize(title string, points []matrixPoint) {
	if len(points) == 0 {
		return
	}
	slices.SortFunc(points, func(a, b matrixPoint) int { return cmp.Compare(a.ratio(), b.ratio()) })
	fmt.Printf("%s, %d points:\n  median %s\n  worst  %s\n", title, len(points), &points[len(points)/2], &points[len(points)-1])
}

// measureTraffic replays one capture with and without a fabric file and flows.
func measureTraffic(t *testing.T, of *traffic, packets int) (points []matrixPoint) {
	domain, resolvers := of.resolvers(t)
	t.Run("", func(t *testing.T) { // the subtest's end removes the capture
		path := of.write(t, packets)
		walk, _ := perPacket(t, func() (uint64, error) { return walkHeaders(path) })
		touches := newLimit(of)
		least, _ := perPacket(t, func() (uint64, error) { return touches.run(path) })
		for i, resolver := range resolvers {
			for _, top := range []int{0, 100} {
				rows := rowCount{Table: table.New(totals)}
				p := matrixPoint{traffic: *of, fabric: i > 0, named: top > 0, walk: walk, limit: least}
				forgetPeak(t)
				p.perPacket, p.allocs = perPacket(t, func() (uint64, error) {
					return replayTraffic(t, path, resolver, domain, 1, top, &rows, time.Second, time.Minute)
				})
				p.peak = peak(t)
				p.packetsPerRow = float64(matrixRuns*packets) / float64(max(rows.n, 1))
				points = append(points, p)
			}
		}
	})
	return points
}

// TestParts measures where the time of a packet goes: it leaves parts of the work out, for random
// compact traffic of 200 and of 20,000 flows, and prints the least CPU time of several rounds, in
// which all parts take turns. It checks no limits. See make bench.
func TestParts(t *testing.T) {
	packets := matrixPackets(t)
	for _, flows := range []int{200, 20_000} {
		of := traffic{flows: flows, groups: 64, burst: 1}
		path := of.write(t, packets)
		domain, resolvers := of.resolvers(t)
		count := func(flows int, resolutions ...time.Duration) func() (uint64, error) {
			return func() (uint64, error) {
				return replayTraffic(t, path, resolvers[0], domain, 1, flows, table.New(totals), resolutions...)
			}
		}
		parts := []struct {
			name string
			run  func() (uint64, error)
			ns   float64
		}{
			{name: "read record headers", run: func() (uint64, error) { return walkHeaders(path) }},
			{name: "and decode", run: func() (uint64, error) { return decodeOnly(path, domain) }},
			{name: "and count in windows of 1 min", run: count(0, time.Minute)},
			{name: "and of 1 s", run: count(0, time.Second, time.Minute)},
			{name: "and find the worst flows", run: count(100, time.Second, time.Minute)},
		}
		for round := range 2 * matrixRuns {
			for i := range parts {
				p := &parts[i]
				began := cpu(t)
				n, err := p.run()
				if err != nil {
					t.Fatal(err)
				}
				if ns := float64(cpu(t)-began) / float64(n); round == 0 || ns < p.ns {
					p.ns = ns
				}
			}
		}
		fmt.Printf("%d flows, ns of a packet:\n", flows)
		for i := range parts {
			fmt.Printf("  %-30s  %4.0f  %4.1fx\n", parts[i].name, parts[i].ns, parts[i].ns/parts[0].ns)
		}
	}
}

// forgetPeak returns unused memory and resets the process's peak.
func forgetPeak(t *testing.T) {
	t.Helper()
	debug.FreeOSMemory()
	const resetPeak = "5" // proc(5)
	if err := os.WriteFile("/proc/self/clear_refs", []byte(resetPeak), 0); err != nil {
		t.Fatal(err)
	}
}

// peak returns the process's maximum resident memory since forgetPeak, in bytes.
func peak(t *testing.T) uint64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	var kib uint64
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatalf("read VmHWM: %v", err)
	}
	return kib << 10
}

// rowCount counts the rows of 1 s windows.
type rowCount struct {
	*table.Table
	n int
}

// WriteBlock implements aggregate.Sink.
func (c *rowCount) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if b.Resolution == int64(time.Second) {
		c.n += b.Len()
	}
	return c.Table.WriteBlock(ctx, b)
}

// perPacket returns the median CPU time and allocations per packet.
func perPacket(t *testing.T, f func() (uint64, error)) (ns, allocs float64) {
	t.Helper()
	var times []float64
	for range matrixRuns {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := cpu(t)
		n, err := f()
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, float64(cpu(t)-began)/float64(n))
		runtime.ReadMemStats(&after)
		allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	}
	slices.Sort(times)
	return times[len(times)/2], allocs
}

// resolvers returns a resolver without a fabric file, and one with all groups and a port for each
// locator.
func (t *traffic) resolvers(tb testing.TB) (*csig.Domain, []aggregate.Resolver) {
	tb.Helper()
	tags := "compact, profile: ietf01, fields: [{field: port_id, bits: 7}]"
	if t.wide {
		tags = "wide, profile: uec050, fields: [{field: port_id, bits: 15}]"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "version: 1\nname: traffic\ncsig: {locators: [{format: %s}]}\ndevices:\n  - name: leaf\n    stage: leaf\n    id: 1\n    ports:\n", tags)
	for port := range trafficLocators {
		fmt.Fprintf(&text, "      - {name: up%d, id: %d, orientation: up, speed: 400Gbps}\n", port+1, port+1)
	}
	text.WriteString("groups:\n")
	for group := range t.groups {
		for side, name := range []string{"src", "dst"} {
			prefix := side<<15 | group
			fmt.Fprintf(&text, "  - {name: %s%d, level: rack, prefixes: [10.%d.%d.0/24, '2001:db8:0:%x::/64']}\n", name, group, prefix>>8, prefix&0xff, prefix)
		}
	}
	spec, err := fabric.Parse(strings.NewReader(text.String()), "traffic")
	if err != nil {
		tb.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		tb.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		tb.Fatal(err)
	}
	return domain, []aggregate.Resolver{fabric.None(domain), f}
}
