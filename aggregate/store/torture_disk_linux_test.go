package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

const (
	smallDisk  = 448 << 10 // bytes
	diskLives  = 4
	diskBlocks = 250 // of each life
)

// diskLane runs an outbox on a disk that is too small, while the engine is away.
func diskLane(t *testing.T, home *errand, look *Store, count *tally, live bool) {
	w, socket := startWire(t, home.Socket, 0, rand.New(rand.NewPCG(1, 1)), count)
	e := &errand{Socket: socket, Dir: t.TempDir(), MaxBytes: 4 << 20, Keep: -1, Live: live, Producer: 30_000_000}
	what := "replay"
	if live {
		e.Producer += diskLives
		what = "live"
	}
	if err := e.sendToDisk(t, &w.down); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("SKIPPED, NO DISK IS FILLED: ", err)
	}
	count.add("full disks", what)
	gaps := map[uint64][numResolutionTables]uint64{}
	for _, g := range storedGaps(t, look) {
		if at, err := resolutionTableOf(time.Duration(g.Resolution)); err == nil && g.Reason == string(lostFull) {
			n := gaps[g.Producer]
			n[at] += g.Observations
			gaps[g.Producer] = n
		} else {
			t.Errorf("gap %+v", g)
		}
	}
	for i := range uint64(diskLives) {
		l := newLifeOf(e.Producer+i, diskBlocks)
		if !live {
			if err := l.compare(t.Context(), look, always); err != nil {
				t.Error(err)
			}
			continue
		}
		st, err := storedOf(t.Context(), look, l.producer)
		if err != nil {
			t.Fatal(err)
		}
		l.compareGaps(t, st, gaps[l.producer])
	}
	t.Logf("gaps by table: %v", gaps)
}

// compareGaps checks that the stored data is right and, together with the gaps, complete, table
// by table. Coarser rows outlast finer ones.
func (l *life) compareGaps(t *testing.T, st stored, gaps [numResolutionTables]uint64) {
	t.Helper()
	var want, got [numResolutionTables]uint64
	for seq := range uint64(len(l.blocks)) {
		g := seq % 3
		for key, total := range l.totals(seq) {
			want[g] += total.observations
			if is, ok := st.blocks[seq][key]; ok {
				got[g] += is.observations
				if is != total {
					t.Errorf("producer %d, block %d: %+v, want %+v", l.producer, seq, is, total)
				}
			}
		}
	}
	for g := range want {
		if got[g]+gaps[g] != want[g] {
			t.Errorf("producer %d, table %s: %d observations stored and %d in gaps, want %d together", l.producer, resolutionTableAt(g).table(), got[g], gaps[g], want[g])
		}
	}
	if gaps[fineTable] == 0 || gaps[minuteTable] > 0 {
		t.Errorf("producer %d: gaps %v, want some of fine rows and none of minutes", l.producer, gaps)
	}
	if st.final != st.distinct || st.raw < st.final {
		t.Errorf("producer %d: %d rows with FINAL of %d identities, %d without", l.producer, st.final, st.distinct, st.raw)
	}
}

// fillingDisk counts errors for a full disk.
type fillingDisk struct {
	outbox.OS
	full atomic.Int64 // errors
}

// Open implements outbox.FS.
func (d *fillingDisk) Open(name string, flag int) (outbox.File, error) {
	f, err := d.OS.Open(name, flag)
	return &fillingFile{f, d}, d.note(err)
}

func (d *fillingDisk) note(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		d.full.Add(1)
	}
	return err
}

type fillingFile struct {
	outbox.File
	disk *fillingDisk
}

// Write implements outbox.File.
func (f *fillingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.disk.note(err)
}

// errNoDisk is the error of a machine that does not let a process mount a file system.
var errNoDisk = errors.New("no file system of a process's own")

// sendToDisk runs a child in a mount namespace of its own, and stops and restores the engine's
// connection on the child's signals.
func (e *errand) sendToDisk(t *testing.T, down *atomic.Bool) error {
	t.Helper()
	err := e.tryDisk(t, down, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS})
	if errors.Is(err, errNoDisk) {
		root := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		err = e.tryDisk(t, down, &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: root(os.Getuid()), GidMappings: root(os.Getgid()),
		})
	}
	return err
}

func (e *errand) tryDisk(t *testing.T, down *atomic.Bool, attr *syscall.SysProcAttr) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTortureDiskChild$", "-test.v")
	cmd.Env = append(os.Environ(), tortureVariable+"="+string(text))
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNoDisk, err)
	}
	var said []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "away" || line == "back":
			down.Store(line == "away")
			fmt.Fprintln(stdin, "done")
		case strings.HasPrefix(line, "no disk"):
			err = fmt.Errorf("%w: %s", errNoDisk, line)
		default:
			said = append(said, line)
		}
	}
	if failed := cmd.Wait(); failed != nil {
		t.Fatalf("child %s: %v\n%s", text, failed, strings.Join(said, "\n"))
	}
	return err
}

// TestTortureDiskChild writes to an outbox on a file system of its own. It asks for the engine's
// removal first, and for its return once the disk has been full.
func TestTortureDiskChild(t *testing.T) {
	e := ownErrand(t)
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("tmpfs", e.Dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk))
	}
	if err != nil {
		fmt.Printf("\nno disk: %v\n", err)
		return
	}
	disk, parent := &fillingDisk{}, bufio.NewScanner(os.Stdin)
	o := e.options(nil)
	o.Outbox.FS = disk
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.deliveries[0].live.Store(e.Live)
	fmt.Print("\naway\n")
	parent.Scan()
	written := make(chan error, 1)
	go func() { written <- writeLives(t.Context(), s, &e) }()
	for disk.full.Load() == 0 || e.Live && len(written) == 0 {
		if len(written) > 0 || t.Context().Err() != nil {
			t.Fatal("the disk was not full")
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Print("\nback\n")
	parent.Scan()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeLives writes lives in turns, three records at a time, one for each table.
func writeLives(ctx context.Context, s *Store, e *errand) error {
	var lives []*life
	for i := range uint64(diskLives) {
		lives = append(lives, newLifeOf(e.Producer+i, diskBlocks))
	}
	for seq := range diskBlocks {
		for _, l := range lives {
			if err := s.WriteBlock(ctx, blockOf(l.blocks[seq])); err != nil {
				return err
			}
		}
		if seq%3 == 2 || seq == diskBlocks-1 {
			if err := s.writer.flush(ctx, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
