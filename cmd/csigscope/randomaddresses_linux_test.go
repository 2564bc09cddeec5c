package main

import (
	"context"
	bigendian "encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/ingest/local"
)

// addressFlood is a tap whose packets have random addresses and ports, as fast as they are
// read. One of 16 is between 1,024 prefixes, whose pairs exceed the available room. It ends
// after a number of packets.
type addressFlood struct {
	left   int
	random *rand.PCG
	frames [capture.BatchSize][]byte
}

func newAddressFlood(packets int) *addressFlood {
	f := &addressFlood{left: packets, random: rand.NewPCG(1, 2)}
	head := []byte{
		0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x99, 0x00, 0x2b, 0x85, 0x08, 0x00, // a compact tag
		0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, // IPv4 and TCP
	}
	for i := range f.frames {
		f.frames[i] = make([]byte, 64)
		copy(f.frames[i], head)
		f.frames[i][len(head)+8+12] = 5 << 4 // length of TCP's header
	}
	return f
}

// ReadBatch implements local.Source.
func (f *addressFlood) ReadBatch(b *capture.Batch) error {
	if b.N = min(f.left, len(b.Frames)); b.N == 0 {
		return io.EOF
	}
	f.left -= b.N
	now := time.Now().UnixNano()
	for i := range b.N {
		data, r := f.frames[i], f.random.Uint64()
		tag := r >> 17
		if i%16 == 0 {
			r = r&0x0003ffff_0003ffff | 0x0a000000_0a000000
		}
		bigendian.BigEndian.PutUint64(data[30:], r)
		bigendian.BigEndian.PutUint32(data[38:], uint32(tag))
		data[14], data[15] = 0x20|byte(tag>>8)&0x1f, byte(tag) // any code, any locator metadata
		b.Frames[i] = capture.Frame{Data: data, TimeNS: now, WireLen: 1500}
	}
	return nil
}

// LowWatermark implements local.Source.
func (f *addressFlood) LowWatermark() int64 { return 0 }
func (f *addressFlood) Ahead() int64        { return 0 }

// Close implements local.Source.
func (f *addressFlood) Close() error { return nil }

// floodJournal passes blocks to live readers, and makes nothing durable.
type floodJournal struct{ aggregate.Sinks }

// Commit implements local.Journal.
func (floodJournal) Commit(context.Context, []local.Mark) error { return nil }

const (
	// addressesEnv is the number of addresses that TestRandomAddresses sends, two per packet;
	// floodEnv is the number of packets for its child.
	addressesEnv = "CSIGSCOPE_TEST_ADDRESSES"
	floodEnv     = "CSIGSCOPE_TEST_FLOOD"
	// floodLimit is the memory_limit of the child, in bytes.
	floodLimit = 1 << 30
)

// TestRandomAddresses: packets with random addresses pass through the parts of collect as fast
// as they accept them, with flows, findings, live windows and top bottlenecks. The process
// stays below its memory limit. CSIGSCOPE_TEST_ADDRESSES=180000000 (make load) sets the number
// of addresses.
func TestRandomAddresses(t *testing.T) {
	if text := os.Getenv(floodEnv); text != "" {
		packets, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		floodAddresses(t, packets)
		return
	}
	addresses := 6_000_000
	if text := os.Getenv(addressesEnv); text != "" {
		var err error
		if addresses, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short; memory is another under the race detector")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRandomAddresses$", "-test.v", "-test.timeout", "0")
	child.Env = append(os.Environ(), floodEnv+"="+strconv.Itoa(addresses/2))
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// floodAddresses is the child.
func floodAddresses(t *testing.T, packets int) {
	n, err := openNetwork("", "")
	if err != nil {
		t.Fatal(err)
	}
	use := config.MemoryUse{Capture: &config.Capture{Taps: []config.Tap{{Interface: "flood"}}}, Writes: true, API: true, Live: true}
	m, err := n.Config.Memory(floodLimit, 0, use)
	if err != nil {
		t.Fatal(err)
	}
	debug.SetMemoryLimit(int64(m.Go))
	settings := n.Settings()
	if settings.MaxSeries, err = m.MaxSeries(&n.Config, use); err != nil {
		t.Fatal(err)
	}
	live := table.NewMemory(table.MemoryOptions{MaxRows: m.LiveRows})
	p, err := local.New(local.Config{Instance: "flood", Journal: floodJournal{aggregate.Sinks{newTopBottlenecks(), live}}}, local.Plan{
		Settings: settings, Rings: []local.Ring{{Name: "flood", Tap: window.TapAt("", 1), Source: newAddressFlood(packets)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var around sync.WaitGroup
	around.Go(func() {
		if err := live.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	most := 0
	around.Go(func() {
		for ctx.Err() == nil {
			most = max(most, residentBytes(t))
			time.Sleep(50 * time.Millisecond)
		}
	})
	begun := time.Now()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	took, s := time.Since(begun), p.Stats()
	stop()
	around.Wait()
	counts := s.Counts()
	t.Logf("%d packets in %s, %.0f a second; %d keys, %d live rows; at most %d MiB resident of %d; %d observations stored, %d in overflow rows, %d late, %d rounds waited",
		packets, took.Round(time.Millisecond), float64(packets)/took.Seconds(), settings.MaxSeries, m.LiveRows, most>>20, floodLimit>>20,
		counts.Stored, counts.Overflow, counts.Late, s.Full)
	if most > floodLimit {
		t.Errorf("%d MiB resident, want at most the memory limit of %d", most>>20, floodLimit>>20)
	}
	if counts.In != uint64(packets) || counts.Stored+counts.Overflow+counts.Late != counts.In || counts.Overflow == 0 {
		t.Errorf("%+v, want each of %d packets in a row, and some in overflow rows", counts, packets)
	}
}

// residentBytes returns the resident memory of this process.
func residentBytes(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Error(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Error(err)
	}
	return resident * os.Getpagesize()
}
