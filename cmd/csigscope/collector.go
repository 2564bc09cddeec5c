package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/remote/handover"
)

// collector is the running part of collect.
type collector struct {
	capturing
	flags *collectFlags
	db    *openedStore
	log   watchedStore // db's store
	names *journal.Names

	server *remote.Server // nil unless it listens for exporters
	top    *table.TopBottlenecks
	feed   *liveFeed // nil without --api-listen
}

// newCollector reads the configuration and opens the taps, the store and the listeners.
func newCollector(cmd *cobra.Command, f *collectFlags, o *operations) (c *collector, err error) {
	c = &collector{flags: f}
	c.cmd, c.logger, c.taps, c.ops, c.opsFlags = cmd, o.logger, f.taps, o, &f.ops
	c.read = func() (*network, error) { return f.read(cmd) }
	c.section = func(n *network) (*config.Capture, []config.Mirror) {
		return &n.Config.Collect.Capture, n.Config.Collect.Mirrors
	}
	c.use = func(n *network) config.MemoryUse {
		section := &n.Config.Collect
		return config.MemoryUse{
			Capture: &section.Capture, Mirrors: section.Mirrors, Embedded: embeddedStore(&n.Config), Writes: true,
			Exporters: section.Ingest.Listen != "", API: f.api != "", Live: f.api != "", Shares: len(section.Peers.Collectors) > 0,
		}
	}
	c.fixed, c.reloaded = collectSettings, c.takeOver
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.begin(); err != nil {
		return c, err
	}
	if err := c.openPipeline(); err != nil {
		return c, errors.Join(err, c.agent.Close())
	}
	if err := c.openServer(); err != nil {
		return c, errors.Join(err, c.agent.Close())
	}
	c.holdNames(c.network)
	return c, nil
}

// openServer makes the server for exporters, if it has an address.
func (c *collector) openServer() (err error) {
	ingest := &c.network.Config.Collect.Ingest
	if ingest.Listen == "" {
		return nil
	}
	cfg := remote.ServerConfig{
		Listen: string(ingest.Listen), DangerouslyExposed: c.flags.exposed, Logger: c.logger,
		Auth: ingest.Auth(), Admission: c.admission(c.network), Observations: c.observing(c.network), Batches: &c.log,
		Live: c.log.watching, Provisional: &c.log,
	}
	if c.feed != nil {
		cfg.LiveProvisional = c.feed.memory
	}
	received := c.log
	received.rowLog = store.Resendable{Store: c.db.store}
	if c.server, err = remote.NewServer(cfg, &received, handover.Directory{Store: c.db.store}); err != nil {
		return usageError{fmt.Errorf("collect: ingest: %w", err)}
	}
	return nil
}

// admission returns which exporters may send, within the memory for all of them.
func (c *collector) admission(n *network) remote.Admission {
	a := n.Config.Collect.Ingest.Admission()
	a.Limits.MaxBuffered = c.memory.Buffered
	return a
}

// observing returns how tags that transports hand over are aggregated: as those of a tap at a
// receiver.
func (c *collector) observing(n *network) *window.Config {
	s := n.Settings()
	s.Lateness = c.lateness
	cfg := s.Config(window.TapAt("", 1))
	return &cfg
}

// collectSettings returns the settings of collect that a reload does not change. They include
// the flags, which do not change with the files.
func collectSettings(n *network) (config.Settings, error) {
	own := n.Config.Collect
	own.By, own.OddPackets = "", "" // of taps
	own.Taps, own.Mirrors, own.Ingest.Exporters, own.Ingest.Peers, own.Ingest.Limits.Limits = nil, nil, nil, nil, config.Limits{}
	s, err := config.SettingsOf(map[string]any{
		"store": n.Config.Store, "collect": own, "states": n.Config.States, "api": n.Config.API.Fixed(), "memory_limit": n.Config.MemoryLimit,
	})
	if err != nil {
		return nil, err
	}
	s["store.dsn"] = n.Config.Store.DSN.Secret() // is not printed
	return s, nil
}

// holdNames prevents exporters from changing names of the fabric file. Without one, the first
// exporter's description of a name holds.
func (c *collector) holdNames(n *network) {
	if c.server != nil && c.flags.network.fabric != "" {
		c.server.HoldNames(remote.Description{Text: n.Text, Groups: n.Fabric.Groups(), Locations: n.Fabric.Locations()})
	}
}

