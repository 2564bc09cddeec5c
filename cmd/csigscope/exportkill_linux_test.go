package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// TestExportKilled kills an exporter again and again while packets come, each time at
// another moment, and lets it be reloaded and ended in between. Outside of the gaps that
// the collector's store names every packet is stored once, none is ever stored twice, what
// the taps say they took in is what is there, and all runs have ended.
func TestExportKilled(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, address := "embedded:"+filepath.Join(dir, "store"), freeAddress(t)
	collector := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	config := filepath.Join(dir, "export.yaml")
	configure := func(quantum int) {
		writeFile(t, config, fmt.Sprintf("csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n"+
			"export:\n  checkpoint: {every: 200ms}\n  taps:\n  - {interface: %s, name: nic}\n", quantum, livetest.TapEnd))
	}
	configure(1)
	server := runUntil(t, env, "exporters at "+address, "collect", "--config", collector, "--store", dsn)
	export := func() *collecting {
		return runUntil(t, env, "exporting from", "export", "--config", config, "--collector", "http://"+address, "--spool", filepath.Join(dir, "spool"))
	}
	const kills = 8
	host := export()
	stop := traffic(t, 2000)
	for n := range kills {
		host.waitCheckpoints(dir, 2) // of its own, and so 200 ms apart
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		switch n {
		case 2: // windows that are open close under the configuration that they began under
			configure(2)
			if err := host.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			host.waitLog("msg=reloaded", 1)
		case 4: // the next one has another configuration
			configure(3)
		case 6:
			host.end(syscall.SIGTERM)
			host = export()
			continue
		}
		host.end(syscall.SIGKILL)
		host = export()
	}
	host.waitCheckpoints(dir, 5)
	sent := stop()
	others := handOver(host, export)
	server.end(syscall.SIGTERM)

	mustRun(t, env, "schema", "verify", "--store", dsn)
	got, gaps, restarts := exported(t, env, dsn, "host1/nic/0")
	perMS := make(map[int64]int)
	for _, at := range sent {
		perMS[at.UnixMilli()]++
	}
	outside, inside := split(perMS, gaps)
	t.Logf("%d packets sent, %d of them outside of %d gaps, %d stored", len(sent), outside, len(gaps), got)
	if got < outside || got > outside+inside || outside < kills*100 {
		t.Errorf("%d packets are stored, of %d that were sent outside of gaps and %d in gaps", got, outside, inside)
	}
	if restarts != kills+others {
		t.Errorf("%d gaps, want one for each of %d restarts", restarts, kills+others)
	}
	checkTapOf(t, env, dsn, got, inside)
}

// exported is how many observations of a run are stored in windows of a second, and the
// gaps in them, with how many are no losses of the kernel; see droppedBy. All runs of the name
// must have begun and ended.
func exported(t *testing.T, env []string, dsn, run string) (stored int, gaps []span, restarts int) {
	t.Helper()
	address := freeAddress(t)
	serveBinary(t, env, "query", "serve", "--store", dsn, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	runs := ask(t, address, "SELECT name, state FROM csigscope.runs FINAL GROUP BY name, state ORDER BY name, state")
	if want := run + "\tstarted\n" + run + "\tdone\n"; runs != want {
		t.Errorf("runs %q, want %q", runs, want)
	}
	of := "producer IN (SELECT producer FROM csigscope.runs WHERE name = '" + run + "')"
	if _, err := fmt.Sscan(ask(t, address, "SELECT sum(observations) FROM csigscope.partials_1s FINAL WHERE "+of), &stored); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(ask(t, address, "SELECT toUnixTimestamp64Milli(window_from), toUnixTimestamp64Milli(window_to), reason, resolution_ns "+
		"FROM csigscope.gaps FINAL WHERE resolution_ns IN (0, 1000000000) AND "+of+" ORDER BY 1")) {
		var g span
		var reason string
		var resolution int
		if _, err := fmt.Sscan(line, &g.from, &g.to, &reason, &resolution); err != nil || !slices.Contains([]string{"restart", "open", "drops"}, reason) {
			t.Fatalf("gaps: %q: %v", line, err)
		}
		if reason == "restart" {
			restarts++
		}
		t.Logf("gap of %d ms: %s", g.to-g.from, reason)
		gaps = append(gaps, g)
	}
	return stored, gaps, restarts
}

// checkTapOf expects that the exporter's tap says of itself what is stored of it, but for
// what was sent in gaps.
func checkTapOf(t *testing.T, env []string, dsn string, stored, inside int) {
	t.Helper()
	taps := decodeJSON[[]struct {
		Tap, Place, Link                    string
		Packets, Observations, Stored, Tags int
	}](t, mustRun(t, env, "query", "taps", "--store", dsn, "-o", "json"))
	if len(taps) != 1 {
		t.Fatalf("taps %+v", taps)
	}
	if tap := taps[0]; tap.Tap != "host1/nic" || tap.Place != "receiver" || tap.Link != "Ethernet" || tap.Tags != tap.Stored || apart(uint64(tap.Stored), uint64(stored)) > uint64(inside) || tap.Packets < tap.Stored {
		t.Errorf("%d observations are stored, the tap has %+v", stored, tap)
	}
}
