package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode/csig"
)

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Ask the store, or a running csigscope, where the bottlenecks are",
		Long: `query asks the store, or with --server a running csigscope. Most questions have the same
answers from both; watch and changes need a running collector, and extent, coverage, taps and
forget need the store.

-o json prints the answers of the query API (/openapi.json). windows, extent, coverage, taps and
forget have no such answer: they print their rows, without age and completeness. The columns of the
other formats are the fields of JSON, with the unit at the end (mean_bps). The mode of the bottleneck is
the location that more of a cell's heavy observations name than any other; a type_N that sums or counts
over hops has none.

Without a time range, the store answers with all its rows, and a collector with its last windows,
or for flows and findings with its last stored hour. --since, or --from and --to, ask for history.

Flags for several names separate them by commas. A name with a comma is written in double quotes,
as in CSV: --src '"rack1,2"'.`,
		Example: `  csigscope query extent
  csigscope query cells --signal min_abw_ratio --state congested
  csigscope query cells --since 15m --sort -heavy -o wide
  csigscope query windows --signal max_delay --src rack5 --step 1s -o csv
  csigscope query locations --signal max_delay --level device
  csigscope query coverage --step 1m
  csigscope query links --signal min_abw                         # each port, and its cells and flows
  csigscope query topology --src rack1 --dst rack2               # the paths of a pair
  csigscope query findings --severity error
  csigscope query taps
  csigscope query forget host7/eth0/0                            # it is no longer expected
  csigscope query path --src rack1 --dst rack2
  csigscope query export -o parquet --out cells.parquet
  csigscope query cells --server http://127.0.0.1:9465           # the last window of a collector
  csigscope query watch --server http://127.0.0.1:9465           # and later ones, as they end
  csigscope query changes --server http://127.0.0.1:9465         # onsets, moves, ends, silent taps
  csigscope query serve`,
	}
	cmd.AddCommand(
		newQueryExtent(),
		newQueryVerdict(),
		newQueryCells(),
		newQueryWindows(),
		newQueryLocations(),
		newQueryTimeline(),
		newQueryLinks(),
		newQueryTopology(),
		newQueryFlows(),
		newQueryFindings(),
		newQueryPath(),
		newQueryExport(),
		newQueryCoverage(),
		newQueryTaps(),
		newQueryForget(),
		newQueryWatch(),
		newQueryChanges(),
		newQueryServe(),
	)
	return cmd
}

// opener opens the store that --store names.
type opener func(cmd *cobra.Command, dsn string) (*openedStore, error)

// withStore makes a command run with the store that --store names.
func withStore(cmd *cobra.Command, open opener, run func(cmd *cobra.Command, db *openedStore, args []string) error) *cobra.Command {
	var dsn string
	addStoreFlag(cmd, &dsn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		db, err := open(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		return run(cmd, db, args)
	}
	return cmd
}

// openForReading opens a store that has to exist. It does not change the schema of a server,
// since readers may lack the right.
func openForReading(cmd *cobra.Command, dsn string) (*openedStore, error) {
	return openForReadingIn(cmd, dsn, 0)
}

// openForReadingIn is openForReading with a memory limit for the embedded engine in bytes; 0:
// its default.
func openForReadingIn(cmd *cobra.Command, dsn string, engineMemory uint64) (*openedStore, error) {
	db, err := connect(cmd, dsn, mustExist, nil, engineMemory)
	switch {
	case err != nil:
		return nil, err
	case db == nil:
		return nil, usageError{fmt.Errorf("%s: --store none keeps nothing to ask for", cmd.Name())}
	case db.engine == nil:
		return db, nil
	}
	if err := db.store.Migrate(cmd.Context()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// timeRange is the time range of a command.
type timeRange struct {
	from, to   string
	since      time.Duration
	begin, end time.Time // defaults, unless a flag sets them
	everything bool      // the default range of a store extends beyond its windows
}

// add adds the flags; otherwise describes the default range.
func (r *timeRange) add(cmd *cobra.Command, otherwise string) {
	flags := cmd.Flags()
	flags.StringVar(&r.from, "from", "", "start of the range (`TIME` in RFC 3339); default: "+otherwise)
	flags.StringVar(&r.to, "to", "", "end of the range (`TIME` in RFC 3339); default: "+otherwise)
	flags.Var((*config.Duration)(&r.since), "since", "length of a range that ends now, such as 15m or 7d, instead of --from and --to")
	flags.Lookup("since").DefValue = "" // none
	exclusive(flags, "since", "from")
	exclusive(flags, "since", "to")
	before(cmd, func([]string) error {
		if flags.Changed("since") {
			if r.since == 0 || r.from != "" || r.to != "" {
				return fmt.Errorf("--since %s: expected a time above 0, and neither --from nor --to", config.Duration(r.since))
			}
			r.end = time.Now()
			r.begin = r.end.Add(-r.since)
		}
		return errors.Join(r.parse("from", r.from, &r.begin), r.parse("to", r.to, &r.end))
	})
}

// given reports whether a flag sets the range.
func (r *timeRange) given() bool { return r.since > 0 || r.from != "" || r.to != "" }

func (r *timeRange) parse(name, text string, to *time.Time) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("--%s %q: expected a date and time with its zone, such as 2026-01-05T09:30:00Z", name, text)
	}
	*to = t
	return nil
}

// cellFlags select the cells of a signal.
type cellFlags struct {
	signal, level string
	src, dst      []string
}

// add adds the flags for the signal and the level.
func (f *cellFlags) add(cmd *cobra.Command) {
	f.addSignal(cmd)
	cmd.Flags().StringVar(&f.level, "level", "location", "what the mode names: location (a port, or ports that tags cannot tell apart), set (ports of a device with the same orientation), device, stage, or far_end (ports that face the same device or host)")
	before(cmd, func([]string) error {
		if _, err := fabric.ParseLevel(f.level); err != nil {
			return fmt.Errorf("--level: %w", err)
		}
		return nil
	})
}

func (f *cellFlags) addSignal(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.signal, "signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd, or type_N for a signal type of your own tables; type_N:AGGREGATION:UNIT if a type was stored with several meanings")
	before(cmd, func([]string) error {
		if _, err := csig.ParseSignal(f.signal); err != nil {
			return fmt.Errorf("--signal: %w", err)
		}
		return nil
	})
}

