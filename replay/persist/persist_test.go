package persist

import (
	"maps"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// TestTapRow checks that each count is in its column and that reasons with a count of 0 are left
// out.
func TestTapRow(t *testing.T) {
	c := replay.TapCounts{
		Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, Seq: 4, Name: "rack1", Tap: window.TapAt("receiver", 10),
		Interface: capture.Interface{Name: "eth0", NanosPerTick: 1},
		Counts:    aggregate.Counts{In: 50, Stored: 30, Overflow: 5, Late: 8, Untouched: 2, Trimmed: 1},
	}
	c.Counts.Rejected[aggregate.RejectPlace] = 7
	c.Tally.Packets, c.Tally.WireBytes, c.Tally.First, c.Tally.Last = 6, 600, 100, 200
	c.Tally.Frames[decode.Hidden] = 6
	row := TapRow(&c)
	if row.Source != c.Source || row.Seq != 4 || row.Name != "rack1" || row.Place != "receiver" || row.Interface != "eth0" || row.TickNS != 1 {
		t.Errorf("identity %+v", row)
	}
	if row.Packets != 6 || row.Bytes != 600 || row.From != 100 || row.To != 200 || !maps.Equal(row.Frames, map[string]uint64{decode.Hidden.String(): 6}) {
		t.Errorf("packets %+v", row)
	}
	if row.Observations != 50 || row.Stored != 30 || row.Overflow != 5 || row.Late != 8 || row.Untouched != 2 || row.Trimmed != 1 ||
		!maps.Equal(row.Rejected, map[string]uint64{aggregate.RejectPlace.String(): 7}) {
		t.Errorf("observations %+v", row)
	}
}

// TestNoFiles expects an error in the files before anything is stored.
func TestNoFiles(t *testing.T) {
	if _, err := New(replay.Config{Files: []string{t.TempDir() + "/missing.pcap"}}, Network{}); err == nil {
		t.Error("a missing capture: no error")
	}
}
