package remote

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestQuietOutage: an outage is told of at its begin, then at most once a minute with how
// many pushes were left out, and at its end.
func TestQuietOutage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	log, at := &logBuffer{}, newClock()
	client := clientConfig(t, "http://"+address)
	client.Logger, client.Now = log.logger(), at.now
	c := startClient(t, client)
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, 1), time.Now(), 10)); err != nil {
		t.Fatal(err)
	}
	said := func(text string) int { return strings.Count(log.String(), text) }
	wait(t, "some pushes fail", func() bool { return c.Stats().Failures >= 3 })
	if said("push failed") != 1 || said("left_out") != 0 {
		t.Errorf("in the first minute:\n%s", log)
	}
	at.add(quietFor)
	wait(t, "it is said again", func() bool { return said("push failed") == 2 })
	if said("left_out=") != 1 {
		t.Errorf("a minute later:\n%s", log)
	}
	startCollector(t, testConfig(t), newLedger(), address)
	c.flush(t)
	wait(t, "its end is said", func() bool { return said("collector answers again") == 1 })
	c.stop()
	if said("push failed") != 2 || said("answers again") != 1 {
		t.Errorf("in the end:\n%s", log)
	}
}
