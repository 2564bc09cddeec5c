package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// The environment of the test binary's children in TestKills.
const (
	childFolder = "CSIGSCOPE_TEST_INGEST"
	childRole   = "CSIGSCOPE_TEST_INGEST_ROLE" // an exporter's name, or collector
	childURL    = "CSIGSCOPE_TEST_INGEST_ADDRESS"
	childNext   = "CSIGSCOPE_TEST_INGEST_NEXT"

	collectorRole = "collector"
)

// child runs until it is killed.
func child(dir, role string) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var err error
	if role == collectorRole {
		err = collectorChild(dir, os.Getenv(childURL), logger)
	} else {
		err = exporterChild(dir, role, os.Getenv(childURL), logger)
	}
	fmt.Fprintln(os.Stderr, role, err)
	os.Exit(1)
}

// exporterChild writes blocks from a number on, and prints the number of each one when
// it is on the disk.
func exporterChild(dir, name, address string, logger *slog.Logger) error {
	next, err := strconv.Atoi(os.Getenv(childNext))
	if err != nil {
		return err
	}
	tokens := filepath.Join(dir, name+".token")
	c, err := OpenClient(ClientConfig{
		Collectors: []string{"http://" + address}, Dir: filepath.Join(dir, name), TokenFile: tokens, Exporter: name,
		Timeout: 5 * time.Second, Logger: logger,
	})
	if err != nil {
		return err
	}
	if err := c.Describe(testDescription()); err != nil {
		return err
	}
	go func() { _ = c.Run(context.Background()) }()
	s, err := c.Stream("eth0")
	if err != nil {
		return err
	}
	for i := next; ; i++ {
		if err := s.WriteBlock(context.Background(), killBlock(name, i)); err != nil {
			return err
		}
		if err := c.Sync(context.Background()); err != nil {
			return err
		}
		fmt.Println(i)
		time.Sleep(2 * time.Millisecond)
	}
}

// shelf is a sink of what survives a kill: durable in an outbox when Sync returns.
type shelf struct {
	mu  sync.Mutex
	log *outbox.Log
	buf []*aggregate.Block
}

func shelfOptions(dir string) outbox.Options {
	return outbox.Options{Dir: filepath.Join(dir, "shelf"), Classes: []outbox.Class{{Name: "rows"}}, MaxBytes: 1 << 30}
}

func (s *shelf) WriteBlock(_ context.Context, b *aggregate.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(s.buf, b.Clone())
	return nil
}

func (s *shelf) Sync(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf) == 0 {
		return nil
	}
	text, err := json.Marshal(s.buf)
	if err != nil {
		return err
	}
	s.buf = nil
	return s.log.Append(0, 1, nil, text)
}

func (*shelf) WriteEpoch(context.Context, uint64, string) error        { return nil }
func (*shelf) WriteGroups(context.Context, []fabric.Group) error       { return nil }
func (*shelf) WriteLocations(context.Context, []fabric.Location) error { return nil }
func (*shelf) BeginRuns(context.Context, []Run) error                  { return nil }
func collectorChild(dir, address string, logger *slog.Logger) error {
	log, err := outbox.Open(shelfOptions(dir))
	if err != nil {
		return err
	}
	sink := &shelf{log: log}
	s, err := NewServer(ServerConfig{
		Auth: Auth{Tokens: filepath.Join(dir, "tokens")}, CommitEvery: 5 * time.Millisecond, Logger: logger,
		Limits: Limits{RequestRate: 1e4},
	}, sink, sink)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return s.Serve(context.Background(), ln)
}
