package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestCollectExample: the annotated example is a valid configuration, and so is its dump.
func TestCollectExample(t *testing.T) {
	t.Parallel()
	example := filepath.Join("testdata", "collect.yaml")
	if r := runBinary(t, os.Environ(), "config", "check", "--config", example); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	dumped := mustRun(t, os.Environ(), "config", "dump", "--config", example)
	for _, want := range []string{"interface: eth1", "rings: 2", "commit_interval: 1s", "timestamps: auto", "store_time: 30s", "tpid: 0x9900"} {
		if !strings.Contains(dumped, want) {
			t.Errorf("the dump has no %q", want)
		}
	}
	again := writeFile(t, filepath.Join(t.TempDir(), "dumped.yaml"), dumped)
	if twice := mustRun(t, os.Environ(), "config", "dump", "--config", again); twice != dumped {
		t.Error("a dump of the dump differs")
	}
}

// TestCollectMistakes: each mistake gives one line with its place, and exit code 2.
func TestCollectMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct{ name, config, want string }{
		{"no taps", "", "nothing to collect"},
		{"unknown key", "collect:\n  tabs: []\n", `line 2: unknown key "tabs"`},
		{"no interface", "collect:\n  taps:\n  - {name: a}\n", "expected the name of an interface"},
		{"place", "collect:\n  taps:\n  - interface: lo\n    place: moon\n", `line 4: collect: taps: place: "moon": expected one of [receiver sender mid]`},
		{"direction", "collect:\n  taps:\n  - {interface: lo, direction: up}\n", "expected one of [in both]"},
		{"rings", "collect:\n  taps:\n  - {interface: lo, rings: 1000}\n", "expected 1 to 256"},
		{"twice", "collect:\n  taps:\n  - {interface: lo}\n  - {interface: lo}\n", `line 4: collect: taps[1]: "lo" is there twice`},
		{"mirror kind", "collect:\n  mirrors:\n  - {listen: 127.0.0.1}\n", "line 3: collect: mirrors[0]: mirror \"127.0.0.1\": expected a kind"},
		{"mirror port", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: vxlan}\n", "expected IP:PORT such as 192.0.2.1:4789"},
		{"mirror host", "collect:\n  mirrors:\n  - {listen: \"127.0.0.1:1\", kind: erspan}\n", "without a port: GRE has none"},
		{"mirror session", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {1024: {}}}\n", `erspan 127.0.0.1: session "1024" of erspan: expected a session of 0 to 1023`},
		{"mirror switch", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {spine/7: {}}}\n", `session "spine/7": expected SESSION, ADDRESS or ADDRESS/SESSION`},
		{"mirror session's place", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {7: {place: moon}}}\n", `line 3: collect: mirrors: sessions: 7: place: "moon": expected one of`},
		{"mirror clock", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, clock: sun}\n", `line 3: collect: mirrors: clock: "sun": expected one of [collector switch]`},
		{"mirror sessions", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, max_sessions: 1, sessions: {1: {}, 2: {}}}\n", "2 sessions: expected at most max_sessions, 1"},
		{"mirror session key", "collect:\n  mirrors:\n  - {listen: 127.0.0.1, kind: erspan, sessions: {7: {plaice: mid}}}\n", `line 3: unknown key "plaice"`},
		{"interval", "collect:\n  commit_interval: 1ms\n", "line 2: collect: commit_interval: 1ms: expected 10ms to 1h"},
		{"name", "collect:\n  instance: [a]\n", "line 2: collect: instance: is a list, expected a text"},
	} {
		path := writeFile(t, filepath.Join(dir, "config.yaml"), tt.config)
		r := runBinary(t, os.Environ(), "collect", "--config", path, "--store", "embedded:"+filepath.Join(dir, "store"))
		if r.code != exitUsage || !strings.Contains(r.stderr, tt.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, want 2 and %q: %s", tt.name, r.code, tt.want, r.stderr)
		}
	}
	loopback := writeFile(t, filepath.Join(dir, "loopback.yaml"), "collect: {taps: [{interface: lo, promiscuous: true}]}\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--interface", "no-such-if"}, 1, "no-such-if"},
		{[]string{"--interface", "lo", "--config", loopback}, 2, `--interface "lo": the configuration or this flag names that tap already: name it once`},
		{[]string{"--interface", "lo,lo"}, 2, `--interface "lo": the configuration or this flag names that tap already: name it once`},
		{[]string{"--interface", "lo", "--place", "moon"}, 2, `--place "moon"`},
		{[]string{"--interface", "lo", "--commit-interval", "1ns"}, 2, `--commit-interval "1ns": expected 10ms to 1h`},
		{[]string{"--ingest-listen", "0.0.0.0:4319"}, 2, "other machines reach this address, and there is no TLS certificate: use tls and tokens of collect.ingest instead, or allow it with --ingest-dangerously-exposed"},
		{[]string{"--ingest-listen", "4319"}, 2, "expected HOST:PORT"},
		{[]string{"extra"}, 2, "extra"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"collect", "--store", "embedded:" + filepath.Join(dir, "store")}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", tt.args, r.code, tt.code, tt.want, r.stderr)
		}
	}
}

