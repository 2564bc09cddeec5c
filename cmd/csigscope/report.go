package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/persist"
)

// reportFlags are the flags of report.
type reportFlags struct {
	network           networkFlags
	taps              tapFlags
	out               output
	failOn            string
	senders           []string
	maxSteps, workers int
	memory            int64 // bytes
	spill, spillDir   string
	dedup             time.Duration
}

const (
	minReportMemory = 1 << 20 // bytes
	maxReportSteps  = 100_000 // as many as a store answers for
)

// severities of findings, least severe first.
var severities = []string{store.SeverityInfo, store.SeverityWarning, store.SeverityError}

// reportFiles are the default names of reports by format.
var reportFiles = map[string]string{"html": "report.html", "json": "report.json", "markdown": "report.md"}

func newReportCommand() *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write one document about captures: the verdict, bottlenecks, flows, protocol faults, coverage",
		Long: `report reads captures and writes one document for a ticket: the verdict in words, protocol faults with
the packets to open in Wireshark, both matrices of every signal, the worst cells with their paths and
flows, distributions, periods, and missing data. The HTML is one file without scripts. Markdown leaves
out matrices, bottlenecks over time, distributions, and the ports that may be a bottleneck.

No store is needed. report divides time into steps of 1ms. If captures have more than --max-steps
of them, steps are longer, and report looks for faster patterns in parts of the time, in steps of
1ms. The aggregates take at most --memory, beside the memory for decoding. If that is too little, report
reads the captures once more through the embedded engine, in a temporary folder or in --spill-dir,
and the numbers are the same; without the engine it makes steps even longer or leaves out cells,
and says so.

With --fail-on, protocol faults of that severity or worse make the exit code 3. If a capture is
damaged, it is 1, whatever the rest shows.`,
		Example: `  csigscope report capture.pcapng --fabric fabric.yaml                # report.html
  csigscope report captures/ --fabric fabric.yaml --out ticket-4711.html
  csigscope report capture.pcap -o markdown --out -
  csigscope report capture.pcap -o json --out - --fail-on warning`,
		Args: filesArgs,
		RunE: f.run,
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.StringVar(&f.taps.place, "place", "receiver", "`PLACE` of taps that neither the fabric file nor the configuration places: receiver, sender, mid, or outside of the CSIG domain, where no tag belongs")
	f.taps.addMirrors(flags)
	flags.StringSliceVar(&f.senders, "senders", nil, "`PREFIXES` of the hosts that may send tags (default those of section findings of the configuration, else all)")
	f.out.addFormat(cmd, "html", "json", "markdown")
	before(cmd, func([]string) error {
		f.out.path = cmp.Or(f.out.path, reportFiles[f.out.format])
		return nil
	})
	f.out.outputFile.add(cmd, "out", "`FILE` to write, - for standard output (default report.html, report.json or report.md)")
	addDedupFlag(flags, &f.dedup)
	flags.StringVar(&f.failOn, "fail-on", "", "exit with 3 if there are protocol faults of this `SEVERITY` or worse: error, warning or info")
	flags.IntVar(&f.maxSteps, "max-steps", 16384, "maximum number of time steps: longer captures have longer steps, and parts of them are also read in as many steps of 1ms. report finds no period shorter than two and a half steps")
	addByteFlag(flags, &f.memory, "memory", 512<<20, "maximum `SIZE` of the aggregates in memory")
	flags.StringVar(&f.spill, "spill", string(source.SpillAuto), "`WHEN` captures go through the embedded engine: auto (if --memory is too little), always or never")
	flags.StringVar(&f.spillDir, "spill-dir", "", "empty `FOLDER` for the rows of the engine, which is kept (default a temporary one)")
	flags.IntVar(&f.workers, "workers", 2, "cores that read captures")
	before(cmd, func([]string) error { return f.check() })
	return cmd
}

func (f *reportFlags) check() error {
	if f.failOn != "" && !slices.Contains(severities, f.failOn) {
		return fmt.Errorf("--fail-on %q: expected error, warning or info", f.failOn)
	}
	if _, err := finding.ParsePlace(f.taps.place); err != nil {
		return fmt.Errorf("--place: %w", err)
	}
	if f.maxSteps < 2 || f.maxSteps > maxReportSteps {
		return fmt.Errorf("--max-steps %d: expected 2 to %d", f.maxSteps, maxReportSteps)
	}
	if f.memory < minReportMemory {
		return fmt.Errorf("--memory %d: expected a size of at least 1MiB, such as 512MiB", f.memory)
	}
	if !slices.Contains([]source.Spill{source.SpillAuto, source.SpillAlways, source.SpillNever}, source.Spill(f.spill)) {
		return fmt.Errorf("--spill %q: expected auto, always or never", f.spill)
	}
	return nil
}

