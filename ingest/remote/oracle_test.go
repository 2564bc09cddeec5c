package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

// identity is the key by which a table merges rows: the same row twice is one row.
type identity struct {
	aggregate.Source
	seq               uint64
	resolution, start int64
	rowKey
}

// values are the values of a row.
type values struct {
	observations, samples, unjudged, bytes, sum, min, max, untouched, trimmed, heavy, heavySum, dist uint64
	evidence                                                                                         uint8
}

func (v *values) add(o values) {
	v.observations += o.observations
	v.samples += o.samples
	v.unjudged += o.unjudged
	v.bytes += o.bytes
	v.sum += o.sum
	v.untouched += o.untouched
	v.trimmed += o.trimmed
	v.heavy += o.heavy
	v.heavySum += o.heavySum
	v.dist += o.dist
	v.evidence |= o.evidence
}

func valuesOf(b *aggregate.Block, i int) values {
	v := values{
		b.Observations[i], b.Samples[i], b.Unjudged[i], b.Bytes[i], b.Sum[i], b.Min[i], b.Max[i], b.Untouched[i], b.Trimmed[i], b.Heavy[i], b.HeavySum[i], 0, b.Evidence[i],
	}
	for j := distStart(b, i); j < b.DistEnd[i]; j++ {
		v.dist += b.DistCount[j] * uint64(b.DistCode[j]+1)
	}
	return v
}

// ledger is a sink that counts each row once, as the tables do, and can simulate a crash that
// loses rows that are not durable.
type ledger struct {
	mu      sync.Mutex
	rows    map[identity]values // durable
	written map[identity]values // not durable yet
	flows   map[flowIdentity]aggregate.FlowRow
	blocks  int
	syncs   int
	fails   error // returned by every write
	changed bool  // a row arrived again with other values
	wrong   error // for a block that no aggregator could have produced
	wait    chan struct{}

	epochs    map[uint64]string
	groups    map[aggregate.GroupID]fabric.Group
	locations map[aggregate.LocationID]fabric.Location
	runs      map[Run]int
	ended     map[Run]int
	taps      map[tapKey]*wire.Tap
	gaps      map[gapKey]*wire.Gap
	found     map[foundKey]*wire.Finding
	pins      map[nameKey]fabric.Name
	contested func(refused, held fabric.Name)
	disputes  map[string]*wire.Finding
}

// tapKey, foundKey and gapKey are the keys under which records replace each other.
type tapKey struct {
	Run
	seq uint64
}

type foundKey struct {
	tapKey
	kind string
	id   uint64
}

type gapKey struct {
	aggregate.Source
	from, resolution int64
	reason           string
	id               uint64
}

func newLedger() *ledger {
	return &ledger{
		rows: map[identity]values{}, written: map[identity]values{}, flows: map[flowIdentity]aggregate.FlowRow{}, epochs: map[uint64]string{},
		groups: map[aggregate.GroupID]fabric.Group{}, locations: map[aggregate.LocationID]fabric.Location{}, runs: map[Run]int{},
		ended: map[Run]int{}, taps: map[tapKey]*wire.Tap{}, gaps: map[gapKey]*wire.Gap{}, found: map[foundKey]*wire.Finding{},
		pins: map[nameKey]fabric.Name{}, disputes: map[string]*wire.Finding{},
	}
}

func (l *ledger) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails != nil {
		return l.fails
	}
	l.blocks++
	if err := b.Check(); err != nil {
		l.wrong = err
	}
	for i := range b.Len() {
		id := identity{b.Source, b.Seq, b.Resolution, b.WindowStart, keyOf(b, i)}
		v := valuesOf(b, i)
		if before, ok := l.rows[id]; ok && before != v {
			l.changed = true
		}
		if before, ok := l.written[id]; ok && before != v {
			l.changed = true
		}
		l.written[id] = v
	}
	for _, f := range b.Flows {
		id := flowIdentity{b.Source, b.Seq, b.Resolution, b.WindowStart, f.Flow, pairOf(&f), f.SrcGroup, f.DstGroup}
		if before, ok := l.flows[id]; ok && before != f {
			l.changed = true
		}
		l.flows[id] = f
	}
	return ctx.Err()
}

func (l *ledger) Sync(ctx context.Context) error {
	l.mu.Lock()
	wait := l.wait
	l.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	maps.Copy(l.rows, l.written)
	clear(l.written)
	return nil
}

// crash drops rows that are not durable.
func (l *ledger) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.written)
}

func (l *ledger) WriteEpoch(_ context.Context, epoch uint64, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs[epoch] = text
	return l.fails
}

func (l *ledger) Names(_ context.Context, groups []aggregate.GroupID, locations []aggregate.LocationID) (list []fabric.Name, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range groups {
		if n, ok := l.pins[nameKey{false, uint64(id)}]; ok {
			list = append(list, n)
		}
	}
	for _, id := range locations {
		if n, ok := l.pins[nameKey{true, uint64(id)}]; ok {
			list = append(list, n)
		}
	}
	return list, l.fails
}

