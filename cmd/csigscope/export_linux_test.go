package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/capture/livetest"
)

// TestExport hands what is captured on one side over to a collector, which is killed and
// away for a while: every packet is stored once, and what was found of them. An exporter
// that ends while the collector is away leaves its windows to the next one.
func TestExport(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, address, ops := "embedded:"+filepath.Join(dir, "store"), freeAddress(t), freeAddress(t)
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	collect := func() *collecting {
		return runUntil(t, env, "exporters at "+address, "collect", "--config", config, "--store", dsn, "--ops-listen", ops)
	}
	export := func() *collecting {
		return runUntil(t, env, "exporting from", "export", "--interface", livetest.TapEnd, "--collector", "http://"+address, "--spool", filepath.Join(dir, "spool"))
	}
	server := collect()
	host := export()
	const handed = `csigscope_exporter_rows_total{exporter="host1"}`
	stop := traffic(t, 2000)
	server.waitSaid(ops+"/metrics", handed)
	server.end(syscall.SIGKILL)
	host.waitCheckpoints(dir, 2)
	suffer := sendHeavy(t, 3) // while the collector is away
	sendReserved(t, 7)
	server = collect()
	server.waitSaid(ops+"/metrics", handed)
	sent := len(stop()) + int(suffer.all()) + 7
	host.end(syscall.SIGTERM)

	// The second exporter ends while nobody takes its windows.
	server.end(syscall.SIGTERM)
	host = export()
	stop = traffic(t, 2000)
	host.waitCheckpoints(dir, 1)
	sendReserved(t, 4)
	sent += len(stop()) + 4
	host.end(syscall.SIGTERM)
	if !strings.Contains(host.log(), "windows wait in the spool") {
		t.Errorf("the exporter does not say that windows wait:\n%s", host.log())
	}
	server = collect()
	host = export()
	stop = traffic(t, 2000) // the share is one of the last minute
	server.waitSaid(ops+"/metrics", handed)
	server.waitSaid(ops+"/metrics", `csigscope_heavy_ratio{signal="min_abw_ratio",source="tag"} 0`)
	sent += len(stop())
	handOver(host, export)
	server.end(syscall.SIGTERM)
	dropped := droppedBy(t, env, dsn)
	if got := stored(t, env, dsn); got+dropped != uint64(sent) || got == 0 {
		t.Errorf("%d packets sent, %d observations stored, the kernel dropped %d", sent, got, dropped)
	}
	for _, resolution := range []string{"1s", "1m"} {
		flows, all, rest := storedFlows(t, env, "--store", dsn, "--resolution", resolution)
		if dropped == 0 && !slices.Equal(flows, suffer) || all+dropped != uint64(sent) || rest != 0 {
			t.Errorf("windows of %s: flows %v of %d observations, %d heavy ones of others, expected %v of %d", resolution, flows, all, rest, suffer, sent)
		}
	}
	found := storedFindingsOf(t, env, dsn)
	if len(found) != 1 || found[0].Kind != "reserved-bits" || dropped == 0 && found[0].Count != 11 || found[0].Severity != "warning" || !strings.Contains(found[0].Evidence, "compact/ietf01") {
		t.Errorf("found %+v, want the reserved bits of 11 packets", found)
	}
	mustRun(t, env, "schema", "verify", "--store", dsn)
}

// handOver ends an exporter, and others after it while windows are left: each has some
// seconds for them, which may be too few on a busy machine. It says how many others.
func handOver(host *collecting, export func() *collecting) (others int) {
	host.t.Helper()
	for host.end(syscall.SIGTERM); strings.Contains(host.log(), "windows wait in the spool"); others++ {
		if others == 20 {
			host.t.Fatalf("windows are still in the spool:\n%s", host.log())
		}
		host = export()
		host.end(syscall.SIGTERM)
	}
	return others
}

// sendReserved sends n packets whose reserved bit is set, with a value that is not heavy.
func sendReserved(t *testing.T, n int) {
	t.Helper()
	s := livetest.NewSender(t, livetest.SendEnd)
	for range n {
		s.Send(livetest.Tagged(livetest.Plain(7, 9, 100), 0x99003f05))
	}
}

// sendHeavy sends packets of so many flows that met the worst bottleneck, each as often as
// its number says times ten.
func sendHeavy(t *testing.T, flows int) (sent flowCounts) {
	t.Helper()
	s := livetest.NewSender(t, livetest.SendEnd)
	for from := 1; from <= flows; from++ {
		for range 10 * from {
			s.Send(livetest.Tagged(livetest.Plain(from, 9, 100), 0x99002005))
		}
		sent = append(sent, flowHeavy{fmt.Sprintf("10.0.0.%d:0 10.0.0.9:0 17", from), uint64(10 * from)})
	}
	return sent.sorted()
}

// all is how many heavy observations the flows have.
func (c flowCounts) all() (n uint64) {
	for _, f := range c {
		n += f.heavy
	}
	return n
}