func (f *reportFlags) run(cmd *cobra.Command, args []string) error {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	return replay.Spool(cmd.Context(), args, func(files []string) error {
		captures, err := f.captures(cmd, files, n)
		if err != nil {
			return err
		}
		r, failed := captures.Report(cmd.Context())
		if r == nil {
			return failed
		}
		for _, path := range args {
			r.Files = append(r.Files, filepath.Base(path))
		}
		for _, f := range r.Findings {
			for i := range f.Packets {
				p := &f.Packets[i]
				if at := slices.Index(files, p.File); at >= 0 {
					p.File = args[at] // not its copy
				}
			}
		}
		if err := f.write(cmd, r); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		return f.verdict(r)
	})
}

// captures configures the report of files, by the flags and the network.
func (f *reportFlags) captures(cmd *cobra.Command, files []string, n *network) (*source.Captures, error) {
	taps := f.taps
	if taps.place == "outside" {
		taps.place = "mid" // packets seen there enter no heatmap
	}
	senders, err := f.prefixes(n)
	if err != nil {
		return nil, err
	}
	c, err := (&pipelineFlags{taps: taps, fineAll: true, chunkSize: replay.DefaultChunkBytes, dedup: f.dedup, workers: f.workers}).config(files, n)
	if err != nil {
		return nil, err
	}
	c.Logger = newLogger(cmd, cmd.ErrOrStderr())
	return &source.Captures{
		Replay: c, Network: persist.Network(n.Naming()), Domain: n.Domain, Fabric: n.Fabric, Taps: n.TapNames(), Thresholds: n.Config.States.Thresholds(),
		Examine: replay.ExamineConfig{
			Decode: n.Decode, Group: n.Fabric.Group, Dedup: f.dedup, Windows: c.Settings, Tap: func(name string) window.Tap { return n.Tap(name, f.taps.defaults()) },
			Finding: finding.Config{Domain: n.Domain, Locator: n.Fabric, Senders: senders, Uninitialized: n.Config.Windows.LocateUntouched},
		},
		Limits: source.Limits{Bytes: uint64(f.memory), Steps: f.maxSteps}, Spill: source.Spill(f.spill),
		Store: func(context.Context) (*store.Store, func() error, error) {
			return f.openSpill(cmd, n.Config.States.Thresholds())
		},
		Progress: func(total int64, poll func() (int64, string)) (stop func()) { return showProgress(cmd, total, poll) },
		Notes:    cmd.ErrOrStderr(),
	}, nil
}

// prefixes returns the prefixes of hosts that may send tags.
func (f *reportFlags) prefixes(n *network) (list []netip.Prefix, err error) {
	for _, text := range f.senders {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, usageError{fmt.Errorf("--senders: %q: expected a prefix such as 10.0.0.0/8", text)}
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		list = n.Config.Findings.Prefixes()
	}
	return list, nil
}

// openSpill opens a store of the embedded engine in --spill-dir or in a temporary folder,
// independent of the configured store.
func (f *reportFlags) openSpill(cmd *cobra.Command, t aggregate.Thresholds) (*store.Store, func() error, error) {
	dir, remove := f.spillDir, func() error { return nil }
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "csigscope-report-"); err != nil {
			return nil, nil, fmt.Errorf("make folder for the embedded engine: %w", err)
		}
		remove = func() error { return os.RemoveAll(dir) }
	} else if list, err := os.ReadDir(dir); len(list) > 0 {
		return nil, nil, usageError{fmt.Errorf("--spill-dir %s: expected an empty folder: a report counts everything stored there", dir)}
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("--spill-dir: %w", err)
	}
	db, err := openScratch(cmd, dir, t)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return db.store, func() error { return errors.Join(db.Close(), remove()) }, nil
}

// openScratch makes a store in the folder, independent of the configured store.
func openScratch(cmd *cobra.Command, dir string, t aggregate.Thresholds) (*openedStore, error) {
	db := &openedStore{
		target: store.Target{Kind: store.KindEmbedded, Dir: dir, Database: store.DefaultDatabase},
		logger: newLogger(cmd, cmd.ErrOrStderr()),
	}
	err := db.startEngine(cmd.Context(), makeMissing, 0)
	if err == nil {
		o := store.Options{Database: db.target.Database, Thresholds: t, Logger: db.logger}
		o.Limits.ResultRows = math.MaxInt32 // the limits of a report bound its rows, and nobody can ask for less
		db.askEngine(&o)
		db.store, err = store.Open(cmd.Context(), o)
	}
	if err == nil {
		err = db.store.Migrate(cmd.Context())
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (f *reportFlags) write(cmd *cobra.Command, r *report.Report) error {
	write := r.WriteHTML
	if f.out.format == "markdown" {
		write = r.WriteMarkdown
	}
	if err := f.out.json(cmd, r, write); err != nil {
		return err
	}
	if f.out.named() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", f.out.path, r.Verdict.Text)
	}
	return nil
}

// verdict returns an error if a finding is at least as severe as --fail-on.
func (f *reportFlags) verdict(r *report.Report) error {
	if f.failOn == "" {
		return nil
	}
	bad := 0
	for i := range r.Findings {
		if slices.Index(severities, r.Findings[i].Severity) >= slices.Index(severities, f.failOn) {
			bad++
		}
	}
	if bad > 0 {
		return findingsError{fmt.Errorf("%d protocol faults of severity %s or worse", bad, f.failOn)}
	}
	return nil
}
