package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// killsEnv overrides the number of kills in TestKills.
const killsEnv = "CSIGSCOPE_TEST_KILLS"

// killsOf returns the number of kills: killsEnv, or 200, or 40 with -short.
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

// clockwork is a tap with a tagged packet every 10 ms, as long as it is read.
type clockwork struct {
	mu   sync.Mutex
	data []byte
	next time.Time
	sent map[int64]int // packets per millisecond
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

func (*clockwork) LowWatermark() int64 { return 0 }
func (*clockwork) Ahead() int64        { return 0 }
func (*clockwork) Close() error        { return nil }

// world is the state that survives processes: durable rows and marks.
type world struct {
	t      *testing.T
	marks  []byte
	random *rand.Rand
	domain *csig.Domain
	clock  *clockwork
	rows   map[time.Duration]map[int64]uint64 // durable observations by window
	blocks map[[3]uint64]uint64               // identities of rows
	gaps   []store.Gap
	kills  int
	losses int              // number of lost marks
	before aggregate.Source // source of the last process
}

// logOf is the log of one process, which is killed in a round.
type logOf struct {
	*world
	held   []*aggregate.Block
	rounds int // until the kill
}

func (l *logOf) WriteBlock(_ context.Context, b *aggregate.Block) error {
	l.held = append(l.held, b.Clone())
	return nil
}

// Commit makes blocks and marks durable. A process killed in Commit leaves nothing of the
// round, all of it, or some blocks if they exceeded memory.
func (l *logOf) Commit(_ context.Context, marks []byte) error {
	if l.rounds == 0 {
		return errKilled
	}
	if l.rounds--; l.rounds != 0 {
		l.keep(len(l.held))
		l.marks = marks
		return nil
	}
	switch l.random.IntN(3) {
	case 0:
		l.keep(l.random.IntN(len(l.held) + 1))
	case 1:
		l.keep(len(l.held))
		l.marks = marks
	}
	return errKilled
}

// Marks implements Log.
func (l *logOf) Marks() ([][]byte, error) {
	if l.marks == nil {
		return nil, nil
	}
	return [][]byte{l.marks}, nil
}

func (l *logOf) keep(blocks int) {
	for _, b := range l.held[:blocks] {
		l.store(b)
	}
	l.held = nil
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
		l.rounds = 1 + w.random.IntN(40)
	}
	records := newRecording(w.t, time.Now())
	j := New(Config{Log: l, Name: "kills", Opened: time.Now(), Records: records.Recorder, Logger: slog.New(slog.DiscardHandler)})
	resolutions := []time.Duration{100 * time.Millisecond, time.Second, time.Minute}
	last := w.before
	marks, err := j.Resume(&window.Settings{Resolutions: resolutions}, func(_ *local.Mark, gaps []store.Gap) error {
		w.gaps = append(w.gaps, gaps...)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if marks == nil { // like the store, which knows the last seconds of each run
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
	if kill && w.marks != nil && w.random.IntN(4) == 0 {
		w.marks = nil // damaged: the log does not return them
		w.losses++
	}
}

// missAfter adds the gap of a run without marks.
func (w *world) missAfter(of aggregate.Source) {
	from := int64(0)
	for start := range w.rows[time.Second] {
		from = max(from, start)
	}
	if of.Incarnation > 0 {
		w.gaps = append(w.gaps, store.Gap{Source: of, From: time.Unix(0, from+1e9), To: time.Now(), Reason: store.GapRestart})
	}
}

// TestKills repeatedly kills a process in one of its rounds: before or after the round is
// durable, or with a part of its rows. A quarter of the marks are lost. Each packet outside of
// all gaps is stored, none is stored twice, and no row has the identity of another.
func TestKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain, err := csig.DefaultSpec().Compile()
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 60)
		copy(data[12:], []byte{0x99, 0x00, 0x2b, 0x85, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1})
		w := &world{
			t: t, kills: killsOf(t), random: rand.New(rand.NewPCG(16, 10)), domain: domain, rows: map[time.Duration]map[int64]uint64{}, blocks: map[[3]uint64]uint64{},
			clock: &clockwork{data: data, next: time.Now(), sent: map[int64]int{}},
		}
		for range w.kills {
			w.live(true)
			away := time.Duration(w.random.IntN(3000)) * time.Millisecond // no process runs
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
	w.t.Logf("%d kills, marks lost %d times: %d packets sent, %d of them outside of %d gaps, %d stored", w.kills, w.losses, all, beside, len(w.gaps), stored)
	if stored > all || beside == 0 || w.losses < w.kills/10 {
		w.t.Errorf("%d stored of %d", stored, all)
	}
}