// takeOver applies a reloaded configuration to the listeners: the permitted clients, the names of
// the fabric file, and the aggregation of observations. If it fails, nothing changes.
func (c *collector) takeOver(n *network) error {
	was, is := aggregate.FineResolution(c.network.Config.Windows.Lengths()), aggregate.FineResolution(n.Config.Windows.Lengths())
	if c.feed != nil && was != is { // clients would see windows without rows
		return errors.New("windows.resolutions: --api-listen serves the windows below 1s: restart to change their length")
	}
	use := func() {}
	if c.server != nil {
		var err error
		if use, err = c.server.Prepare(c.admission(n), c.observing(n)); err != nil {
			return c.explainRefused(n, err)
		}
	}
	if c.feed != nil {
		if err := c.feed.server.Use(n.Config.API.Settings()); err != nil {
			return err
		}
	}
	// Nothing can fail from here on.
	if c.feed != nil && n.Fabric != c.network.Fabric {
		c.feed.names.Replaced(c.network.Fabric)
	}
	c.holdNames(n)
	if c.server != nil {
		c.names.Use(n.Naming()) // before observations refer to them
	}
	use()
	return nil
}

// explainRefused adds to the error of a listener that refuses a valid file the changed settings that
// need a restart: the file was checked with them, and the listener uses the earlier ones.
func (c *collector) explainRefused(n *network, refused error) error {
	now, err := c.fixed(n)
	if err != nil {
		return errors.Join(refused, err)
	}
	changed := slices.DeleteFunc(c.started.Differ(now), func(s string) bool { return !strings.HasPrefix(s, "collect.ingest.") })
	if len(changed) == 0 {
		return refused
	}
	return fmt.Errorf("changed settings need a restart: %s: the file does not go with the earlier ones: %w", strings.Join(changed, " "), refused)
}

// openPipeline opens the store, and resumes from the state of an earlier process.
func (c *collector) openPipeline() error {
	var err error
	if c.db, err = c.flags.openStore(c.cmd, c.network); err != nil {
		return err
	}
	if c.db == nil {
		return usageError{errors.New("--store none: collect has to store its windows: expected embedded[:DIR] or clickhouse://USER@HOST:PORT/DB")}
	}
	c.top = newTopBottlenecks()
	c.log = watchedStore{rowLog: c.db.store, watching: aggregate.Sinks{c.top}, unlogged: new(atomic.Uint64)}
	if err := c.openFeed(); err != nil {
		return err
	}
	if err := c.openSharing(); err != nil {
		return err
	}
	instance, err := c.network.Config.Collect.Name()
	if err != nil {
		return err
	}
	var names *journal.Names
	marks, err := c.agent.Resume(journal.Config{
		Name: "collect " + instance, Log: &c.log,
		Begin: func(wrote map[aggregate.Source]bool, marks []local.Mark) { names.Begin(wrote, marks) },
		End:   func(ctx context.Context, marks []local.Mark) { names.End(ctx, marks) },
	}, journal.ToStore(c.db.store), func(_ *local.Mark, gaps []store.Gap) error { return c.db.store.WriteGaps(c.cmd.Context(), gaps) })
	if err != nil {
		return err
	}
	names = journal.NewNames(c.db.store, marks, c.logger)
	c.names, c.log.describe = names, func() { names.Begin(nil, nil) }
	return c.agent.Start(names, &c.log)
}

// openFeed makes the live windows for --api-listen.
func (c *collector) openFeed() error {
	if c.flags.api == "" {
		return nil
	}
	names := &api.BothNames{Fabric: func() *fabric.Fabric { return c.using.Load().Fabric }}
	reader := query.FromStore(c.db.store)
	if c.network.Config.Collect.Ingest.Listen != "" {
		names.Stored = reader
	}
	d, err := openAPIServer(c.cmd.Context(), &c.network.Config.API, "--api-listen", c.flags.api, c.flags.apiExposed, c.logger,
		map[string]http.Handler{"DELETE producers/{name...}": forgetting(c.db)})
	if err != nil {
		return err
	}
	began := time.Now()
	down := func(silent []table.Producer) []string { return c.down(began, silent) }
	taps := c.network.Settings()
	taps.Lateness = c.lateness
	if c.feed, err = newLiveFeed(c.cmd, d, names, reader, down, &c.network.Config.API, &c.memory, &taps, table.MemoryOptions{
		MaxAge: time.Duration(c.network.Config.Collect.MaxAge), Thresholds: c.network.Config.States.Thresholds(),
	}, c.logger); err != nil {
		return errors.Join(err, d.Close())
	}
	c.log.live = c.feed.memories()
	for _, m := range c.log.live {
		c.log.watching = append(c.log.watching, m)
	}
	return nil
}

