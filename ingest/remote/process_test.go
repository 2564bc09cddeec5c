package remote

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// process is a child of the test binary with an errand.
type process struct {
	testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	read  sync.WaitGroup // of its output
}

// startProcess starts a child. It passes each line of output to said, unless nil.
func startProcess(t testing.TB, e errand, said func(line string)) *process {
	t.Helper()
	p := &process{TB: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childVariable+"="+e.String())
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if said != nil {
				said(lines.Text())
			}
		}
	})
	t.Cleanup(p.kill)
	return p
}

// kill ends the child at once, unless it has already ended.
func (p *process) kill() {
	p.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		p.Error(err)
	}
	p.read.Wait()
	_ = p.cmd.Wait() // the error reports the kill
	p.stdin.Close()
}

// finish tells the child to end; await waits for that.
func (p *process) finish() { p.stdin.Close() }

// await waits until the child has finished its errand.
func (p *process) await(patience time.Duration) {
	p.Helper()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.read.Wait()
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("child: %v", err)
	}
	p.stdin.Close()
}

// spread holds the exporters of a test, in a few processes.
type spread struct {
	testing.TB
	hosts []*host
}

// host is a process of exporters that is killed and restarted.
type host struct {
	*process
	errand exportersErrand

	mu        sync.Mutex
	confirmed []map[int]bool // blocks on disk, by exporter
	doubtful  []map[int]bool // killed before confirmation: on disk or not
}

// newSpread prepares exporters in processes with a maximum number each.
func newSpread(t testing.TB, ca *edgetest.Authority, exporters, each int, like exportersErrand) *spread {
	t.Helper()
	s := &spread{TB: t}
	for i := range exporters {
		if i%each == 0 {
			h := &host{errand: like}
			s.hosts = append(s.hosts, h)
		}
		h := s.hosts[len(s.hosts)-1]
		name := fmt.Sprintf("host%03d", i)
		h.errand.Names = append(h.errand.Names, name)
		h.errand.TLS = append(h.errand.TLS, ca.Issue(name, time.Now().Add(time.Hour)))
		h.errand.Next = append(h.errand.Next, 0)
		h.confirmed, h.doubtful = append(h.confirmed, map[int]bool{}), append(h.doubtful, map[int]bool{})
	}
	return s
}

func (s *spread) start() {
	s.Helper()
	for _, h := range s.hosts {
		h.start(s.TB)
	}
}

func (h *host) start(t testing.TB) {
	t.Helper()
	h.process = startProcess(t, errand{Exporters: &h.errand}, func(line string) {
		var i, n int
		if _, err := fmt.Sscanf(line, confirmedFormat, &i, &n); err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.confirmed[i][n] = true
		h.errand.Next[i] = n + 1
	})
}

// kill ends the process at once. The blocks in progress are in doubt and are not repeated.
func (h *host) kill() {
	h.process.kill()
	for i := range h.errand.Next {
		h.doubtful[i][h.errand.Next[i]] = true
		h.errand.Next[i]++
	}
}
