package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/aggregate/store/outbox/outboxtest"
)

// written is an appended record, with a unique weight.
type written struct {
	class  int
	weight uint64
	extent outbox.Extent
}

func corruptionOptions(dir string) outbox.Options {
	return outbox.Options{
		Dir: dir, Classes: []outbox.Class{{Name: "rows"}, {Name: "notes"}}, MaxBytes: 1 << 20, SegmentBytes: 1500,
		Now: func() time.Time { return time.Unix(2000, 0) },
	}
}

// appended is a folder with records of two classes, some of which are acknowledged, left by a
// process that was killed or has closed it.
func appended(t *testing.T, killed bool) (dir string, list []written) {
	dir = t.TempDir()
	l, err := outbox.Open(corruptionOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		at := int64(1000+i) * int64(time.Second)
		w := written{i % 2, 100 + uint64(i), outbox.Extent{From: at, To: at + int64(time.Second)}}
		if err := l.Append(outbox.Record{Class: w.class, Weight: w.weight, Extent: w.extent, Label: fmt.Appendf(nil, "label %d", i), Payload: make([]byte, 100+i)}); err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
		if i == 11 {
			for range 4 { // of the more important class
				e, ok, err := l.Next(nil)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				l.Ack(&e)
				list[2*e.First-1].weight = 0
			}
		}
	}
	if killed {
		copied := t.TempDir()
		if err := os.CopyFS(filepath.Join(copied, "log"), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return filepath.Join(copied, "log"), list
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, list
}

// TestCorruption checks a log after every kind of damage: each record is returned once or lies in
// a loss, whose weight and time equal those of the missing records.
func TestCorruption(t *testing.T) {
	for _, end := range []string{"closed", "killed"} {
		dir, list := appended(t, end == "killed")
		for _, c := range outboxtest.Cases() {
			t.Run(end+"/"+c.Name, func(t *testing.T) {
				damaged := filepath.Join(t.TempDir(), "log")
				if err := os.CopyFS(damaged, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				if err := c.Damage(damaged); err != nil {
					t.Fatal(err)
				}
				judge(t, damaged, list, c.Harmless)
			})
		}
	}
}

func judge(t *testing.T, dir string, list []written, harmless bool) {
	t.Helper()
	l, err := outbox.Open(corruptionOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var losses []outbox.Entry
	given := map[uint64]int{}
	total, counted, uncertain := uint64(0), uint64(0), false
	for range 200 {
		e, ok, err := l.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		switch e.Lost {
		case "":
			given[e.Weight]++
		case outbox.Torn:
		default:
			losses = append(losses, e)
			uncertain = uncertain || e.Lost == outbox.Uncertain
			counted += e.Weight
			if harmless && e.Weight > 0 {
				t.Errorf("%s of weight %d, want no loss", e.Lost, e.Weight)
			}
		}
		l.Ack(&e)
	}
	if w := l.Stats().Waiting; w != (outbox.Waiting{}) {
		t.Errorf("%+v wait when all was given out", w)
	}
	for _, w := range list {
		if w.weight == 0 {
			continue // already acknowledged
		}
		total += w.weight
		if n := given[w.weight]; n > 1 {
			t.Errorf("record of weight %d was given out %d times", w.weight, n)
		} else if n == 1 {
			counted += w.weight
		} else if !covered(losses, w) {
			t.Errorf("record %+v is neither given out nor in one of %d losses", w, len(losses))
		}
	}
	if counted != total && (!uncertain || counted > total) {
		t.Errorf("weight %d given out or lost, want %d", counted, total)
	}
}

func covered(losses []outbox.Entry, w written) bool {
	for _, e := range losses {
		if e.Class == w.class && e.Extent.From <= w.extent.From && e.Extent.To >= w.extent.To {
			return true
		}
	}
	return false
}
