package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/decode/csig"
)

// configured is a network whose file has a rack, of a name of its own.
func configured(t *testing.T, epoch uint64, rack string) Network {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: %s\ngroups:\n  - {name: %[1]s, level: rack, prefixes: [10.0.%d.0/24]}\ndevices:\n  - {name: leaf-%[1]s, stage: leaf, id: 1, ports: [{name: up1, id: 1, orientation: up, speed: 100Gbps}]}\n", rack, epoch)
	spec, err := fabric.Parse(strings.NewReader(text), rack+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return Network{Epoch: epoch, Text: "configuration of " + rack, Fabric: f}
}

// place opens the place of descriptions in the folder.
func place(t *testing.T, dir string, logger *slog.Logger) *checkpoint.File {
	t.Helper()
	file, err := checkpoint.Open(checkpoint.Options{Dir: dir, Name: "test", Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func holding(list ...*description) func() waiting {
	return func() waiting { return waiting{networks: list} }
}

func epochs(w waiting) (list []uint64) {
	for _, d := range w.networks {
		list = append(list, d.Epoch)
	}
	return list
}

// TestDescriptionsAreKept: they come back as they were, for their owner's eyes alone. What
// has not changed is not written again, and nothing is left once nothing waits.
func TestDescriptionsAreKept(t *testing.T) {
	dir, silent := t.TempDir(), slog.New(slog.DiscardHandler)
	file := place(t, dir, silent)
	d := descriptions{file: file, logger: silent, bytes: maxDescribed}
	net := configured(t, 1, "a")
	runs := []store.Run{{Source: aggregate.Source{Producer: 1 << 63, Incarnation: 2, Epoch: 1}, Mode: store.RunLive, Name: "eth0"}}
	waits := func() waiting { return waiting{[]*description{describe(net, 0)}, runs} }
	number := func() uint64 {
		saved, err := file.Load()
		if err != nil || saved == nil {
			t.Fatalf("%v, %v", saved, err)
		}
		return saved.Number
	}
	d.keep(waits)
	d.keep(waits)
	if n := number(); n != 1 {
		t.Errorf("written %d times, want once", n)
	}
	if err := net.Fabric.RestoreMet([]byte(`{"version": 1, "prefixes": ["192.0.2.0/24"]}`)); err != nil {
		t.Fatal(err)
	}
	d.keep(waits)
	if n := number(); n != 2 {
		t.Errorf("written %d times, want once more for a group that was met", n)
	}
	path := filepath.Join(file.Dir(), "checkpoint")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want it for its owner alone", info, err)
	}
	file.Close()

	file = place(t, dir, silent)
	d = descriptions{file: file, logger: silent, bytes: maxDescribed}
	got, want := d.load(), waits()
	if fmt.Sprintf("%+v", *got.networks[0]) != fmt.Sprintf("%+v", *want.networks[0]) || !slices.Equal(got.runs, runs) || d.empty() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	d.keep(holding())
	if _, err := os.Stat(path); !os.IsNotExist(err) || !d.empty() {
		t.Errorf("what nobody waits for is left: %v", err)
	}
}

// TestDescriptionsAreDamaged: what cannot be read is in the log, what can be is taken, and
// the place is of use again.
func TestDescriptionsAreDamaged(t *testing.T) {
	a := describe(configured(t, 1, "a"), 0)
	for what, damage := range map[string]func(*testing.T, *checkpoint.File){
		"a bit of the names": func(t *testing.T, f *checkpoint.File) {
			path := filepath.Join(f.Dir(), "checkpoint")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)-20] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no file of ours": func(t *testing.T, f *checkpoint.File) {
			if err := os.WriteFile(filepath.Join(f.Dir(), "checkpoint"), []byte("names"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no description": func(t *testing.T, f *checkpoint.File) {
			if err := f.Save([]checkpoint.Section{{Name: networkSection, Data: []byte("{")}, {Name: runsSection, Data: []byte("[1]")}}); err != nil {
				t.Fatal(err)
			}
		},
		"a later version": func(t *testing.T, f *checkpoint.File) {
			if err := f.Save([]checkpoint.Section{{Name: networkSection, Data: []byte(`{"Version": 2}`)}}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			var log bytes.Buffer
			dir, logger := t.TempDir(), slog.New(slog.NewTextHandler(&log, nil))
			file := place(t, dir, logger)
			d := descriptions{file: file, logger: logger, bytes: maxDescribed}
			d.keep(holding(a))
			damage(t, file)
			file.Close()

			file = place(t, dir, logger)
			d = descriptions{file: file, logger: logger, bytes: maxDescribed}
			if w := d.load(); len(w.networks)+len(w.runs) != 0 || log.Len() == 0 {
				t.Errorf("taken for names: %+v; log: %s", w, &log)
			}
			d.keep(holding(a))
			if got := epochs(d.load()); !slices.Equal(got, []uint64{1}) {
				t.Errorf("after the damage: epochs %d, want 1", got)
			}
		})
	}
}

// TestDescriptionsAreBounded: the latest configurations and runs are kept, as many as there
// is room for, and the log says that others are not.
func TestDescriptionsAreBounded(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	d := descriptions{file: place(t, t.TempDir(), logger), logger: logger, bytes: maxDescribed}
	var list []*description
	for i := range maxDescriptions + 2 {
		list = append(list, &description{Version: descriptionVersion, Epoch: uint64(i), Text: strings.Repeat("x", 1000)})
	}
	d.keep(holding(list...))
	if got := epochs(d.load()); len(got) != maxDescriptions || got[0] != 2 || !strings.Contains(log.String(), "configurations=2") {
		t.Errorf("%d epochs from %d; log: %s", len(got), got[0], &log)
	}
	d.bytes = 5000
	d.keep(holding(list[1:]...))
	if got := epochs(d.load()); len(got) != 4 || got[3] != maxDescriptions+1 {
		t.Errorf("epochs %d in 5000 bytes, want the last 4", got)
	}
	runs := make([]store.Run, maxRuns+1)
	for i := range runs {
		runs[i].Incarnation = uint64(i)
	}
	d.keep(func() waiting { return waiting{runs: runs} })
	if got := d.load().runs; len(got) != maxRuns || got[0].Incarnation != 1 || !strings.Contains(log.String(), "runs=1") {
		t.Errorf("%d runs; log: %s", len(got), &log)
	}
}