// openSharing prepares the sharing of windows with the other collectors of a fleet, if there
// are any.
func (c *collector) openSharing() (err error) {
	section := &c.network.Config.Collect.Peers
	if len(section.Collectors) == 0 {
		return nil
	}
	cfg := section.Sharing()
	cfg.Logger = c.logger
	if c.log.sharing, err = remote.NewSharing(cfg); err != nil {
		return usageError{fmt.Errorf("collect: peers: %w", err)}
	}
	return nil
}

// run captures until ctx ends.
func (c *collector) run(ctx context.Context, reload <-chan os.Signal) error {
	from := c.agent.Taps().String()
	var before []func(context.Context) error
	if c.server != nil {
		from = strings.TrimPrefix(from+", exporters at "+string(c.network.Config.Collect.Ingest.Listen), ", ")
		before = append(before, c.server.Run)
	}
	behind := []func(context.Context) error{c.db.store.RunRebuild, c.db.store.RunRenewNames}
	if c.feed != nil {
		behind = append(behind, c.feed.run, c.expect)
	}
	if c.log.sharing != nil {
		behind = append(behind, c.log.sharing.Run)
	}
	fmt.Fprintf(c.cmd.OutOrStdout(), "collecting from %s into %s\n", from, c.db.target)
	c.db.keepTrimmed(ctx)
	return c.capturing.run(ctx, reload, before, behind)
}

// lastWords describes the consequences of ending at once.
func (c *collector) lastWords() string {
	return c.agent.PendingLoss() + "; rows in the outbox wait for it"
}

// close releases the resources.
func (c *collector) close() error {
	var failed error
	if c.feed != nil {
		c.feed.server.Close()
	}
	if c.db != nil {
		failed = c.db.Close()
		if c.db.left > 0 {
			failed = errors.Join(failed, fmt.Errorf("end: the store did not take %d rows in time: they wait in the outbox for the next command that stores there", c.db.left))
		}
	}
	return failed
}

// watch adds the pipeline to the process's metrics and health.
func (c *collector) watch(o *operations) error {
	if err := errors.Join(c.watchPipeline(o), o.watchStore(c.db)); err != nil {
		return err
	}
	if c.feed != nil {
		if err := errors.Join(o.watchAPI(c.feed.server, c.feed.api), o.Export(metrics.NewWindows(c.windowMetrics))); err != nil {
			return err
		}
	}
	if c.server != nil {
		if err := o.Export(metrics.NewIngest(func() metrics.Ingest { return ingestMetrics(c.server) })); err != nil {
			return err
		}
	}
	if c.log.sharing != nil || c.server != nil {
		if err := o.Export(metrics.NewPeers(c.peerMetrics)); err != nil {
			return err
		}
	}
	return o.Export(
		metrics.NewLive(c.liveMetrics), metrics.NewStore(c.db.store.WriterStatus), metrics.NewLatency(c.db.store.Latency),
		metrics.NewBottlenecks(time.Now, topCount, c.locationName, c.top.Top),
	)
}

// windowMetrics returns the counters of the live windows.
func (c *collector) windowMetrics() metrics.Windows {
	n := c.feed.counts()
	m := metrics.Windows{Repeated: n.RepeatedBlocks, Old: n.OldBlocks, Ahead: n.AheadBlocks, Crowded: n.CrowdedBlocks, Dropped: n.DroppedWindows, Uncovered: n.UncoveredCells, Untracked: n.UntrackedCells, Provisional: map[string]uint64{
		"taken": n.Provisional.Taken, "late": n.Provisional.Late, "ahead": n.Provisional.Ahead, "crowded": n.Provisional.Crowded, "expired": n.Provisional.Expired,
	}}
	now := c.feed.memory.State().Coverage
	m.End, m.Producers, m.Expected = now.Newest, now.Present(), now.Expected
	return m
}

// ingestMetrics returns the counters of exporters' items.
func ingestMetrics(s *remote.Server) metrics.Ingest {
	st := s.Stats()
	m := metrics.Ingest{Refused: make(map[string]uint64), Names: st.Names, NamesForgotten: st.ForgottenNames}
	for _, counts := range []*remote.Counts{&st.Total, &st.Unauthenticated} {
		for reason, n := range counts.Refused {
			m.Refused[remote.Reason(reason).String()] += n
		}
	}
	m.Exporters, m.Removed = exporterMetrics(st.Exporters), exporterMetrics(st.Removed)
	if st.Forgotten > 0 {
		m.Removed = append(m.Removed, exporterMetrics([]remote.ExporterStats{{Name: metrics.Other, Counts: st.Gone}})...)
	}
	return m
}

