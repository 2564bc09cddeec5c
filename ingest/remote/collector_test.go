package remote

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/ingest/edge"
)

// storeSink is the real store as a collector's sink and directory.
type storeSink struct{ *store.Store }

func (s storeSink) BeginRuns(ctx context.Context, list []Run) error {
	return s.Store.BeginRuns(ctx, storeRuns(list))
}

func (s storeSink) EndRuns(ctx context.Context, list []Run) error {
	return s.Store.EndRuns(ctx, storeRuns(list))
}

func (s storeSink) EndEarlier(ctx context.Context, list []Run) error {
	return s.Store.EndEarlier(ctx, storeRuns(list))
}

func storeRuns(list []Run) (runs []store.Run) {
	for _, r := range list {
		runs = append(runs, store.Run{Source: r.Source, Mode: store.RunLive, Name: r.Exporter + "/" + r.Stream})
	}
	return runs
}

func (storeSink) WriteTaps(context.Context, []TapRow) error { return nil }
func (storeSink) WriteGaps(context.Context, []Gap) error    { return nil }

func (storeSink) WriteFindings(context.Context, []Finding) error { return nil }

// openStore opens a store in an engine, with an outbox in a folder.
func openStore(ctx context.Context, engine *chdb.Engine, dir string, logger *slog.Logger) (*store.Store, error) {
	return store.Open(ctx, store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader: engine.ClickHouseOptions(chdb.RoleReader), Logger: logger, Outbox: &store.Outbox{Dir: filepath.Join(dir, "outbox")},
	})
}

// collectorErrand makes a child a collector with the real store in a running engine.
type collectorErrand struct {
	Address string
	TLS     edge.TLSFiles
	Dir     string // contains the outbox
	Engine  string // its folder
	Library string
}

func newCollectorErrand(t testing.TB, engineDir string) *collectorErrand {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return &collectorErrand{
		Address: ln.Addr().String(), Dir: t.TempDir(), Engine: engineDir, Library: chdbtest.Options(t, engineDir).Library,
	}
}

func (e *collectorErrand) run(ctx context.Context, logger *slog.Logger) error {
	engine, err := chdb.Start(ctx, chdb.Options{Dir: e.Engine, Command: []string{os.Args[0]}, Logger: logger, Library: e.Library})
	if err != nil {
		return err
	}
	db, err := openStore(ctx, engine, e.Dir, logger)
	if err != nil {
		return err
	}
	s, err := NewServer(ServerConfig{Auth: edge.Auth{TLS: e.TLS}, Admission: Admission{Permits: everybody}, Logger: logger}, storeSink{db}, storeSink{db})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", e.Address)
	if err != nil {
		return err
	}
	if err := s.Serve(ctx, ln); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Flush(end); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	return engine.Close()
}
