package remote

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/retry"
)

// exportersErrand makes a child the exporters of several hosts.
type exportersErrand struct {
	URL   string
	Dir   string // contains a spool for each
	Names []string
	TLS   []edge.TLSFiles
	Next  []int // number of each exporter's first block
	Cells int
	Every time.Duration // between an exporter's blocks; exporters are spread over a tenth of it
	// Count is the number of blocks of each exporter; 0: until standard input ends.
	Count int
	// Confirm writes each block to disk at once and reports it on standard output.
	Confirm bool
}

const (
	// confirmedFormat is the line for a block on disk: index of the exporter, and number of the
	// block.
	confirmedFormat = "confirmed %d %d\n"
	// blockMark is added to the number of a block in the source group of its first row.
	blockMark = uint64(1) << 32
)

// loadBlock returns the block that all blocks of an exporter are copies of.
func loadBlock(name string, cells int) *aggregate.Block {
	h := fnv.New64()
	fmt.Fprint(h, name)
	return testBlock(rand.New(rand.NewPCG(h.Sum64(), 1)), time.Now(), cells)
}

// number makes a copy of loadBlock the n-th block: the source group of its first row holds its
// number, the destination group the time of export, and the bytes of every row make it
// distinct.
func number(b *aggregate.Block, n int, now time.Time) {
	b.SrcGroup[0], b.DstGroup[0] = blockMark+uint64(n), uint64(now.UnixNano())
	for i := range b.Bytes {
		b.Bytes[i] = b.Observations[i]*1500 + uint64(n)
	}
	b.Flows = testFlows(b)
}

// run exports blocks, then waits until a collector has all of them.
func (e *exportersErrand) run(ctx context.Context, logger *slog.Logger) error {
	clients := make([]*Client, len(e.Names))
	working, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	for i := range clients {
		c, err := e.open(i, logger)
		if err != nil {
			return err
		}
		clients[i] = c
		running.Go(func() { _ = c.Run(working) })
	}
	begin := time.Now()
	if e.Count > 0 {
		// The load begins after all exporters have connected.
		for i := 0; i < len(clients) && ctx.Err() == nil; {
			if clients[i].Stats().Answering {
				i++
			} else {
				retry.Sleep(ctx, 10*time.Millisecond)
			}
		}
		begin = time.Now().Add(2 * time.Second).Truncate(time.Second)
	}
	failed := make([]error, len(clients))
	var writing sync.WaitGroup
	for i, c := range clients {
		writing.Go(func() { failed[i] = e.export(ctx, i, c, begin) })
	}
	writing.Wait()
	for i, c := range clients {
		if failed[i] != nil {
			return failed[i]
		}
		if err := c.Flush(working); err != nil {
			return err
		}
	}
	stop()
	running.Wait()
	for i, c := range clients {
		if err := c.Close(); err != nil {
			return err
		}
		// A torn record was being written when the process was killed.
		s := c.Stats()
		delete(s.Lost, "torn")
		if len(s.Refused) > 0 || len(s.Lost) > 0 {
			return fmt.Errorf("%s: refused %v, lost %v", e.Names[i], s.Refused, s.Lost)
		}
	}
	return nil
}

func (e *exportersErrand) open(i int, logger *slog.Logger) (*Client, error) {
	c, err := OpenClient(ClientConfig{
		Collectors: []string{e.URL}, Dir: filepath.Join(e.Dir, e.Names[i]), TLS: e.TLS[i], Exporter: e.Names[i],
		FS: lazyDisk{}, Timeout: 20 * time.Second, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return c, c.Describe(testDescription())
}

// export writes the blocks of an exporter.
func (e *exportersErrand) export(ctx context.Context, i int, c *Client, begin time.Time) error {
	s, err := c.StreamOf("eth0", uint64(time.Now().UnixNano()))
	if err != nil {
		return err
	}
	b := loadBlock(e.Names[i], e.Cells)
	// Clocks and lateness differ slightly from host to host.
	begin = begin.Add(e.Every / 10 * time.Duration(i%100) / 100)
	for n := 0; e.Count == 0 || n < e.Count; n++ {
		due := begin.Add(time.Duration(n) * e.Every)
		if !retry.Sleep(ctx, time.Until(due)) {
			return nil
		}
		b.WindowStart = due.Add(-time.Second).Truncate(time.Second).UnixNano()
		number(b, e.Next[i]+n, time.Now())
		if err := s.WriteBlock(ctx, b); err != nil {
			return err
		}
		if !e.Confirm {
			continue
		}
		if err := c.Sync(ctx); err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, confirmedFormat, i, e.Next[i]+n)
	}
	return nil
}
