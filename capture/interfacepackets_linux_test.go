package capture_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
)

// TestInterfacePackets checks that packets are counted even if no tap captures them.
func TestInterfacePackets(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	before, err := capture.InterfacePackets()
	if err != nil {
		t.Fatal(err)
	}
	// A link that has just come up may lose the first packets.
	sender, sent := livetest.NewSender(t, livetest.SendEnd), uint64(0)
	count := func(name string) uint64 {
		after, err := capture.InterfacePackets()
		if err != nil {
			t.Fatal(err)
		}
		return after[name] - before[name]
	}
	for begun := time.Now(); count(livetest.TapEnd) < 100; sent++ {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d packets were sent, %d passed", sent, count(livetest.TapEnd))
		}
		sender.Send(make([]byte, 60))
	}
	for _, name := range []string{livetest.SendEnd, livetest.TapEnd} { // the system may send some of its own
		if n := count(name); n < 100 || n > sent+100 {
			t.Errorf("%s: %d packets passed, %d were sent", name, n, sent)
		}
	}
	if n := count("no-such-if"); n != 0 {
		t.Errorf("an interface that is not there: %d packets", n)
	}
}
