package local_test

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// recording is an emitted scenario.
type recording struct {
	dir    string
	files  []string
	domain *csig.Domain
	spec   *fabric.Spec
}

// record emits quickstart, once.
func record(t *testing.T) *recording {
	t.Helper()
	rec, err := quickstart()
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

var quickstart = sync.OnceValues(func() (*recording, error) {
	s, err := scenario.Named("quickstart")
	if err != nil {
		return nil, err
	}
	if testing.Short() {
		s.Duration /= 4
	}
	dir, err := os.MkdirTemp("", "csigscope-live-")
	if err != nil {
		return nil, err
	}
	report, err := simulation.Run(context.Background(), s, dir, nil)
	if err != nil {
		return nil, err
	}
	spec, err := fabric.Load(filepath.Join(dir, scenario.FabricFile))
	if err != nil {
		return nil, err
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	return &recording{dir: dir, files: report.Captures, domain: domain, spec: spec}, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if rec, err := quickstart(); err == nil {
		_ = os.RemoveAll(rec.dir)
	}
	os.Exit(code)
}

func (r *recording) fabric(t *testing.T) *fabric.Fabric {
	t.Helper()
	f, err := fabric.New(r.spec, r.domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// plan returns a plan with a tap for each file, with its source from open.
func (r *recording) plan(t *testing.T, epoch uint64, open func(path string) local.Source) local.Plan {
	t.Helper()
	p := local.Plan{Settings: window.Settings{
		Decode: decode.Config{Domain: r.domain}, Resolver: r.fabric(t), Epoch: epoch,
		Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute}, FineHeavyOnly: true, Flows: window.FlowLimits{Top: 20},
	}}
	for _, path := range r.files {
		p.Rings = append(p.Rings, local.Ring{
			Name: strings.TrimSuffix(filepath.Base(path), ".pcapng"), Source: open(path),
			Tap: window.Tap{Tags: true, Reflections: true, Weight: 1},
		})
	}
	return p
}

// file is a capture file as a tap. Batches have at most size frames, with a pause between them.
type file struct {
	r      *capture.Reader
	batch  capture.Batch
	at     int
	size   int
	pause  time.Duration
	more   *atomic.Int64 // number of frames available so far; nil for all
	given  atomic.Int64
	cut    atomic.Bool // no more frames
	closed atomic.Bool
}

func openFile(t *testing.T, path string) *file {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &file{r: r, size: capture.BatchSize}
}

func (f *file) ReadBatch(b *capture.Batch) error {
	b.N = 0
	if f.cut.Load() {
		return io.EOF
	}
	if f.more != nil && f.given.Load() >= f.more.Load() {
		time.Sleep(time.Millisecond)
		return nil
	}
	if f.at == f.batch.N {
		f.at = 0
		if err := f.r.ReadBatch(&f.batch); err != nil {
			return err
		}
	}
	b.N = copy(b.Frames[:f.size], f.batch.Frames[f.at:f.batch.N])
	f.at += b.N
	f.given.Add(int64(b.N))
	time.Sleep(f.pause)
	return nil
}

// LowWatermark returns 0: only the frames' own times advance the clock.
func (f *file) LowWatermark() int64 { return 0 }
func (f *file) Ahead() int64        { return 0 }

func (f *file) Close() error {
	if f.closed.Swap(true) {
		return io.ErrClosedPipe
	}
	return f.r.Close()
}

// identity identifies a block.
type identity struct {
	producer, incarnation, seq uint64
}

// journal keeps rounds in memory.
type journal struct {
	t  *testing.T
	mu sync.Mutex

	held     []aggregate.Block // since the last round
	saved    []local.Mark
	commits  int
	stored   map[identity]aggregate.Block
	onCommit func() error
}

func newJournal(t *testing.T) *journal {
	return &journal{t: t, stored: make(map[identity]aggregate.Block)}
}

func (j *journal) WriteBlock(_ context.Context, b *aggregate.Block) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = append(j.held, *b.Clone())
	return nil
}

// Commit stores the held blocks. A block that is stored again must be the same.
func (j *journal) Commit(_ context.Context, marks []local.Mark) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.onCommit != nil {
		if err := j.onCommit(); err != nil {
			return err
		}
	}
	j.commits++
	j.saved = slices.Clone(marks)
	for _, b := range j.held {
		k := identity{b.Producer, b.Incarnation, b.Seq}
		if old, twice := j.stored[k]; twice && sum(&old) != sum(&b) {
			j.t.Errorf("%+v is stored with other contents", k)
		}
		j.stored[k] = b
	}
	j.held = nil
	return nil
}

func (j *journal) marks() []local.Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.saved)
}

// after returns the highest incarnation of the last round.
func (j *journal) after() (last uint64) {
	for _, m := range j.marks() {
		last = max(last, m.Source.Incarnation)
	}
	return last
}

func sum(b *aggregate.Block) (n uint64) {
	for _, o := range b.Observations {
		n += o
	}
	return n
}

// total returns the number of stored observations at a resolution, in all epochs.
func (j *journal) total(resolution time.Duration) (n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.stored {
		if b.Resolution == int64(resolution) {
			n += sum(&b)
		}
	}
	return n
}

// rows returns the sums of stored values at a resolution, by window and key.
func (j *journal) rows(resolution time.Duration) map[row]values {
	j.mu.Lock()
	defer j.mu.Unlock()
	return addUp(maps.Values(j.stored), resolution)
}

type row struct {
	start            int64
	signal, kind     uint8
	src, dst, at     uint64
	encoding         uint8
	distribution     uint16
	isDistributionOf bool
}

type values struct{ observations, samples, unjudged, bytes, sum, heavy, heavySum, untouched, trimmed, evidence uint64 }

func addUp(blocks func(func(aggregate.Block) bool), resolution time.Duration) map[row]values {
	rows := make(map[row]values)
	for b := range blocks {
		if b.Resolution != int64(resolution) {
			continue
		}
		from := uint32(0)
		for i := range b.Len() {
			k := row{start: b.WindowStart, signal: b.Signal[i], kind: b.Kind[i], src: b.SrcGroup[i], dst: b.DstGroup[i], at: b.Location[i], encoding: b.Encoding[i]}
			v := rows[k]
			v.observations += b.Observations[i]
			v.samples += b.Samples[i]
			v.unjudged += b.Unjudged[i]
			v.bytes += b.Bytes[i]
			v.sum += b.Sum[i]
			v.heavy += b.Heavy[i]
			v.heavySum += b.HeavySum[i]
			v.untouched += b.Untouched[i]
			v.trimmed += b.Trimmed[i]
			v.evidence |= uint64(b.Evidence[i])
			rows[k] = v
			k.isDistributionOf = true
			for d := from; d < b.DistEnd[i]; d++ {
				k.distribution = b.DistCode[d]
				v := rows[k]
				v.observations += b.DistCount[d]
				rows[k] = v
			}
			from = b.DistEnd[i]
		}
	}
	return rows
}

// conserved checks that a finished pipeline accounts for all observations.
func conserved(t *testing.T, s local.Stats) {
	t.Helper()
	c := s.Counts()
	known := c.Stored + c.Overflow + c.Late
	for _, n := range c.Rejected {
		known += n
	}
	if c.In != known || c.In == 0 {
		t.Errorf("%d of %d observations are accounted for: %+v", known, c.In, c)
	}
}
