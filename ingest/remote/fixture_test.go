package remote

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/edge"
)

// testConfig configures a plain-HTTP collector that admits anybody.
func testConfig(t testing.TB) ServerConfig {
	return ServerConfig{
		Auth: edge.Auth{Anonymous: edge.Peer{Name: "tester"}}, CommitEvery: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// everybody admits all clients that the authority vouches for.
var everybody = []Permit{{Name: "*"}}

// collector is a server that runs until it is stopped.
type collector struct {
	*Server
	url  string
	stop func()
}

// storage is the part of a store that a collector uses.
type storage interface {
	Sink
	Directory
}

// startCollector runs a collector on a loopback address until the test ends.
func startCollector(t testing.TB, cfg ServerConfig, to storage, address string) *collector {
	t.Helper()
	s, err := NewServer(cfg, to, to)
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http://"
	if cfg.Auth.TLS.Cert != "" {
		scheme = "https://"
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return &collector{s, scheme + ln.Addr().String(), stop}
}

// callOfTest returns a request that is decoded, without a connection.
func callOfTest(e *exporter) *call {
	return &call{exporter: e, body: new(bytes.Buffer), release: func() {}, leave: func() {}}
}

// exporterUnderTest is a client that runs until it is stopped.
type exporterUnderTest struct {
	*Client
	incarnation uint64 // of its streams, higher than those of earlier clients
	stop        func()
}

var incarnations atomic.Uint64

func clientConfig(t testing.TB, urls ...string) ClientConfig {
	return ClientConfig{
		Collectors: urls, Dir: t.TempDir(), SpoolEvery: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
}

// startClient runs a client that has described the configuration of test blocks, until the test
// ends.
func startClient(t testing.TB, cfg ClientConfig) *exporterUnderTest {
	t.Helper()
	c, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Describe(testDescription()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		done.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &exporterUnderTest{c, incarnations.Add(1), stop}
}

func (c *exporterUnderTest) stream(t testing.TB, name string) *Stream {
	t.Helper()
	s, err := c.StreamOf(name, c.incarnation)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// flush waits until everything is acknowledged.
func (c *exporterUnderTest) flush(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Fatalf("flush: %v; %+v", err, c.Stats())
	}
}
