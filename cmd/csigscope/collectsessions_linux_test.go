package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// tapAnswer is one line of query taps.
type tapAnswer struct {
	Tap, Place, Interface, Timestamps         string
	Packets, Observations, Stored, Tags, Lost uint64
	KernelDrops                               uint64 `json:"kernel_drops"`
	Rejected                                  string
}

func askTaps(t *testing.T, env []string, dsn string) map[string]tapAnswer {
	t.Helper()
	taps := map[string]tapAnswer{}
	for _, tap := range decodeJSON[[]tapAnswer](t, mustRun(t, env, "query", "taps", "--store", dsn, "-o", "json")) {
		taps[tap.Tap] = tap
	}
	return taps
}

// mirrorTo sends packets of mirror sessions.
func mirrorTo(t *testing.T, network, address string) func(packet ...byte) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	frame := livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)
	return func(header ...byte) {
		t.Helper()
		if _, err := conn.Write(append(header, frame...)); err != nil {
			t.Fatal(err)
		}
	}
}

// collectMirrored captures frames that switches mirror to this host: each session is a tap with
// its place, weight, losses and clock, over a kill and a reload; sessions beyond the limit
// count as the mirror itself.
func collectMirrored(t *testing.T, env []string) {
	dir := t.TempDir()
	dsn, address, metrics := newStore(t, env, filepath.Join(dir, "store")), "127.0.0.1:4789", freeAddress(t)
	const section = `collect:
  commit_interval: 200ms
  mirrors:
  - listen: "127.0.0.1:4789"
    kind: vxlan
    name: spine
    place: receiver
    weight: 10
    max_sessions: 2
    sessions: {78: {place: mid, weight: %d}}
  - {listen: 127.0.0.1, kind: erspan, name: leaf, clock: %s}
`
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, fmt.Sprintf(section, 1, "switch"))
	start := func() *collecting {
		return runUntil(t, env, "collecting from leaf (127.0.0.1), spine ("+address+")", "collect", "--config", config, "--store", dsn, "--metrics-listen", metrics)
	}
	c := start()
	vxlan, erspan := mirrorTo(t, "udp", address), mirrorTo(t, "ip:47", "127.0.0.1")
	const packets = 1000
	send := func() {
		for i := range packets {
			for _, network := range []byte{77, 78, 79} {
				vxlan(8, 0, 0, 0, 0, 0, network, 0)
			}
			// ERSPAN type III, whose timestamp is a part of a second; every tenth packet is
			// lost.
			at := time.Now().Nanosecond()
			if i%10 != 5 {
				erspan(0x10, 0, 0x22, 0xeb, 0, 0, byte(i>>8), byte(i), 0x20, 1, 0, 5, byte(at>>24), byte(at>>16), byte(at>>8), byte(at), 0, 0, 0, 4)
			}
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	send()
	c.waitCounted(metrics, filepath.Join(dir, "store"), 21*packets+packets*9/10)
	c.waitRounds(filepath.Join(dir, "store"), 30) // windows close
	c.end(syscall.SIGKILL)
	c = start()
	writeFile(t, config, fmt.Sprintf(section, 5, "switch"))
	reload := func() {
		if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	reload()
	c.waitLog("msg=reloaded", 1)
	send()
	writeFile(t, config, fmt.Sprintf(section, 5, "collector"))
	reload()
	c.waitLog("changing its name, kind, buffer, clocks or max_sessions takes a restart", 1)
	c.end(syscall.SIGTERM)

	want := map[string]tapAnswer{
		"spine":              {Place: "receiver", Interface: address, Timestamps: "software", Packets: 2 * packets, Observations: 20 * packets, Stored: 20 * packets, Tags: 20 * packets},
		"spine/127.0.0.1/77": {Place: "receiver", Interface: "vxlan/127.0.0.1/77", Timestamps: "software", Packets: 2 * packets, Observations: 20 * packets, Stored: 20 * packets, Tags: 20 * packets},
		"spine/127.0.0.1/78": {Place: "mid", Interface: "vxlan/127.0.0.1/78", Timestamps: "software", Packets: 2 * packets, Observations: 6 * packets, Tags: 6 * packets, Rejected: fmt.Sprint("place=", 6*packets)},
		"leaf/127.0.0.1/5":   {Place: "receiver", Interface: "erspan/127.0.0.1/5", Timestamps: "switch", Packets: packets * 9 / 5, Observations: packets * 9 / 5, Stored: packets * 9 / 5, Tags: packets * 9 / 5, Lost: packets / 5},
	}
	keepEngine(t, env, dsn)
	got := askTaps(t, env, dsn)
	for name, w := range want {
		if w.Tap = name; got[name] != w {
			t.Errorf("%s: got %+v, want %+v", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d taps, want %d: %+v", len(got), len(want), got)
	}
	if n := stored(t, env, dsn); n != 40*packets+packets*9/5 {
		t.Errorf("%d observations stored", n)
	}
	if r := runBinary(t, env, "schema", "verify", "--store", dsn); r.code != 0 {
		t.Errorf("schema verify: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, c.log())
	}
	if strings.Count(c.log(), "level=ERROR") != 1 { // the refused reload
		t.Errorf("the log has failures:\n%s", c.log())
	}
}

// collectForged: after a reload that declares mirror sessions at an interface, their frames are
// unwrapped. Other sessions, and sessions inside mirrored frames, reach the decoder and are
// orphans.
func collectForged(t *testing.T, env []string) {
	dir := t.TempDir()
	dsn, metrics := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	const section = `collect:
  commit_interval: 200ms
  taps: [{interface: %s, mirrors: [%s]}]
  mirrors: [{listen: "127.0.0.1:4789", kind: vxlan, name: spine}]
taps:
- {name: spine, place: receiver, mirrors: [erspan]}
- {name: spine/127.0.0.1/77, place: receiver, mirrors: [erspan]}
`
	config := filepath.Join(dir, "config.yaml")
	writeFile(t, config, fmt.Sprintf(section, livetest.TapEnd, ""))
	c := runUntil(t, env, "collecting", "collect", "--config", config, "--store", dsn, "--metrics-listen", metrics)
	spine, err := net.Dial("udp", "127.0.0.1:4789")
	if err != nil {
		t.Fatal(err)
	}
	defer spine.Close()
	s := livetest.NewSender(t, livetest.SendEnd)
	frame := livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)
	const packets = 100
	send := func() {
		for range packets {
			s.Send(mirrored("erspan", frame))
			s.Send(mirrored("tzsp", frame))
			if _, err := spine.Write(append([]byte{8, 0, 0, 0, 0, 0, 77, 0}, mirrored("erspan", frame)...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send()
	c.waitCounted(metrics, filepath.Join(dir, "store"), 3*packets)
	writeFile(t, config, fmt.Sprintf(section, livetest.TapEnd, "erspan"))
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitLog("msg=reloaded", 1)
	send()
	c.end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	got := askTaps(t, env, dsn)
	for name, want := range map[string]tapAnswer{
		livetest.TapEnd:      {Packets: 4 * packets, Observations: 4 * packets, Stored: packets, Rejected: fmt.Sprint("orphan=", 3*packets)},
		"spine/127.0.0.1/77": {Packets: 2 * packets, Observations: 2 * packets, Rejected: fmt.Sprint("orphan=", 2*packets)},
	} {
		if tap := got[name]; tap.Packets != want.Packets || tap.Observations != want.Observations || tap.Stored != want.Stored || tap.Rejected != want.Rejected {
			t.Errorf("%s: got %+v, want %+v", name, tap, want)
		}
	}
	if n := stored(t, env, dsn); n != packets {
		t.Errorf("%d observations are stored, want %d of the sessions that the tap holds", n, packets)
	}
}
