package store

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// tortureVariable makes TestTortureChild a process that writes until it kills itself.
const tortureVariable = "CSIGSCOPE_TEST_TORTURE"

// errand is the task of a child.
type errand struct {
	Socket   string // of the engine, or of a proxy in front of it
	Dir      string // of the outbox
	MaxBytes int64
	Keep     time.Duration
	Clock    time.Duration // error of the child's clock
	Live     bool
	Producer uint64
	From     uint64        // the first block to write
	Point    string        // where to die; empty for nowhere
	Pass     int           // at which pass of the point, from 1
	After    time.Duration // when to die, without a point; 0 for never
}

// options returns the options for the server of an errand.
func (e *errand) options(p *points) Options {
	connect := func(path string) *clickhouse.Options {
		return &clickhouse.Options{
			Protocol: clickhouse.HTTP, Addr: []string{"csigscope-engine"}, HttpUrlPath: path,
			Auth: clickhouse.Auth{Database: "default"},
			TransportFunc: func(*http.Transport) (http.RoundTripper, error) {
				wire := &http.Transport{
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
					},
					DisableCompression: true,
				}
				if p == nil {
					return wire, nil
				}
				return &deadlyWire{wire, p}, nil
			},
			Compression:  &clickhouse.Compression{Method: clickhouse.CompressionNone},
			MaxOpenConns: 4, MaxIdleConns: 4, DialTimeout: 15 * time.Second, ReadTimeout: time.Minute,
		}
	}
	o := Options{
		Writer: connect("/writer"), Migrator: connect("/migrator"), Reader: connect("/reader"),
		Outbox: &Outbox{
			Dir: e.Dir, MaxBytes: e.MaxBytes, Keep: e.Keep,
			Now: func() time.Time { return time.Now().Add(e.Clock) },
		},
	}
	if p != nil {
		o.Outbox.FS = &deadlyDisk{outbox.OS{}, p}
	}
	return o
}

// ownErrand returns the task of this process, or skips the test in a process that is no child.
func ownErrand(t *testing.T) (e errand) {
	t.Helper()
	text := os.Getenv(tortureVariable)
	if text == "" {
		t.Skip("SKIPPED: this is the child of TestTorture")
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTortureChild runs an errand, and reports each block once it is in the outbox. If it
// survives, it reports how often it has passed each point.
func TestTortureChild(t *testing.T) {
	e := ownErrand(t)
	p := &points{name: e.Point, pass: e.Pass, passed: map[string]int{}}
	if e.After > 0 {
		time.AfterFunc(e.After, die)
	}
	o := e.options(p)
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := openThrough(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.deliveries[0].live.Store(e.Live)
	l := newLife(e.Producer)
	for seq := e.From; seq < uint64(len(l.blocks)); seq++ {
		if err := s.WriteBlock(t.Context(), blockOf(l.blocks[seq])); err != nil {
			t.Fatal(err)
		}
		if err := s.writer.flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nconfirmed %d\n", seq)
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // lets the sender run idle from time to time
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text2, _ := json.Marshal(p.passed)
	fmt.Printf("\npassed %s\n", text2)
}

// outcome is the end of a child.
type outcome struct {
	next   uint64 // block after the last confirmed one, 0 for none
	killed bool
	passed map[string]int // if it survived
}

// send runs a child to its end.
func (e *errand) send(t *testing.T) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTortureChild$")
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), tortureVariable+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := outcome{}
	var said []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		var seq uint64
		if passed, ok := strings.CutPrefix(line, "passed "); ok {
			_ = json.Unmarshal([]byte(passed), &out.passed)
		} else if _, err := fmt.Sscanf(line, "confirmed %d", &seq); err == nil {
			out.next = seq + 1
		}
		said = append(said, line)
	}
	err = cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	out.killed = status.Signaled() && status.Signal() == syscall.SIGKILL && ctx.Err() == nil
	if err != nil && !out.killed {
		t.Fatalf("child %s: %v\n%s\n%s", text, err, strings.Join(said, "\n"), stderr.String())
	}
	return out
}
