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

// TestExport captures on one side and sends to a collector, which is killed and down for a
// while: every packet is stored once, with its findings. An exporter that ends while the
// collector is down leaves its windows to the next one.
func TestExport(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, address, ops := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t), freeAddress(t)
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	collect := func() *collecting {
		return runUntil(t, env, "exporters at "+address, "collect", "--config", config, "--store", dsn, "--metrics-listen", ops)
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
	host.waitRounds(dir, 2)
	suffer := sendHeavy(t, 3) // while the collector is down
	sendReserved(t, 7)
	server = collect()
	server.waitSaid(ops+"/metrics", handed)
	sent := len(stop()) + int(suffer.all()) + 7
	host.end(syscall.SIGTERM)

	// The second exporter ends while no collector accepts its windows.
	server.end(syscall.SIGTERM)
	host = export()
	stop = traffic(t, 2000)
	host.waitRounds(dir, 1)
	sendReserved(t, 4)
	sent += len(stop()) + 4
	if err := host.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if said := <-host.ended; !strings.Contains(said, "blocks and records: 0 acknowledged by collectors, ") {
		t.Errorf("the exporter does not say that collectors have nothing:\n%s", said)
	}
	host.end(syscall.SIGTERM)
	if !strings.Contains(host.log(), "windows wait in the spool") {
		t.Errorf("the exporter does not say that windows wait:\n%s", host.log())
	}
	server = collect()
	host = export()
	stop = traffic(t, 2000) // the share covers the last minute
	server.waitSaid(ops+"/metrics", handed)
	server.waitSaid(ops+"/metrics", `csigscope_heavy_ratio{signal="min_abw_ratio",source="tag"} 0`)
	sent += len(stop())
	handOver(host, export)
	server.end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	dropped := droppedBy(t, env, dsn)
	if got := stored(t, env, dsn); got+dropped != uint64(sent) || got == 0 {
		t.Errorf("%d packets sent, %d observations stored, the kernel dropped %d", sent, got, dropped)
	}
	flows, all, rest := storedFlows(t, env, "--store", dsn)
	if dropped == 0 && !slices.Equal(flows, suffer) || all+dropped != uint64(sent) || rest != 0 {
		t.Errorf("flows %v of %d observations, %d heavy ones of others, expected %v of %d", flows, all, rest, suffer, sent)
	}
	found := storedFindingsOf(t, env, dsn)
	if len(found) != 1 || found[0].Kind != "reserved-bits" || dropped == 0 && found[0].Count != 11 || found[0].Severity != "warning" || !strings.Contains(found[0].Evidence, "compact/ietf01") {
		t.Errorf("found %+v, want the reserved bits of 11 packets", found)
	}
	mustRun(t, env, "schema", "verify", "--store", dsn)
}

// TestExportersOfOneCredential: exporters that share a credential, with taps of one name, remain apart by their
// instances.
func TestExportersOfOneCredential(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, address := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: hosts}\n")
	server := runUntil(t, env, "exporters at "+address, "collect", "--config", config, "--store", dsn)
	export := func(instance string) *collecting {
		return runUntil(t, env, "exporting from", "export", "--interface", livetest.TapEnd, "--instance", instance, "--collector", "http://"+address, "--spool", filepath.Join(dir, instance))
	}
	hosts := []*collecting{export("a"), export("b")}
	stop := traffic(t, 2000)
	for i, instance := range []string{"a", "b"} {
		hosts[i].waitRounds(filepath.Join(dir, instance), 1)
	}
	sent := uint64(len(stop()))
	for i, instance := range []string{"a", "b"} {
		handOver(hosts[i], func() *collecting { return export(instance) })
	}
	server.end(syscall.SIGTERM)
	keepEngine(t, env, dsn)
	taps := decodeJSON[[]struct {
		Tap    string
		Stored uint64
	}](t, mustRun(t, env, "query", "taps", "--store", dsn, "-o", "json"))
	var names []string
	for _, tap := range taps {
		names = append(names, tap.Tap)
	}
	slices.Sort(names)
	if want := []string{"hosts/a/" + livetest.TapEnd, "hosts/b/" + livetest.TapEnd}; !slices.Equal(names, want) {
		t.Errorf("taps %v, want %v", names, want)
	}
	if got, dropped := stored(t, env, dsn), droppedBy(t, env, dsn); got+dropped != 2*sent || got == 0 {
		t.Errorf("2 times %d packets sent, %d observations stored, the kernel dropped %d", sent, got, dropped)
	}
}

// handOver ends an exporter, and starts and ends others while windows are left: each has some
// seconds for them, which may be too few on a busy machine. It returns the number of others.
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

// sendHeavy sends packets of the given number of flows through the worst bottleneck, flow n ten
// times n packets.
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

// all returns the number of heavy observations of all flows.
func (c flowCounts) all() (n uint64) {
	for _, f := range c {
		n += f.heavy
	}
	return n
}

// TestExportKilled repeatedly kills an exporter while packets arrive, each time at another
// moment, with reloads and clean ends in between. Outside of the gaps in the collector's store
// every packet is stored once, none is ever stored twice, the counts of the taps equal the
// stored rows, and all runs have ended.
func TestExportKilled(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn, address := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	collector := writeFile(t, filepath.Join(dir, "collect.yaml"), "collect:\n  ingest: {listen: "+address+", anonymous: host1}\n")
	config := filepath.Join(dir, "export.yaml")
	configure := func(quantum int) {
		writeFile(t, config, fmt.Sprintf("csig:\n  tables:\n  - {format: compact, profile: ietf01, signal: type_5, unit: ns, aggregation: max, quantum: %dus, heavy: 20us}\n"+
			"export:\n  commit_interval: 200ms\n  taps:\n  - {interface: %s, name: nic}\n", quantum, livetest.TapEnd))
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
		host.waitRounds(dir, 2) // its own rounds, 200 ms apart
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		switch n {
		case 2: // open windows close under their configuration
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
	host.waitRounds(dir, 5)
	sent := stop()
	others := handOver(host, export)
	server.end(syscall.SIGTERM)

	keepEngine(t, env, dsn)
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

// exported returns the number of observations of a run in windows of a second, and its gaps,
// with the number of gaps that are not kernel drops; see droppedBy. All runs of the name must
// have begun and ended.
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

// checkTapOf checks that the counts of the exporter's tap equal the stored rows, except for
// packets sent in gaps.
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