func exporterMetrics(from []remote.ExporterStats) (list []metrics.Exporter) {
	for _, e := range from {
		list = append(list, metrics.Exporter{
			Name: e.Name, LastSeen: e.Last, ClockOffset: e.ClockOffset, Requests: e.Requests, Bytes: e.Bytes, Items: e.StoredItems, Rows: e.StoredRows,
			Observations: e.StoredObservations, Overflowed: e.OverflowObservations, Rejected: e.Rejected, Repeated: e.RepeatedItems,
			Findings: e.StoredFindings, Flows: e.StoredFlows, FoldedFlows: e.OverflowFlows, Undone: e.UndescribedItems + e.RetriedItems, Denied: e.RefusedItems, Contested: e.Refused[remote.ReasonContested],
		})
	}
	return list
}

// peerMetrics returns the counters of shared windows.
func (c *collector) peerMetrics() (m metrics.Peers) {
	if c.log.sharing != nil {
		for _, p := range c.log.sharing.Stats() {
			m.Sent = append(m.Sent, metrics.SentPeer{Name: p.URL, Up: !p.Away, Blocks: p.Sent, Rows: p.Rows, Bytes: p.Bytes, Waiting: p.WaitingBytes, Dropped: p.Dropped, Provisional: p.Provisional.Results()})
		}
	}
	if c.server != nil {
		for _, p := range c.server.Stats().Peers {
			one := metrics.ReceivedPeer{Name: p.Name, LastSeen: p.Last, Blocks: p.StoredItems, Rows: p.StoredRows, Refused: make(map[string]uint64)}
			for reason, n := range p.Refused {
				if n > 0 {
					one.Refused[remote.Reason(reason).String()] = n
				}
			}
			m.Received = append(m.Received, one)
		}
	}
	return m
}

const (
	// topSpan is the time range of the top bottlenecks, up to now.
	topSpan = time.Minute
	// topRows is the maximum number of rows, in all of its 6 steps together: in each, one per
	// signal, kind and location.
	topRows = 6 << 14
	// topCount is the number of exported locations per signal.
	topCount = 10
)

func newTopBottlenecks() *table.TopBottlenecks {
	return table.NewTopBottlenecks(time.Second, topSpan, topRows)
}

// watchedStore is a store that passes accepted blocks to other readers before they are on disk.
type watchedStore struct {
	rowLog
	watching aggregate.Sinks // also get the blocks of peers
	live     []*table.Memory // a part of watching; none without --api-listen
	sharing  *remote.Sharing // nil without peers
	describe func()          // writes names of groups and locations; nil: nothing
	unlogged *atomic.Uint64  // rowLog.Unlogged, as far as live readers know
}

// rowLog makes the rows of taps and exporters durable.
type rowLog interface {
	journal.Log
	remote.Sink
	Unlogged() uint64 // see store.Store
}

// WriteBlock implements rowLog.
func (s *watchedStore) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if err := s.rowLog.WriteBlock(ctx, b); err != nil {
		return err
	}
	if s.sharing != nil {
		if err := s.sharing.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	return s.watching.WriteBlock(ctx, b)
}

// WriteProvisional implements aggregate.ProvisionalSink: rows of windows that are not closed go
// to live readers and to peers, but not to the log.
func (s *watchedStore) WriteProvisional(p *aggregate.Provisional) {
	for _, m := range s.live {
		m.WriteProvisional(p)
	}
	if s.sharing != nil {
		s.sharing.WriteProvisional(p)
	}
}

// Sync implements rowLog. Rows of exporters' observations have the names of this collector, which
// a round of its taps would write later.
func (s *watchedStore) Sync(ctx context.Context) error {
	if s.describe != nil {
		s.describe()
	}
	return s.durable(ctx, s.rowLog.Sync)
}

// Commit implements rowLog.
func (s *watchedStore) Commit(ctx context.Context, marks []byte) error {
	return s.durable(ctx, func(ctx context.Context) error { return s.rowLog.Commit(ctx, marks) })
}

// durable tells live readers which blocks a flush makes durable, and which are lost.
func (s *watchedStore) durable(ctx context.Context, flush func(context.Context) error) error {
	var failed error
	told := func(ctx context.Context) error {
		failed = flush(ctx)
		if n := s.Unlogged(); s.unlogged.Swap(n) != n {
			return table.ErrLost
		}
		return failed
	}
	for _, m := range s.live {
		next := told
		told = func(ctx context.Context) error { return m.Sync(ctx, next) }
	}
	if err := told(ctx); !errors.Is(err, table.ErrLost) {
		return err
	}
	return failed
}

// locationName returns the name of a location under the configuration in use.
func (c *collector) locationName(id aggregate.LocationID) string {
	if l, ok := c.using.Load().Fabric.Location(id); ok {
		return l.Name
	}
	return id.Placeholder()
}
