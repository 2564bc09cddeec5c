package ingest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

// killBlock is block i of an exporter: its first group names it.
func killBlock(name string, i int) *aggregate.Block {
	h := fnv.New64()
	fmt.Fprint(h, name)
	b := testBlock(rand.New(rand.NewPCG(h.Sum64(), uint64(i))), time.Now(), 20)
	b.SrcGroup[0] = uint64(i) + 1000
	return b
}

// process is a child that is killed and started again.
type process struct {
	testing.TB
	dir, role, address string

	mu        sync.Mutex
	cmd       *exec.Cmd
	next      int
	confirmed map[int]bool
	doubtful  map[int]bool // may be on the disk: killed before it was confirmed
	done      sync.WaitGroup
}

func (p *process) start() {
	p.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFolder+"="+p.dir, childRole+"="+p.role, childURL+"="+p.address, childNext+"="+strconv.Itoa(p.next))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.cmd = cmd
	p.done.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				p.mu.Lock()
				p.confirmed[n] = true
				p.next = n + 1
				p.mu.Unlock()
			}
		}
	})
}

// kill ends the child at once. What it was at is in doubt, and not done again.
func (p *process) kill() {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	p.done.Wait()
	_ = p.cmd.Wait()
	p.doubtful[p.next] = true
	p.next++
}

// stored reads what the collector made durable: rows by identity.
func stored(t *testing.T, dir string) map[identity]values {
	t.Helper()
	log, err := outbox.Open(shelfOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	rows := map[identity]values{}
	var buf []byte
	for {
		e, ok, err := log.Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return rows
		}
		if e.Lost == "" {
			var blocks []*aggregate.Block
			if err := json.Unmarshal(e.Payload, &blocks); err != nil {
				t.Fatal(err)
			}
			for _, b := range blocks {
				for i := range b.Len() {
					rows[identity{b.Source, b.Seq, b.Resolution, b.WindowStart, keyOf(b, i)}] = valuesOf(b, i)
				}
			}
			buf = e.Payload
		}
		log.Ack(&e)
	}
}

// TestKills kills exporters and the collector while they work. What an exporter had on
// its disk is stored in the end, whole and once; all else is what it was killed at.
func TestKills(t *testing.T) {
	const exporters, kills, every = 3, 20, 4 // each fourth kill takes the collector too
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	var lines []string
	var list []*process
	for i := range exporters {
		name := fmt.Sprintf("host%d", i)
		lines = append(lines, credentialtest.TokenLine(name, "", "secret-of-"+name, ""))
		if err := os.WriteFile(filepath.Join(dir, name+".token"), []byte("secret-of-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
		list = append(list, &process{TB: t, dir: dir, role: name, address: address, confirmed: map[int]bool{}, doubtful: map[int]bool{}})
	}
	credentialtest.WriteTokens(t, filepath.Join(dir, "tokens"), lines...)
	server := &process{TB: t, dir: dir, role: collectorRole, address: address, confirmed: map[int]bool{}, doubtful: map[int]bool{}}
	server.start()
	for _, p := range list {
		p.start()
	}
	rng := newRand(t, uint64(time.Now().UnixNano()))
	for n := range kills {
		time.Sleep(time.Duration(50+rng.IntN(150)) * time.Millisecond)
		victim := list[rng.IntN(len(list))]
		victim.kill()
		if n%every == every-1 {
			server.kill()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			server.start()
		}
		victim.start()
	}
	time.Sleep(100 * time.Millisecond)
	for _, p := range list {
		p.kill()
	}
	for _, p := range list {
		drain(t, p)
	}
	server.kill()
	checkKills(t, stored(t, dir), list)
}

// drain sends what an exporter's spool still holds.
func drain(t *testing.T, p *process) {
	t.Helper()
	cfg := clientConfig(t, "http://"+p.address)
	cfg.Dir, cfg.TokenFile = filepath.Join(p.dir, p.role), filepath.Join(p.dir, p.role+".token")
	c := startClient(t, cfg)
	c.flush(t)
	if s := c.Stats(); len(s.Refused) > 0 || len(s.Lost) > 0 && s.Lost[string(outbox.Torn)] == 0 {
		t.Errorf("%s: %+v", p.role, s)
	}
	c.stop()
}

func checkKills(t *testing.T, rows map[identity]values, list []*process) {
	t.Helper()
	type block struct {
		producer, incarnation, seq uint64
	}
	blocks := map[block]map[rowKey]values{}
	for id, v := range rows {
		at := block{id.Producer, id.Incarnation, id.seq}
		if blocks[at] == nil {
			blocks[at] = map[rowKey]values{}
		}
		blocks[at][id.rowKey] = v
	}
	total := 0
	for _, p := range list {
		times := map[int]int{}
		for at, got := range blocks {
			if at.producer != Producer(p.role, "eth0") {
				continue
			}
			n := -1
			for k := range got {
				if k.src >= 1000 {
					n = int(k.src) - 1000
				}
			}
			if n < 0 {
				t.Fatalf("%s: a block without its first row", p.role)
			}
			times[n]++
			want := killBlock(p.role, n)
			for i := range want.Len() {
				if got[keyOf(want, i)] != valuesOf(want, i) || len(got) != want.Len() {
					t.Fatalf("%s: block %d is not whole", p.role, n)
				}
			}
		}
		for n := range p.confirmed {
			if times[n] != 1 {
				t.Errorf("%s: block %d is stored %d times, want once", p.role, n, times[n])
			}
		}
		for n, count := range times {
			if !p.confirmed[n] && (!p.doubtful[n] || count > 1) {
				t.Errorf("%s: block %d is stored %d times, and was not confirmed", p.role, n, count)
			}
		}
		total += len(p.confirmed)
	}
	t.Logf("%d blocks confirmed", total)
	if total < 100 {
		t.Errorf("%d blocks confirmed: next to none", total)
	}
}