// TestCollectSettings: a changed list of exporters or their limits need no restart, a change of
// their token file or maximum number does. Of the section api, only origins and limits need none.
func TestCollectSettings(t *testing.T) {
	t.Parallel()
	settings := func(text string) config.Settings {
		t.Helper()
		n, err := openNetwork(writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text), "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := collectSettings(n)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := settings("collect: {ingest: {tokens: t, exporters: [{name: h}], limits: {rows: 1e5, exporters: 7}}}")
	if list := before.Differ(settings("collect: {ingest: {tokens: t, exporters: [{name: g, rows: 2e5}], limits: {rows: 3e5, exporters: 7}}}")); len(list) > 0 {
		t.Errorf("a restart is wanted for %v", list)
	}
	if list := before.Differ(settings("collect: {ingest: {tokens: u, limits: {exporters: 8}}}")); !slices.Equal(list, []string{"collect.ingest.limits.exporters", "collect.ingest.tokens"}) {
		t.Errorf("a restart is wanted for %v", list)
	}
	open := settings("")
	if list := open.Differ(settings("api: {origins: [https://te.example], limits: {requests: 7}}")); len(list) > 0 {
		t.Errorf("a restart is wanted for %v", list)
	}
	want := []string{"api.anonymous", "api.answer_time", "api.clients", "states.clear", "states.onset"}
	if list := open.Differ(settings("api: {anonymous: none, clients: c, answer_time: 1s}\nstates: {onset: 0.5, clear: 0.4}")); !slices.Equal(list, want) {
		t.Errorf("a restart is wanted for %v, want %v", list, want)
	}
}

// TestServeSettings: query serve names the settings that it uses and a reload does not change, unless a flag sets them.
func TestServeSettings(t *testing.T) {
	t.Parallel()
	settings := func(text string, flags ...string) config.Settings {
		t.Helper()
		path := writeFile(t, filepath.Join(t.TempDir(), "config.yaml"), text)
		var f serveFlags
		cmd := new(cobra.Command)
		addStoreFlag(cmd, &f.dsn)
		if err := cmd.ParseFlags(append(flags, "--config", path)); err != nil {
			t.Fatal(err)
		}
		_, s, err := f.read(cmd, path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const changed = "store: {dsn: none, max_disk: 1GB, outbox: {size: 2GB}}\nstates: {onset: 0.5}\nmemory_limit: 1GB\napi: {answer_time: 1s, limits: {requests: 7}}\ncollect: {instance: me}"
	for flag, want := range map[string][]string{
		"--config=":          {"api.answer_time", "memory_limit", "states.onset", "store.dsn", "store.max_disk"},
		"--store=embedded:x": {"api.answer_time", "memory_limit", "states.onset", "store.max_disk"},
	} {
		if list := settings("", flag).Differ(settings(changed, flag)); !slices.Equal(list, want) {
			t.Errorf("%s: a restart is wanted for %v, want %v", flag, list, want)
		}
	}
}

// slowLog accepts blocks unless it is full, and makes them durable when it is released.
type slowLog struct {
	rowLog
	full    error
	release chan error
	lost    uint64
}

func (l *slowLog) Unlogged() uint64 { return l.lost }

func (l *slowLog) WriteBlock(context.Context, *aggregate.Block) error { return l.full }

func (l *slowLog) Commit(context.Context, []byte) error { return <-l.release }

func (l *slowLog) Sync(context.Context) error { return l.full }

// TestWatchedStore: live readers see the blocks that the store has accepted, as durable once a
// round is committed.
func TestWatchedStore(t *testing.T) {
	log, live := &slowLog{release: make(chan error)}, table.NewMemory(table.MemoryOptions{Now: tabletest.Still})
	top := newTopBottlenecks()
	s := &watchedStore{rowLog: log, watching: aggregate.Sinks{top, live}, live: []*table.Memory{live}, unlogged: new(atomic.Uint64)}
	writeAt := func(second int64) error {
		defer live.Publish()
		return s.WriteBlock(t.Context(), tabletest.Block(rand.New(rand.NewPCG(1, 2)), 1, time.Unix(second, 0), 4, csig.MaxDelay))
	}
	write := func() error { return writeAt(1e9) }
	described := false
	s.describe = func() { described, log.full = true, errors.New("disk full") }
	if err := s.Sync(t.Context()); !described || !errors.Is(err, log.full) {
		t.Errorf("Sync: %v, names written before: %t", err, described)
	}
	if err := write(); !errors.Is(err, log.full) || len(live.State().Windows) > 0 {
		t.Errorf("write to a full log: %v, %d windows are shown", err, len(live.State().Windows))
	}
	log.full = nil
	if err := write(); err != nil {
		t.Fatal(err)
	}
	synced := make(chan error)
	for _, want := range []error{errors.New("disk is slow"), nil} {
		go func() { synced <- s.Commit(t.Context(), nil) }()
		if state := live.State(); len(state.Windows) != 1 || state.Durable(state.Windows) {
			t.Errorf("before Commit returned: %d windows, durable %v", len(state.Windows), state.Durable(state.Windows))
		}
		log.release <- want
		if err := <-synced; !errors.Is(err, want) {
			t.Errorf("Commit: %v, want %v", err, want)
		}
		state, heavy := live.State(), top.Top(1e18, 9)
		if state.Durable(state.Windows) != (want == nil) {
			t.Errorf("after Commit returned %v: durable %v", want, state.Durable(state.Windows))
		}
		if err := write(); err != nil { // an exporter that got the error retries
			t.Fatal(err)
		}
		if again := live.State(); again.Revision != state.Revision || !reflect.DeepEqual(heavy, top.Top(1e18, 9)) || len(heavy) == 0 {
			t.Errorf("a block that came again made revision %d of %d, and top %+v of %+v", again.Revision, state.Revision, top.Top(1e18, 9), heavy)
		}
	}
	// The disk fails, and an exporter has to send a window again: a round of the collector's taps does not make it durable.
	s.describe = nil
	received := *s
	for i, lost := range []uint64{1, 1} {
		log.lost = lost
		if err := writeAt(1e9 + 1 + int64(i)); err != nil {
			t.Fatal(err)
		}
		if err := received.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if state := live.State(); len(state.Windows) != 3 || !state.Durable(state.Windows[:1]) || state.Durable(state.Windows[1:2]) || !state.Durable(state.Windows[2:]) {
		t.Errorf("%d windows, durable %t, %t and %t, want all but the second", len(state.Windows), state.Durable(state.Windows[:1]), state.Durable(state.Windows[1:2]), state.Durable(state.Windows[2:]))
	}
}
