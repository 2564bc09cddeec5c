package replay_test

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// recording is an emitted capture with everything that a replay needs.
type recording struct {
	files  []string
	fabric *fabric.Fabric
	domain *csig.Domain
	report simulation.Report
}

// record emits the quickstart scenario.
func record(t *testing.T, change func(*scenario.Scenario)) recording {
	t.Helper()
	report := emittertest.Run(t, recorded(t, change), t.TempDir())
	f, domain := emittertest.Network(t, report.Fabric)
	return recording{report.Captures, f, domain, report}
}

// recorded returns the scenario that record emits.
func recorded(t *testing.T, change func(*scenario.Scenario)) scenario.Scenario {
	t.Helper()
	s := emittertest.Named(t, "quickstart")
	s.TagEvery, s.RepeatAckEvery = 2, 3
	s.Duration = 2500 * time.Millisecond
	change(&s)
	return s
}

// recordings are the recordings of shared.
var recordings struct {
	mu   sync.Mutex
	dir  string // folder of all of them
	made []sharedRecording
}

type sharedRecording struct {
	scenario scenario.Scenario
	emit     func() (simulation.Report, error)
}

// shared is like record for tests that do not change the files. Equal recordings are emitted only
// once, since emitting takes longer than most replays.
func shared(t *testing.T, change func(*scenario.Scenario)) recording {
	t.Helper()
	s := recorded(t, change)
	report, err := emitOnce(s)()
	if err != nil {
		t.Fatal(err)
	}
	f, domain := emittertest.Network(t, report.Fabric)
	return recording{slices.Clone(report.Captures), f, domain, report}
}

func emitOnce(s scenario.Scenario) func() (simulation.Report, error) {
	recordings.mu.Lock()
	defer recordings.mu.Unlock()
	for _, r := range recordings.made {
		if reflect.DeepEqual(r.scenario, s) {
			return r.emit
		}
	}
	dir := filepath.Join(recordings.dir, strconv.Itoa(len(recordings.made)))
	emit := sync.OnceValues(func() (simulation.Report, error) {
		return simulation.Run(context.Background(), s, dir, nil)
	})
	recordings.made = append(recordings.made, sharedRecording{s, emit})
	return emit
}

// classic puts all taps into one classic pcap file, which is split into chunks.
func classic(s *scenario.Scenario) { s.Classic, s.SingleFile = true, true }

// singleFile puts all taps into one pcapng file with one interface per tap.
func singleFile(s *scenario.Scenario) { s.SingleFile = true }

// blocks is a sink that stores its blocks.
type blocks struct {
	mu   sync.Mutex
	list []aggregate.Block
}

func (s *blocks) WriteBlock(_ context.Context, b *aggregate.Block) error {
	c := *b.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, c)
	return nil
}

// sorted returns the blocks in the order of their identities.
func (s *blocks) sorted() []aggregate.Block {
	slices.SortFunc(s.list, func(a, b aggregate.Block) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Seq, b.Seq))
	})
	return s.list
}

func (s *blocks) observations(resolution time.Duration) (n uint64) {
	for i := range s.list {
		if s.list[i].Resolution == int64(resolution) {
			for _, o := range s.list[i].Observations {
				n += o
			}
		}
	}
	return n
}

func (rec *recording) config(sink aggregate.Sink) replay.Config {
	return replay.Config{
		Files: rec.files, Sink: sink, Workers: 1, Logger: slog.New(slog.DiscardHandler),
		Tap: func(string) window.Tap { return window.Tap{Tags: true, Reflections: true, Weight: 1} },
		Settings: window.Settings{
			Decode: decode.Config{Domain: rec.domain}, Resolver: rec.fabric, Epoch: 3,
			Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute}, FineHeavyOnly: true,
			Flows: window.FlowLimits{Top: 20},
		},
	}
}

// replayed runs the replay and checks that nothing was lost.
func replayed(t *testing.T, cfg replay.Config) *replay.Result {
	t.Helper()
	r, err := replay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	result := r.Result()
	if !result.Conserved() {
		t.Errorf("observations are not conserved: %+v", result.Counts)
	}
	return result
}
