package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// killsEnv says how often TestKills kills a process.
const killsEnv = "CSIGSCOPE_TEST_KILLS"

// killsOf is that often, unless it is said: 200 times, and 40 with -short.
func killsOf(t *testing.T) int {
	if text := os.Getenv(killsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", killsEnv, err)
		}
		return n
	}
	if testing.Short() {
		return 40
	}
	return 200
}

var errKilled = errors.New("killed")

// clockwork is a tap with a tagged packet every 10 ms, as long as somebody reads it.
type clockwork struct {
	mu   sync.Mutex
	data []byte
	next time.Time
	sent map[int64]int // packets by the millisecond
	over bool
}

func (c *clockwork) ReadBatch(b *capture.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.N = 0; c.over {
		return io.EOF
	}
	for now := time.Now(); !c.next.After(now) && b.N < len(b.Frames); c.next = c.next.Add(10 * time.Millisecond) {
		b.Frames[b.N] = capture.Frame{Data: c.data, TimeNS: c.next.UnixNano(), WireLen: uint32(len(c.data))}
		b.N++
		c.sent[c.next.UnixMilli()]++
	}
	if b.N == 0 {
		c.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		c.mu.Lock()
	}
	return nil
}

func (*clockwork) QuietUntil() int64 { return 0 }
func (*clockwork) Close() error      { return nil }

// world is what outlives processes: what was stored, and the disk with the marks.
type world struct {
	t       *testing.T
	dir     string
	random  *rand.Rand
	domain  *csig.Domain
	clock   *clockwork
	rows    map[time.Duration]map[int64]uint64 // durable observations by window
	blocks  map[[3]uint64]uint64               // their identities
	gaps    []store.Gap
	kills   int
	damages int
	before  aggregate.Source // of the last process
}

// logOf is the log of one process, which is killed at a moment of a round.
type logOf struct {
	*world
	held   []*aggregate.Block
	rounds int // until it is killed
	torn   bool
}

func (l *logOf) WriteBlock(_ context.Context, b *aggregate.Block) error {
	l.held = append(l.held, b.Clone())
	return nil
}

// Sync makes what is held durable; a process that is killed while it does leaves a part.
func (l *logOf) Sync(context.Context) error {
	if l.rounds == 0 {
		return errKilled
	}
	if l.rounds--; l.rounds == 0 && l.torn {
		l.held = l.held[:l.random.IntN(len(l.held)+1)]
	}
	for _, b := range l.held {
		l.store(b)
	}
	l.held = nil
	if l.rounds == 0 {
		return errKilled // before there are marks
	}
	return nil
}

func (w *world) store(b *aggregate.Block) {
	id := [3]uint64{b.Producer, b.Incarnation, b.Seq}
	if _, twice := w.blocks[id]; twice {
		w.t.Fatalf("block %v is written twice", id)
	}
	w.before = b.Source
	resolution := time.Duration(b.Resolution)
	if w.rows[resolution] == nil {
		w.rows[resolution] = make(map[int64]uint64)
	}
	for _, n := range b.Observations {
		w.blocks[id] += n
		w.rows[resolution][b.WindowStart] += n
	}
}