func (f *cellFlags) addEnds(cmd *cobra.Command) {
	f.addGroups(cmd, "only from these source `GROUPS`, or groups in them", "only to these destination `GROUPS`, or groups in them")
}

// addGroups adds --src and --dst. A command for single groups refuses several, instead of taking
// the last one.
func (f *cellFlags) addGroups(cmd *cobra.Command, src, dst string) {
	cmd.Flags().StringSliceVar(&f.src, "src", nil, src)
	cmd.Flags().StringSliceVar(&f.dst, "dst", nil, dst)
}

func newQueryCoverage() *cobra.Command {
	var out output
	var times timeRange
	var cells cellFlags
	var by string
	q := store.Question{}
	cmd := &cobra.Command{
		Use:   "coverage",
		Short: "How much of the range is known, by window or cell",
		Long: `coverage lists how many observations answers are based on, and how many are missing, by window, over
all signals. tags and reflections include those that are untouched or trimmed; overflow counts
observations beyond the limits on keys. gap_ratio is the part of the window that at least one producer
lacks. lost is the number of missing observations; a packet that the kernel dropped, or that the
sequence numbers of a mirror session show as missing, counts as one. In a window that is not listed
nothing was observed.

With --by cell it lists the cells of one signal. covered_ratio is the number of windows in which the
cell was observed, divided by the number of all windows of the range, also those in which nothing was
stored. These windows have the length --resolution: by default 1s, or 1m if the range is longer than an
hour or its first windows of 1s are no longer stored. Cells with the lowest ratio come first.`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	cells.addSignal(cmd)
	cells.addGroups(cmd, "with --by cell: only from this source `GROUP`, which contains no others", "with --by cell: only to this destination `GROUP`, which contains no others")
	times.add(cmd, "all data")
	flags := cmd.Flags()
	flags.DurationVar(&q.Step, "step", time.Second, "with --by window: length of the answer's windows")
	flags.DurationVar(&q.Resolution, "resolution", 0, "length of the stored windows to read (default 1s; 1m for a --step of whole minutes, and 1s in open minutes)")
	flags.StringVar(&by, "by", "window", "window or cell")
	needless(flags, "by=window", "signal", "src", "dst")
	needless(flags, "by=cell", "step")
	before(cmd, func([]string) error {
		switch {
		case by != "window" && by != "cell":
			return fmt.Errorf("--by %q: expected window or cell", by)
		case by == "window" && (flags.Changed("signal") || flags.Changed("src") || flags.Changed("dst")):
			return errors.New("--signal, --src and --dst: need --by cell, since windows cover all signals and cells")
		case by == "cell" && flags.Changed("step"):
			return errors.New("--step: leave it out with --by cell, which covers the whole range")
		case len(cells.src) > 1 || len(cells.dst) > 1:
			return errors.New("--src and --dst: expected one group each")
		case q.Step <= 0:
			return fmt.Errorf("--step %s: expected a time above 0", q.Step)
		case q.Resolution < 0:
			return fmt.Errorf("--resolution %s: expected 1m, 1s or less than 1s", q.Resolution)
		}
		return nil
	})
	return withStore(cmd, openForReading, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		q.From, q.To = times.begin, times.end
		asked, err := answers.Ask(cmd.Context(), db.store, answers.Params{Signal: cells.signal, Src: strings.Join(cells.src, ""), Dst: strings.Join(cells.dst, ""), Query: q})
		if wrong, ok := errors.AsType[*answers.ParameterError](err); ok {
			return usageError{fmt.Errorf("--%w", wrong)}
		}
		if errors.Is(err, answers.ErrEmpty) {
			return fmt.Errorf("query %s: %w: %s", db.target, err, emptyAdvice)
		}
		if err != nil {
			return err
		}
		if _, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db); err != nil {
			return err
		}
		list := asked.CoverageWindows
		if by == "cell" {
			list = asked.CoverageCells
		}
		t, err := list(cmd.Context())
		if err != nil {
			return err
		}
		return out.list(cmd, t)
	})
}

