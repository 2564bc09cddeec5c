package window_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// sequential skips a test in short mode, which looks for data races: it runs in one goroutine, as
// shards do.
func sequential(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: one goroutine has nothing for the race detector")
	}
}

// fakeResolver groups IPv4 addresses by /24 and has one location for each locator metadata value,
// of one of three speeds.
type fakeResolver struct{}

func (fakeResolver) Group(a netip.Addr) aggregate.GroupID {
	if !a.Is4() {
		return aggregate.UnknownGroup
	}
	b := a.As4()
	return aggregate.GroupID(1000 + int(b[1])<<8 + int(b[2]))
}

func (fakeResolver) Locate(_ csig.Layout, _ uint8, lm uint16, _, _ netip.Addr) (aggregate.LocationID, uint64) {
	speeds := [...]uint64{0, 100e6, 400e6}
	return aggregate.LocationID(5000 + uint64(lm)), speeds[int(lm)%len(speeds)]
}

// rowKey names a row among those of all blocks.
type rowKey struct {
	resolution, start int64
	signal            csig.Signal
	kind              decode.Kind
	encoding          aggregate.Encoding
	src, dst          aggregate.GroupID
	location          aggregate.LocationID
}

// rowSums are the sums of a row. Failures print dist as a whole.
type rowSums struct {
	observations, samples, unjudged, bytes, sum, min, max, untouched, trimmed, heavy, heavySum uint64

	evidence uint8
	dist     map[uint16]uint64
}

// valued reports whether min and max have a meaning: whether there is a counted bucket of a signal
// with a table.
func (s *rowSums) valued(k rowKey) bool { return k.signal.HasValue() && len(s.dist) > 0 }

func (s *rowSums) add(k rowKey, o *rowSums) {
	if o.valued(k) && (!s.valued(k) || o.min < s.min) {
		s.min = o.min
	}
	s.max = max(s.max, o.max)
	s.observations += o.observations
	s.samples += o.samples
	s.unjudged += o.unjudged
	s.bytes += o.bytes
	s.sum += o.sum
	s.untouched += o.untouched
	s.trimmed += o.trimmed
	s.heavy += o.heavy
	s.heavySum += o.heavySum
	s.evidence |= o.evidence
	for c, n := range o.dist {
		s.dist[c] += n
	}
}

// collector is a sink that keeps blocks and merges rows.
type collector struct {
	blocks []aggregate.Block
	rows   map[rowKey]*rowSums
}

// WriteBlock refuses blocks that a real collector would refuse.
func (c *collector) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if err := b.Check(); err != nil {
		return err
	}
	c.blocks = append(c.blocks, *b.Clone())
	for i := range b.Len() {
		k, sums := blockRow(b, i)
		c.add(k, sums)
	}
	return nil
}

func (c *collector) add(k rowKey, sums *rowSums) {
	if c.rows == nil {
		c.rows = map[rowKey]*rowSums{}
	}
	if c.rows[k] == nil {
		c.rows[k] = &rowSums{dist: map[uint16]uint64{}}
	}
	c.rows[k].add(k, sums)
}

func blockRow(b *aggregate.Block, i int) (rowKey, *rowSums) {
	k := rowKey{
		resolution: b.Resolution, start: b.WindowStart,
		signal: csig.Signal(b.Signal[i]), kind: decode.Kind(b.Kind[i]), encoding: aggregate.Encoding(b.Encoding[i]),
		src: aggregate.GroupID(b.SrcGroup[i]), dst: aggregate.GroupID(b.DstGroup[i]),
		location: aggregate.LocationID(b.Location[i]),
	}
	s := &rowSums{
		observations: b.Observations[i], samples: b.Samples[i], unjudged: b.Unjudged[i], bytes: b.Bytes[i], sum: b.Sum[i], min: b.Min[i], max: b.Max[i],
		untouched: b.Untouched[i], trimmed: b.Trimmed[i], heavy: b.Heavy[i], heavySum: b.HeavySum[i], evidence: b.Evidence[i],
		dist: map[uint16]uint64{},
	}
	from := uint32(0)
	if i > 0 {
		from = b.DistEnd[i-1]
	}
	for j := from; j < b.DistEnd[i]; j++ {
		s.dist[b.DistCode[j]] += b.DistCount[j]
	}
	return k, s
}

func defaultDomain(t testing.TB) *csig.Domain {
	t.Helper()
	d, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newShard returns a shard with the fake resolver and the default domain, if the
// configuration has none.
func newShard(t testing.TB, cfg window.Config, sink aggregate.Sink) *window.Shard {
	t.Helper()
	if cfg.Domain == nil {
		cfg.Domain = defaultDomain(t)
	}
	cfg.Resolver = fakeResolver{}
	s, err := window.NewShard(cfg, sink)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run adds the observations in batches of the size, flushes, and checks that nothing got lost.
func run(t testing.TB, s *window.Shard, obs []decode.Observation, batch int) aggregate.Counts {
	t.Helper()
	for len(obs) > 0 {
		n := min(batch, len(obs))
		if err := s.Add(context.Background(), obs[:n]); err != nil {
			t.Fatal(err)
		}
		obs = obs[n:]
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := s.Counts()
	total := c.Stored + c.Late + c.Overflow
	for _, n := range c.Rejected {
		total += n
	}
	if total != c.In {
		t.Fatalf("conservation: in %d, accounted for %d: %+v", c.In, total, c)
	}
	return c
}
