package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// journalCrash names the environment variable that makes TestJournalCrashChild a process
// which aggregates until it is killed: folder, life, where to be killed, and what for.
const journalCrash = "CSIGSCOPE_TEST_JOURNAL_CRASH"

type crashOrder struct {
	Dir   string
	Life  uint64 // from 1
	Point string // the failpoint, empty for none
	At    int    // how often the failpoint is passed before
	Live  bool   // packets of each life are others, and never come again
}

// crashBatches is how many batches of observations there are, and crashBatch their size.
const (
	crashBatches = 300
	crashBatch   = 20
)

// failpoint kills the process as the power button would, but for what is in the page
// cache.
type failpoint struct {
	crashOrder
	passed int
}

func (f *failpoint) pass(point string) {
	if point != f.Point {
		return
	}
	if f.passed++; f.passed > f.At {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// killFS passes the failpoints of writing a checkpoint.
type killFS struct {
	outbox.OS
	at *failpoint
}

func (k *killFS) Open(name string, flag int) (outbox.File, error) {
	if flag&os.O_CREATE != 0 {
		k.at.pass("before write")
	}
	f, err := k.OS.Open(name, flag)
	return &killFile{f, k.at}, err
}

func (k *killFS) Rename(from, to string) error {
	k.at.pass("after sync")
	err := k.OS.Rename(from, to)
	k.at.pass("after rename")
	return err
}

func (k *killFS) SyncDir(dir string) error {
	err := k.OS.SyncDir(dir)
	k.at.pass("after syncing the folder")
	return err
}

type killFile struct {
	outbox.File
	at *failpoint
}

func (k *killFile) Write(b []byte) (int, error) {
	n, err := k.File.Write(b[:len(b)/2])
	k.at.pass("half written")
	if err != nil {
		return n, err
	}
	more, err := k.File.Write(b[len(b)/2:])
	return n + more, err
}

func (k *killFile) Sync() error {
	k.at.pass("written")
	return k.File.Sync()
}

// killStore passes failpoints between blocks.
type killStore struct {
	*Store
	at *failpoint
}

func (k *killStore) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	k.at.pass("before a block")
	err := k.Store.WriteBlock(ctx, b)
	if k.at.Live && err == nil { // what was handed over too early shows, and else what was not waited for
		err = k.Store.Sync(ctx)
	}
	k.at.pass("after a block")
	return err
}

func (k *killStore) Sync(ctx context.Context) error {
	k.at.pass("before sync")
	err := k.Store.Sync(ctx)
	k.at.pass("after syncing the store")
	return err
}

// loggingServer appends what it takes to files, as a server that survives.
type loggingServer struct{ log, gaps *os.File }

// serverRow is a line of its file.
type serverRow struct {
	Probe        probe
	Grain        int
	Observations uint64
	CRC          uint32 // of all numbers of the row
}

func (l *loggingServer) sendBatch(_ context.Context, b *batch, _ string) error {
	text := []byte("\n") // ends a line in which the process was killed
	for i := range b.rows() {
		var sum []byte
		for c := range b.words {
			sum = binary.LittleEndian.AppendUint64(sum, b.words[c][i])
		}
		line, err := json.Marshal(serverRow{b.probe(i), b.grain, b.words[observationsColumn][i], crc32.ChecksumIEEE(sum)})
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	_, err := l.log.Write(text)
	return err
}

func (l *loggingServer) sendGaps(_ context.Context, list []gap) error {
	return json.NewEncoder(l.gaps).Encode(list)
}

func (l *loggingServer) sendRecords(context.Context, insertion) error { return nil }

func (l *loggingServer) present(_ context.Context, _ int, probes []probe) (map[probe]bool, error) {
	found := map[probe]bool{}
	for _, p := range probes {
		found[p] = true
	}
	return found, nil
}

// crashState is what the child keeps beside its shard.
type crashState struct {
	Next        int // batch
	Incarnation uint64
}

// TestJournalCrashChild aggregates batches with a checkpoint every few of them.
func TestJournalCrashChild(t *testing.T) {
	text := os.Getenv(journalCrash)
	if text == "" {
		t.Skip("SKIPPED: this is the child of TestJournalCrash")
	}
	at := &failpoint{}
	if err := json.Unmarshal([]byte(text), &at.crashOrder); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	server := &loggingServer{}
	for name, f := range map[string]**os.File{"server": &server.log, "gaps": &server.gaps} {
		var err error
		if *f, err = os.OpenFile(filepath.Join(at.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &Store{host: "file", logger: slog.New(slog.DiscardHandler)}
	if err := s.openOutboxes(&Outbox{Dir: filepath.Join(at.Dir, "outbox")}, server, time.Minute); err != nil {
		t.Fatal(err)
	}
	s.writer = newWriter(s.deliveries[0].take, retry{logger: s.logger})
	s.writer.start()
	j := journalOn(t, &killStore{s, at}, at.Dir, &killFS{at: at}, JournalOptions{})
	saved, err := j.Resume(ctx)
	if err != nil {
		t.Fatal(err)
	}
	state, shard := crashShard(t, at, j, saved)
	if at.Live && saved != nil {
		g := Gap{Source: shardSource(state), From: saved.Time, To: time.Now(), Reason: GapRestart}
		if err := s.WriteGap(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("\nresumed %d\n", state.Next)
	for ; state.Next < crashBatches; state.Next++ {
		if err := shard.Add(ctx, crashObservations(at, state.Next)); err != nil {
			t.Fatal(err)
		}
		if state.Next%10 != 9 {
			continue
		}
		next := crashState{state.Next + 1, state.Incarnation}
		text, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		b, err := shard.AppendState(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Commit(ctx, checkpoint.Section{Name: "state", Data: text}, checkpoint.Section{Name: "shard", Data: b}); err != nil {
			t.Fatal(err)
		}
		at.pass("after a checkpoint")
	}
	if err := shard.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	at.pass("after the last window")
	if err := j.Release(ctx); err != nil {
		t.Fatal(err)
	}
	at.pass("after the release")
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	counts := shard.Counts()
	fmt.Printf("\ncounted %d of %d\n", counts.Stored+counts.Overflow, counts.In)
}

func shardSource(state crashState) aggregate.Source {
	return aggregate.Source{Producer: 1, Incarnation: state.Incarnation}
}

// crashShard is the shard of the checkpoint or, of a live tap without one, that of a new
// incarnation.
func crashShard(t *testing.T, at *failpoint, j *Journal, saved *checkpoint.Saved) (state crashState, shard *window.Shard) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	state.Incarnation = 1
	if at.Live {
		state.Incarnation = at.Life
	}
	if saved != nil {
		if err := json.Unmarshal(saved.Section("state"), &state); err != nil {
			t.Fatal(err)
		}
	}
	cfg := window.Config{
		Domain: domain, Resolver: countingResolver{}, Tap: window.Tap{Tags: true},
		Source: shardSource(state),
	}
	if saved != nil {
		shard, err = window.RestoreShard(cfg, j, saved.Section("shard"))
	} else {
		shard, err = window.NewShard(cfg, j)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state, shard
}

// crashObservations are those of a batch, three of which make a second.
func crashObservations(at *failpoint, batch int) []decode.Observation {
	life := uint64(0)
	if at.Live {
		life = at.Life
	}
	rng := rand.New(rand.NewPCG(uint64(batch), life))
	obs := make([]decode.Observation, crashBatch)
	for i := range obs {
		obs[i] = decode.Observation{
			TimeNS: testStart.UnixNano() + int64(batch)*int64(time.Second)/3 + int64(rng.IntN(3e8)), Kind: decode.Tag, Bytes: rng.Uint32N(1500),
			Tag: csig.Tag{Layout: csig.LayoutAt(rng.IntN(csig.NumLayouts)), S: rng.Uint32N(32), T: uint8(rng.IntN(3)), LM: 1},
		}
	}
	return obs
}

// crashChild runs a life. It gives where that went on and what it counted, 0 when it was
// killed.
func crashChild(t *testing.T, o crashOrder) (resumed int, counted, in uint64) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestJournalCrashChild$")
	cmd.Env = append(os.Environ(), journalCrash+"="+string(text))
	out, err := cmd.CombinedOutput()
	if killed := strings.Contains(fmt.Sprint(err), "killed"); err != nil && !killed || killed != (o.Point != "") {
		t.Fatalf("%+v: %v\n%s", o, err, out)
	}
	for line := range strings.Lines(string(out)) {
		_, _ = fmt.Sscanf(line, "resumed %d", &resumed)
		_, _ = fmt.Sscanf(line, "counted %d of %d", &counted, &in)
	}
	return resumed, counted, in
}

// tableOf is what the server has. It fails where an identity came with two contents.
func tableOf(t *testing.T, dir string) (map[serverRow]bool, uint64) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type identity struct {
		probe
		grain int
	}
	rows := map[serverRow]bool{}
	of := map[identity]serverRow{}
	sum, torn := uint64(0), 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s serverRow
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			if len(lines.Bytes()) > 0 {
				torn++ // the process was killed in it, and sends it again
			}
			continue
		}
		id := identity{s.Probe, s.Grain}
		if before, twice := of[id]; twice && before != s {
			t.Errorf("a row was stored as %+v and as %+v", before, s)
		} else if !twice && grainAt(s.Grain).Length == time.Second {
			sum += s.Observations
		}
		of[id], rows[s] = s, true
	}
	if torn > 2 {
		t.Errorf("%d torn lines after two kills", torn)
	}
	return rows, sum
}

// checkGaps expects a gap of each restart.
func checkGaps(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "gaps"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[int64]bool{}
	for lines := json.NewDecoder(f); lines.More(); {
		var list []gap
		if err := lines.Decode(&list); err != nil {
			t.Fatal(err)
		}
		for _, g := range list {
			seen[g.To] = true
			if g.Reason != GapRestart || g.source() != (aggregate.Source{Producer: 1, Incarnation: 1}) || g.From >= g.To {
				t.Errorf("gap %+v", g)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d gaps, expected one for each of two restarts", len(seen))
	}
}

// crashPoints are where the processes are killed.
var crashPoints = []string{
	"before sync", "after syncing the store", "before write", "half written", "written", "after sync", "after rename",
	"after syncing the folder", "before a block", "after a block", "after a checkpoint", "after the last window", "after the release",
}

// calmRows are those of a process that nobody kills.
func calmRows(t *testing.T) map[serverRow]bool {
	t.Helper()
	calm := t.TempDir()
	crashChild(t, crashOrder{Dir: calm, Life: 1})
	want, sum := tableOf(t, calm)
	if sum != crashBatches*crashBatch || len(want) < 200 {
		t.Fatalf("undisturbed: %d observations in %d rows", sum, len(want))
	}
	return want
}

// crashTwice kills two processes at a point and lets the third one live.
func crashTwice(t *testing.T, o crashOrder, want map[serverRow]bool) {
	t.Helper()
	crashChild(t, o)
	o.Life, o.At = 2, min(o.At, 4)
	again, _, _ := crashChild(t, o)
	o.Life, o.Point = 3, ""
	resumed, counted, in := crashChild(t, o)
	rows, sum := tableOf(t, o.Dir)
	if resumed == 0 || again == 0 || in == 0 {
		t.Errorf("went on at %d and %d: not resumed", again, resumed)
	}
	if sum != counted {
		t.Errorf("%d observations stored, %d counted", sum, counted)
	}
	if o.Live {
		checkGaps(t, o.Dir)
		return
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows, expected %d", len(rows), len(want))
	}
	for r := range want {
		if !rows[r] {
			t.Fatalf("row %+v is missing", r)
		}
	}
}

// TestJournalCrash kills processes at every step of taking a checkpoint, some of them
// twice, and goes on. A replay ends with the rows of an undisturbed one. A live tap, whose
// packets do not come again, has every row once and as many observations in them as the
// process counted that came to the end, and a gap for each time it was not there.
func TestJournalCrash(t *testing.T) {
	want := calmRows(t)
	for i, point := range crashPoints {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/live=%v", point, live), func(t *testing.T) {
				t.Parallel()
				o := crashOrder{Dir: t.TempDir(), Life: 1, Point: point, At: 8 + i, Live: live}
				if strings.HasPrefix(point, "after the ") {
					o.At = 0
				}
				crashTwice(t, o, want)
			})
		}
	}
}