func (l *ledger) PinNames(_ context.Context, list []fabric.Name) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range list {
		switch held := l.pins[nameKeyOf(&n)]; {
		case held.Pinned && held.Means(&n):
			continue
		case held.Pinned:
			defer l.contested(n, held)
			continue
		}
		if l.pins[nameKeyOf(&n)] = n; n.Group != nil {
			l.groups[n.Group.ID] = *n.Group
		} else {
			l.locations[n.Location.ID] = *n.Location
		}
	}
	return l.fails
}

func (l *ledger) NotifyContested(f func(refused, held fabric.Name)) { l.contested = f }

// unpin makes the ledger accept the next descriptions of all names.
func (l *ledger) unpin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range l.pins {
		n.Pinned = false
		l.pins[k] = n
	}
}

func (l *ledger) WriteFindings(_ context.Context, list []Finding) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range list {
		l.disputes[fmt.Sprintf("%x %x %d", f.Source, f.GetId(), f.GetFromNs())] = f.Finding
	}
	return l.fails
}

func (l *ledger) BeginRuns(_ context.Context, list []Run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		l.runs[r]++
	}
	return l.fails
}

func (l *ledger) EndRuns(_ context.Context, list []Run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		l.ended[r]++
	}
	return l.fails
}

func (l *ledger) EndEarlier(context.Context, []Run) error { return nil }

func (l *ledger) WriteTaps(_ context.Context, list []TapRow) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		l.taps[tapKey{r.Run, r.GetSeq()}] = r.Tap
		for _, f := range r.Findings {
			l.found[foundKey{tapKey{r.Run, r.GetSeq()}, f.GetKind(), f.GetId()}] = f
		}
	}
	return l.fails
}

func (l *ledger) WriteGaps(_ context.Context, list []Gap) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range list {
		l.gaps[gapKey{g.Source, g.GetFromNs(), g.GetResolutionNs(), g.GetReason(), g.GetId()}] = g.Gap
	}
	return l.fails
}

// totals returns the sums over all rows by producer.
func (l *ledger) totals() map[uint64]values {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[uint64]values{}
	for id, v := range l.rows {
		t := out[id.Producer]
		t.add(v)
		out[id.Producer] = t
	}
	return out
}

var errSink = errors.New("sink fails")

// totalsOf returns the expected totals of blocks.
func totalsOf(blocks ...*aggregate.Block) (t values) {
	for _, b := range blocks {
		for i := range b.Len() {
			t.add(valuesOf(b, i))
		}
	}
	return t
}

// testText is the configuration of test blocks.
const testText = "a configuration"

func testDescription() Description {
	id := fabric.PortLocationID("leaf1", "up1")
	return Description{
		Text:   testText,
		Groups: []fabric.Group{{ID: fabric.GroupIDOf("rack1"), Name: "rack1", Level: "rack", Order: 1}},
		Locations: []fabric.Location{{
			ID: id, Name: "leaf1:up1", Kind: fabric.KindPort, Device: "leaf1", Capacity: 400e6,
			Candidates: []string{"leaf1:up1"}, CandidateCount: 1, Set: id, DeviceLoc: id, StageLoc: id,
		}},
	}
}

// testBlock makes a block with valid random rows, all with distinct keys.
func testBlock(rng *rand.Rand, start time.Time, rows int) *aggregate.Block {
	b := &aggregate.Block{Resolution: int64(time.Second), WindowStart: start.Truncate(time.Second).UnixNano()}
	d := testDescription()
	b.Epoch = d.Epoch()
	for i := range rows {
		b.Signal = append(b.Signal, uint8(csig.SignalOf(csig.IETF01, uint8(i%3))))
		b.Kind = append(b.Kind, uint8(decode.Tag))
		b.Encoding = append(b.Encoding, 0)
		b.SrcGroup = append(b.SrcGroup, uint64(i)+10)
		b.DstGroup = append(b.DstGroup, rng.Uint64()|2)
		b.Location = append(b.Location, uint64(i%7)+1)
		n, trimmed, low, high := uint64(0), rng.Uint64N(3), uint64(math.MaxUint64), uint64(0)
		sum := uint64(0)
		for code := range uint16(32) {
			if rng.IntN(8) != 0 && code != uint16(i%32) {
				continue
			}
			count, value := rng.Uint64N(50)+1, uint64(code)*1000
			b.DistCode, b.DistCount = append(b.DistCode, code), append(b.DistCount, count)
			n += count
			sum += count * value
			low, high = min(low, value), max(high, value)
		}
		b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
		b.Observations = append(b.Observations, n+trimmed)
		b.Samples = append(b.Samples, (n+2)/3) // a tap may be sampled
		b.Unjudged = append(b.Unjudged, (n-n/2)/3)
		b.Bytes = append(b.Bytes, n*1500)
		b.Sum, b.Min, b.Max = append(b.Sum, sum), append(b.Min, low), append(b.Max, high)
		b.Untouched = append(b.Untouched, n/3)
		b.Trimmed = append(b.Trimmed, trimmed)
		b.Heavy, b.HeavySum = append(b.Heavy, n/2), append(b.HeavySum, sum*(n/2)/n)
		b.Evidence = append(b.Evidence, uint8(i%8))
	}
	b.Flows = testFlows(b)
	return b
}

func newRand(t testing.TB, n uint64) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(n, 1))
}