func newQueryExtent() *cobra.Command {
	var out output
	cmd := &cobra.Command{Use: "extent", Short: "Time range, signals and resolutions of the stored rows", Args: noArgs}
	out.add(cmd, tabular.ListingFormats()...)
	return withStore(cmd, openForReading, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		e, err := db.store.Extent(cmd.Context())
		if err != nil {
			return err
		}
		partial, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db)
		if err != nil {
			return err
		}
		if e.Observations == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: nothing is stored in %s yet\n", db.target)
		}
		return out.list(cmd, answers.Extent(e, partial))
	})
}

func newQueryTaps() *cobra.Command {
	var out output
	var times timeRange
	cmd := &cobra.Command{
		Use:   "taps",
		Short: "Packets and observations of each tap: decoded, stored, rejected, dropped",
		Long: `taps lists the packets and observations of taps over a range: packets by the result of decoding;
observations = stored + overflow + late + rejected; packets that the kernel dropped; frames that
receive offload (GRO) merged, whose packets and bytes are miscounted; and packets missing in the
sequence numbers of mirror sessions. A chunk of a capture counts in full if any part of it lies in
the range. If a file does not name its interfaces, the tap has the name of the
file without its extension. A mirror session is the tap MIRROR/SWITCH/SESSION; the column timestamps says whether
its times are the switch's.`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	times.begin, times.end = store.Everything()
	times.add(cmd, "all data")
	return withStore(cmd, openForReading, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		rows, err := db.store.Taps(cmd.Context(), times.begin, times.end)
		if err != nil {
			return err
		}
		return out.list(cmd, answers.Taps(rows))
	})
}

func newQueryForget() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "forget [PRODUCER...]",
		Short: "List live producers, or stop expecting some of them",
		Long: `Without a name, forget lists the producers that wrote in the last day (live taps, and streams of
exporters such as host7/eth0/0: exporter, interface, ring), the taps of collectors that started in it,
and those that are forgotten.
last is the minute of the last rows, and empty if there are none in the last day.

With names, forget makes all collectors stop expecting these producers within a minute, even if the
configuration or the fabric file names them, until they start or write again. Wait until a producer
is silent: one that still writes in the next minute stays expected. If several hosts share a name,
give the hexadecimal id from the list instead. Stored rows stay.

/api/v1/health may name a tap that has no stream in the list, such as host7/eth0 of the fabric file:
it wrote nothing in the last day. If it wrote before, give its full name all the same
(host7/eth0/0). If it never started, remove it from the fabric file, the token file or the
configuration.`,
		Example: `  csigscope query forget
  csigscope query forget host7/eth0/0 host7/eth1/0`,
	}
	out.add(cmd, tabular.ListingFormats()...)
	return withStore(cmd, asItIs(mustExist, nil, "no producers"), func(cmd *cobra.Command, db *openedStore, names []string) error {
		if len(names) == 0 {
			list, err := db.store.Producers(cmd.Context(), time.Now().Add(-store.ExpectFor))
			if err != nil {
				return err
			}
			return out.list(cmd, answers.Producers(list))
		}
		var list []store.Producer
		for _, name := range names {
			forgotten, err := db.store.Forget(cmd.Context(), name)
			if err != nil {
				return fmt.Errorf("%w: csigscope query forget lists the producers of the last day", err)
			}
			list = append(list, forgotten...)
		}
		return out.list(cmd, answers.Producers(list))
	})
}
