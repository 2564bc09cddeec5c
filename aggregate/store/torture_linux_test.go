package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// Variables of the fault runs.
const (
	tortureKills = "CSIGSCOPE_TEST_TORTURE_KILLS" // how many processes to kill
	tortureSeed  = "CSIGSCOPE_TEST_TORTURE_SEED"  // selects other moments for the faults
	tortureLine  = "CSIGSCOPE_TEST_TORTURE_LINE"  // file for the last line
)

// TestTorture kills processes at every point of a row's way to the server, cuts and repeats their
// requests, kills the engine, makes it unreachable, and fills the disk. After each fault FINAL
// equals the oracle.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: what kills processes has nothing for the race detector")
	}
	started := time.Now()
	kills := int(variable(t, tortureKills, 100))
	seed := variable(t, tortureSeed, 1)
	count := newTally()
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	home := &errand{Socket: engine.Socket(), Dir: t.TempDir()}
	s := home.open(t)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("lanes", func(t *testing.T) {
		for i, l := range lanes() {
			l.home, l.look, l.tally, l.rng = home, s, count, rand.New(rand.NewPCG(seed, uint64(i)))
			l.producer = uint64(i+1) * 100_000
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				l.run(t, kills/len(lanes())+1)
			})
		}
		w := &wireLane{home: home, tally: count, rounds: max(3, kills/10)}
		t.Run("wire", func(t *testing.T) {
			t.Parallel()
			w.run(t, rand.New(rand.NewPCG(seed, 100)))
		})
	})
	t.Run("engine", func(t *testing.T) { engineLane(t, home, count, rand.New(rand.NewPCG(seed, 200)), max(2, kills/100)) })
	noGaps(t, s)
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("disk, live %v", live), func(t *testing.T) { diskLane(t, home, s, count, live) })
	}
	t.Run("away", func(t *testing.T) { awayLane(t, home, count) })
	closeStore(t, s)
	line := fmt.Sprintf("torture: %s; seed %d; %s", count, seed, time.Since(started).Round(time.Second))
	t.Log(line)
	if name := os.Getenv(tortureLine); name != "" {
		if err := os.WriteFile(name, []byte(line+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if n := count.sum("kills"); n < kills {
		t.Errorf("%d kills, want %d", n, kills)
	}
	for group := range pointGroups {
		if count.of("kills", group) == 0 {
			t.Errorf("nothing was killed at %s", group)
		}
	}
}

func variable(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// open opens the store of an errand in this process, without points.
func (e *errand) open(t *testing.T) *Store {
	t.Helper()
	o := e.options(nil)
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := openThrough(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.deliveries[0].live.Store(e.Live)
	return s
}

// openThrough opens a store over a connection that fails from time to time.
func openThrough(ctx context.Context, o Options) (*Store, error) {
	for {
		s, err := Open(ctx, o)
		if err == nil || !errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
			return s, err
		}
	}
}

// noGaps: killed processes and cut or repeated requests leave no gap.
func noGaps(t *testing.T, s *Store) {
	t.Helper()
	if n := rawRows(t, s, "gaps"); n > 0 {
		t.Errorf("%d gaps", n)
	}
}

// tally counts faults by kind and target.
type tally struct {
	mu    sync.Mutex
	kinds map[string]map[string]int
}

func newTally() *tally { return &tally{kinds: map[string]map[string]int{}} }

func (c *tally) add(kind, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[kind] == nil {
		c.kinds[kind] = map[string]int{}
	}
	c.kinds[kind][what]++
}

func (c *tally) of(kind, what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[kind][what]
}

func (c *tally) sum(kind string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.kinds[kind] {
		n += of
	}
	return n
}

// String is "214 faults: 120 kills (append 24, fsync 22), 40 cuts".
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text []string
	all := 0
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		var what []string
		sum := 0
		for _, name := range slices.Sorted(maps.Keys(c.kinds[kind])) {
			what = append(what, fmt.Sprintf("%s %d", name, c.kinds[kind][name]))
			sum += c.kinds[kind][name]
		}
		all += sum
		text = append(text, fmt.Sprintf("%d %s (%s)", sum, kind, strings.Join(what, ", ")))
	}
	return fmt.Sprintf("%d faults: %s", all, strings.Join(text, ", "))
}

// lane is a series of processes that share an outbox and are killed one after another.
type lane struct {
	name string
	errand
	wireRate float64 // of requests that a proxy disturbs; 0 for none

	home     *errand
	look     *Store // without faults
	tally    *tally
	rng      *rand.Rand
	producer uint64
	passes   map[string]int // of a process that survives
}

func lanes() []*lane {
	return []*lane{
		{name: "replay", errand: errand{MaxBytes: 1 << 20, Keep: -1}},
		{name: "live", errand: errand{MaxBytes: 512 << 10, Keep: time.Hour, Live: true}},
		{name: "live, small", errand: errand{MaxBytes: 256 << 10, Keep: -1, Live: true}, wireRate: 0.05},
	}
}

// run kills the given number of processes.
func (l *lane) run(t *testing.T, kills int) {
	l.Socket, l.Dir = l.home.Socket, filepath.Join(t.TempDir(), "outbox")
	if l.wireRate > 0 {
		_, l.Socket = startWire(t, l.home.Socket, l.wireRate, rand.New(rand.NewPCG(l.rng.Uint64(), 1)), l.tally)
	}
	l.passes = l.calibrate(t)
	for killed := 0; killed < kills && !t.Failed(); l.producer++ {
		killed += l.round(t)
	}
}

// calibrate lets one process survive, and returns how often it passes each point.
func (l *lane) calibrate(t *testing.T) map[string]int {
	t.Helper()
	e := l.errand
	e.Producer = l.producer
	out := e.send(t)
	if out.killed || len(out.passed) == 0 {
		t.Fatal("the first process did not live")
	}
	l.recover(t, newLife(l.producer), always)
	l.producer++
	return out.passed
}

// round kills one or two processes that write the same life, and checks the stored data.
func (l *lane) round(t *testing.T) (kills int) {
	t.Helper()
	e, life := l.errand, newLife(l.producer)
	e.Producer = l.producer
	confirmed := map[uint64]bool{}
	unconfirmed := uint64(0) // the first
	for range 1 + l.rng.IntN(2) {
		group := l.choosePoint(&e)
		if e.Clock = clocks[l.rng.IntN(len(clocks))]; e.Clock != 0 {
			l.tally.add("wrong clocks", e.Clock.String())
		}
		out := e.send(t)
		if out.killed {
			kills++
			l.tally.add("kills", group)
		}
		for seq := e.From; seq < out.next; seq++ {
			confirmed[seq] = true
		}
		unconfirmed = max(unconfirmed, out.next)
		e.From = unconfirmed
		switch {
		case l.Live:
			e.From = max(e.From, out.next) + 1 // lost live rows cannot be written again
			unconfirmed = e.From
		case l.rng.IntN(2) == 0:
			e.From = 0
		}
	}
	if l.Live {
		l.recover(t, life, func(seq uint64) bool { return confirmed[seq] })
		return kills
	}
	l.recover(t, life, always, unconfirmed*uint64(l.rng.IntN(2)))
	return kills
}

// clocks are possible errors of a process's clock.
var clocks = []time.Duration{0, 0, 0, -26 * time.Hour, 26 * time.Hour, -1e5 * time.Hour, 1e5 * time.Hour}

// choosePoint draws the point where the next process dies.
func (l *lane) choosePoint(e *errand) (group string) {
	groups := slices.Sorted(maps.Keys(pointGroups))
	group = groups[l.rng.IntN(len(groups))]
	names := pointGroups[group]
	e.Point, e.After = names[l.rng.IntN(len(names))], 0
	e.Pass = 1 + l.rng.IntN(max(1, l.passes[e.Point]))
	if e.Point == anyMoment {
		e.After = time.Duration(1+l.rng.IntN(80)) * time.Millisecond
	}
	return group
}

// recover is the process after the last kill: it writes a life from a block on, if given one, and
// sends all remaining rows.
func (l *lane) recover(t *testing.T, life *life, needed func(uint64) bool, from ...uint64) {
	t.Helper()
	e := l.errand
	e.Clock = clocks[l.rng.IntN(len(clocks))]
	s := e.open(t)
	defer closeStore(t, s)
	for _, at := range from {
		if err := life.write(t.Context(), s, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := life.compare(t.Context(), l.look, needed); err != nil {
		t.Error(err)
	}
}
