package replay_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
)

// A capture that is damaged in the middle must give the same rows of its intact parts at any pace
// and with any number of cores. decode must list the same packets, and gaps must be counted.
func TestDamage(t *testing.T) {
	t.Run("classic", func(t *testing.T) { replayDamage(t, shared(t, classic)) })
	t.Run("pcapng", func(t *testing.T) { replayDamage(t, shared(t, singleFile)) })
}

func replayDamage(t *testing.T, rec recording) {
	t.Helper()
	data, err := os.ReadFile(rec.files[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(data[len(data)/2 : len(data)/2+30_000])
	damaged := filepath.Join(t.TempDir(), "damaged.pcap")
	if err := os.WriteFile(damaged, data, 0o600); err != nil {
		t.Fatal(err)
	}
	rec.files = []string{damaged}
	for _, chunkBytes := range []int64{300 << 10, 0, -1} {
		var want, paced blocks
		cfg := rec.config(&want)
		cfg.ChunkBytes, cfg.Workers = chunkBytes, 3
		fast := replayed(t, cfg)
		cfg.Sink, cfg.Pace = &paced, 1e6
		slow := replayed(t, cfg)
		if !reflect.DeepEqual(paced.sorted(), want.sorted()) || fast.Packets != slow.Packets || fast.Damaged != slow.Damaged {
			t.Errorf("chunks of %d bytes: %d packets, %+v; paced: %d, %+v, or blocks differ",
				chunkBytes, fast.Packets, fast.Damaged, slow.Packets, slow.Damaged)
		}
		if lost := rec.report.Captured - fast.Packets; lost == 0 || lost > rec.report.Captured/2 {
			t.Errorf("chunks of %d bytes: %d of %d packets", chunkBytes, fast.Packets, rec.report.Captured)
		}
		if d := fast.Damaged; d.Gaps != 1 || d.Bytes < 30_000 || d.Bytes > 200_000 || len(fast.Cuts) != 1 {
			t.Errorf("damage %+v, cuts %v", d, fast.Cuts)
		}
		if found, ok := errors.AsType[*capture.DamageError](fast.Cuts[0]); !ok || found.File != damaged {
			t.Errorf("cut %v", fast.Cuts[0])
		}
		if chunkBytes != 0 {
			continue
		}
		l, err := replay.NewLister(listConfig(t, new(bytes.Buffer)))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Run(t.Context(), rec.files); err == nil || !strings.Contains(err.Error(), "damaged in 1 place, ") || strings.Count(err.Error(), "read capture") != 1 {
			t.Errorf("list: error %v", err)
		}
		if c := l.Counts(); c.Packets != fast.Packets || c.Damaged != fast.Damaged {
			t.Errorf("list: %d packets, %+v, want %d, %+v", c.Packets, c.Damaged, fast.Packets, fast.Damaged)
		}
	}
}