// live runs a process until it is killed in a round, or to its end.
func (w *world) live(kill bool) {
	l := &logOf{world: w, rounds: -1}
	if kill {
		l.rounds, l.torn = 1+w.random.IntN(40), w.random.IntN(2) == 0
	}
	file, err := checkpoint.Open(checkpoint.Options{Dir: w.dir, Name: "kills", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	records := newRecording(w.t, time.Now())
	j := New(Config{Log: l, File: file, Opened: time.Now(), Records: records.Recorder, Logger: slog.New(slog.DiscardHandler)})
	resolutions := []time.Duration{100 * time.Millisecond, time.Second, time.Minute}
	last := w.before
	marks, err := j.Resume(resolutions, func(_ *local.Mark, gaps []store.Gap) error {
		w.gaps = append(w.gaps, gaps...)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if marks == nil { // as the store does, which knows the last seconds of each run
		w.missAfter(last)
	}
	cfg := local.Config{Instance: "kills", Interval: 500 * time.Millisecond, Journal: j, After: w.before.Incarnation}
	p, err := local.New(cfg, local.Plan{
		Settings: window.Settings{Decode: decode.Config{Domain: w.domain}, Resolver: fabric.None(w.domain), Epoch: 3, Resolutions: resolutions},
		Rings:    []local.Ring{{Name: "leaf", Tap: window.Tap{Tags: true, Weight: 1}, Source: w.clock}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Run(w.t.Context()); kill != errors.Is(err, errKilled) {
		w.t.Fatal(err)
	}
	if kill && w.random.IntN(4) == 0 {
		w.damage(file)
	}
}

// missAfter is the gap of a run without marks.
func (w *world) missAfter(of aggregate.Source) {
	from := int64(0)
	for start := range w.rows[time.Second] {
		from = max(from, start)
	}
	if of.Incarnation > 0 {
		w.gaps = append(w.gaps, store.Gap{Source: of, From: time.Unix(0, from+1e9), To: time.Now(), Reason: store.GapRestart})
	}
}

// damage does something to the file with the marks.
func (w *world) damage(file *checkpoint.File) {
	name := filepath.Join(file.Dir(), "checkpoint")
	b, err := os.ReadFile(name)
	if err != nil {
		return // killed before there was one
	}
	w.damages++
	switch w.random.IntN(4) {
	case 0:
		err = os.Remove(name)
	case 1:
		err = os.Truncate(name, w.random.Int64N(int64(len(b))))
	case 2:
		err = os.Truncate(name, 0)
	default:
		b[w.random.IntN(len(b))] ^= 1 << w.random.IntN(8)
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestKills kills a process in one of its rounds again and again: before anything of it is durable, with a part of
// its rows, or before its marks, a quarter of which are lost, cut or damaged. Each packet
// that was sent outside of all gaps is stored, none is stored twice, and no row has the
// identity of another.
func TestKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain, err := csig.DefaultSpec().Compile()
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 60)
		copy(data[12:], []byte{0x99, 0x00, 0x2b, 0x85, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1})
		w := &world{
			t: t, kills: killsOf(t), dir: t.TempDir(), random: rand.New(rand.NewPCG(16, 10)), domain: domain, rows: map[time.Duration]map[int64]uint64{}, blocks: map[[3]uint64]uint64{},
			clock: &clockwork{data: data, next: time.Now(), sent: map[int64]int{}},
		}
		for range w.kills {
			w.live(true)
			away := time.Duration(w.random.IntN(3000)) * time.Millisecond // nobody is there
			time.Sleep(away)
			w.clock.next = time.Now().Truncate(10 * time.Millisecond)
		}
		time.AfterFunc(10*time.Second, func() {
			w.clock.mu.Lock()
			defer w.clock.mu.Unlock()
			w.clock.over = true
		})
		w.live(false)
		w.check()
	})
}

func (w *world) check() {
	inGap := func(ms int64) bool {
		at := time.UnixMilli(ms)
		for _, g := range w.gaps {
			if !at.Before(g.From.Truncate(time.Millisecond)) && !at.After(g.To) {
				return true
			}
		}
		return false
	}
	sent, outside := map[int64]uint64{}, map[int64]uint64{}
	for ms, n := range w.clock.sent {
		second := time.UnixMilli(ms).Truncate(time.Second).UnixNano()
		sent[second] += uint64(n)
		if !inGap(ms) {
			outside[second] += uint64(n)
		}
	}
	var all, beside, stored uint64
	for second, n := range sent {
		got := w.rows[time.Second][second]
		if all, beside, stored = all+n, beside+outside[second], stored+got; got > n || got < outside[second] {
			w.t.Errorf("second %s: %d of %d packets are stored, %d were sent outside of gaps", time.Unix(0, second).UTC().Format("15:04:05"), got, n, outside[second])
		}
	}
	w.t.Logf("%d kills, %d damaged files: %d packets sent, %d of them outside of %d gaps, %d stored", w.kills, w.damages, all, beside, len(w.gaps), stored)
	if stored > all || beside == 0 || w.damages < w.kills/10 {
		w.t.Errorf("%d stored of %d", stored, all)
	}
}
