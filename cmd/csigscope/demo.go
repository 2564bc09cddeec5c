package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/replay/emitter"
)

// Files that demo --once writes.
const (
	demoDataFile   = "data.json"
	demoReportFile = "report.html"
)

type demoFlags struct {
	emit             emitFlags
	replay           replayFlags
	outbox           outboxFlags
	dir, listen, dsn string
	clickhouse       string
	once             bool
}

func newDemoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Emit a training job, replay it, store it, and show the heatmaps",
		Long: `demo runs the whole pipeline on one machine: it simulates a fabric of 64 hosts in 16
racks with a training job, one oversubscribed uplink group and one incast, replays
what the taps captured into the embedded ClickHouse engine, and serves the two
heatmaps on a local page: mean available bandwidth, and the mode of the bottleneck.`,
		Example: `  csigscope demo
  csigscope demo --seed 7 --listen 127.0.0.1:9999
  csigscope demo --format compact       # 7-bit locators: sets of ports
  csigscope demo --once --dir out       # writes out/report.html and out/data.json`,
		Args: noArgs,
	}
	f.emit.add(cmd)
	f.replay.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "csigscope-demo", "`FOLDER` for captures and data")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "loopback `ADDRESS` of the page")
	addClickHouseFlag(cmd, &f.clickhouse)
	addStoreConfigFlag(cmd)
	flags.StringVar(&f.dsn, "store", "", "where to store, default embedded in the demo's folder, whatever the configuration file says")
	f.outbox.add(flags)
	flags.BoolVar(&f.once, "once", false, "write "+demoDataFile+" and "+demoReportFile+" to the folder and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	s, err := f.emit.build(cmd)
	if err != nil {
		return err
	}
	// Two demos in one folder must not add up: each scenario has captures and a store
	// of its own.
	id, err := s.ID()
	if err != nil {
		return err
	}
	own := filepath.Join(f.dir, fmt.Sprintf("%s-%08x", s.Name, uint32(id)))
	// Simulating takes a while: what is missing is told before.
	var d *door.Door
	if !f.once {
		if d, err = new(apiConfig).open(cmd.Context(), "--listen", f.listen, false, newLogger(cmd, cmd.ErrOrStderr())); err != nil {
			return err
		}
		defer d.Close()
	}
	if f.dsn == "" {
		f.dsn = store.KindEmbedded + ":" + filepath.Join(own, "store")
		if _, err := chdb.FindLibrary(""); err != nil {
			return err
		}
	}
	report, err := simulate(cmd, s, filepath.Join(own, "captures"))
	if err != nil {
		return err
	}
	n, err := openNetwork("", report.Fabric)
	if err != nil {
		return err
	}
	config, err := f.replay.config(report.Captures, n)
	if err != nil {
		return err
	}
	r, err := newReplayRun(cmd, config, n)
	if err != nil {
		return err
	}
	db, err := openStore(cmd, f.dsn, &f.outbox)
	if err != nil {
		return err
	}
	if db == nil {
		return usageError{fmt.Errorf("demo: --store none keeps nothing to show")}
	}
	defer db.Close()
	if err := db.listen(cmd, f.clickhouse); err != nil {
		return err
	}
	memory := table.NewMemory(table.MemoryOptions{})
	*r.sinks = append(*r.sinks, memory)
	fmt.Fprintf(cmd.OutOrStdout(), "replaying into %s ...\n\n", db.target)
	if err := r.run(cmd, db, "text"); err != nil {
		return err
	}
	if f.once {
		return f.write(cmd, db, s.Name)
	}
	memory.Publish()
	return show(cmd, db, n, memory, s.Name, d)
}

// simulate writes what a scenario's taps capture into a folder, and says how much it is.
func simulate(cmd *cobra.Command, s emitter.Scenario, captures string) (report emitter.Report, err error) {
	network, err := emitter.Fabric(s)
	if err != nil {
		return report, usageError{err}
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "simulating %s of a fabric of %d switches and %d hosts ...\n", s.Duration, len(network.Devices), len(network.Hosts))
	if report, err = runEmitter(cmd, s, captures); err == nil {
		fmt.Fprintf(out, "%d packets sent, %d captured in %d files\n", report.Sent, report.Captured, len(report.Captures))
	}
	return report, err
}

// show serves the page behind the door until the command is interrupted.
func show(cmd *cobra.Command, db *openedStore, n *network, memory *table.Memory, name string, d *door.Door) error {
	server, err := newPageServer(db, name, memory, d)
	if err != nil {
		return err
	}
	names := &api.BothNames{Fabric: func() *fabric.Fabric { return n.fabric }}
	server.handler = withALTO(server.handler, alto.Config{Memory: memory, Groups: names.Groups, Prefixes: names.Prefixes, Logger: db.logger})
	announce(cmd, d)
	return server.run(cmd.Context())
}

// write leaves the page's data and the report in the demo's folder.
func (f *demoFlags) write(cmd *cobra.Command, db *openedStore, name string) error {
	bundle, err := query.Build(cmd.Context(), query.FromStore(db.store), query.Options{Fabric: name, Levels: fabric.Levels()})
	if err != nil {
		return fmt.Errorf("build page data: %w", err)
	}
	data, err := json.Marshal(bundle)
	if err != nil {
		return fmt.Errorf("encode page data: %w", err)
	}
	dataPath, reportPath := filepath.Join(f.dir, demoDataFile), filepath.Join(f.dir, demoReportFile)
	if err := os.WriteFile(dataPath, data, 0o644); err != nil {
		return fmt.Errorf("write page data: %w", err)
	}
	file, err := os.Create(reportPath)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := page.WriteReport(file, bundle); err != nil {
		file.Close()
		return fmt.Errorf("write report: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nwrote %s and %s\n", reportPath, dataPath)
	return nil
}
