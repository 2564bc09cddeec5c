package feed_test

import (
	"context"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// nothing is a sink.
type nothing struct{}

func (nothing) WriteBlock(context.Context, *aggregate.Block) error { return nil }

func lane(t *testing.T) (*feed.Feeder, *feed.Lane) {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	shard, err := aggregate.NewShard(aggregate.Config{Domain: domain, Resolver: fabric.None(domain), Tags: true}, nothing{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := feed.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	return f, feed.NewLane(decode.Ethernet, capture.Mirrors{}, shard)
}

// ipv4 is a packet between two hosts.
var ipv4 = []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1, 0, 1, 0, 2, 0, 8, 0, 0}

func frame(head ...byte) *capture.Frame {
	data := append(append(make([]byte, 12), head...), ipv4...)
	return &capture.Frame{Data: data, TimeNS: time.Now().UnixNano(), WireLen: uint32(len(data))}
}

// TestStripped: a tag that came beside its frame counts as the one that was sent, also a
// VLAN tag before it.
func TestStripped(t *testing.T) {
	f, l := lane(t)
	sent := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00)
	beside := frame(0x08, 0x00)
	beside.TPID, beside.TCI = 0x9900, 0x2b85
	vlan := frame(0x99, 0x00, 0x2b, 0x85, 0x08, 0x00)
	vlan.TPID, vlan.TCI = 0x8100, 7
	for _, frame := range []*capture.Frame{sent, beside, vlan, frame(0x08, 0x00)} {
		if err := f.Add(t.Context(), l, frame); err != nil {
			t.Fatal(err)
		}
	}
	if found := f.Found.List(); l.Pending() != 3 || len(found) != 1 || found[0].Count != 3 {
		t.Errorf("%d observations: %+v; want 3 compact tags", l.Pending(), found)
	}
	if err := l.Pass(t.Context()); err != nil || l.Pending() != 0 || l.Shard().Counts().In != 3 {
		t.Errorf("%d of 3 observations are in the shard, %v", l.Shard().Counts().In, err)
	}
	if f.Decoded().Frames != 4 || f.Frames[decode.NoCSIG] != 1 {
		t.Errorf("counted %+v", f.Tally)
	}
}

// TestNoAllocations holds the way of a packet to none.
func TestNoAllocations(t *testing.T) {
	f, l := lane(t)
	frames := make([]*capture.Frame, 1000)
	start := time.Now().UnixNano()
	for i := range frames {
		frames[i] = frame(0x99, 0x00, 0x2b, byte(i&15), 0x08, 0x00)
		frames[i].TimeNS = start
	}
	run := func() {
		for _, frame := range frames {
			if err := f.Add(t.Context(), l, frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(10, run); n > 0 {
		t.Errorf("%v allocations for %d packets", n, len(frames))
	}
}
