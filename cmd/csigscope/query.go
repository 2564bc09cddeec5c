package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Ask the store, or a running csigscope, where the bottlenecks are",
		Long: `query reads stored rows. Means are in the signal's unit: bit/s, a
ratio from 0 to 1, ns, or a count. The mode of the bottleneck is the location that most
of a cell's heavily loaded observations name; a type_N that sums or counts over hops
has none.`,
		Example: `  csigscope query extent
  csigscope query cells --signal min_abw_ratio
  csigscope query windows --signal max_delay --src rack5 --step 1s -o csv
  csigscope query locations --signal max_delay --level device
  csigscope query coverage --step 1m
  csigscope query findings --severity error
  csigscope query taps
  csigscope query forget host7/eth0                              # nobody waits for it any more
  csigscope query path --src rack1 --dst rack2                   # asks a running collect --api-listen
  csigscope query export -o parquet --out cells.parquet          # so does this
  csigscope query cells --server http://127.0.0.1:9465           # the last window of a collector
  csigscope query watch --server http://127.0.0.1:9465           # and each one that closes
  csigscope query serve`,
	}
	cmd.AddCommand(
		newQueryExtent(),
		newQuestionCommand("cells", "Mean and mode of the bottleneck of each cell over the range", (*answers.Question).Cells, serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to"}, windows: 1, ask: answers.ServedCells,
		}),
		newQuestionCommand("windows", "Mean and mode of the bottleneck of each cell in each window of the range", (*answers.Question).Windows, serverQuestion{}),
		newQuestionCommand("locations", "Locations by how often heavily loaded packets name them", (*answers.Question).Locations, serverQuestion{
			parameters: []string{"signal", "level", "from", "to", "top"}, windows: 1, ask: answers.ServedLocations,
		}),
		newQuestionCommand("timeline", "Locations by how often heavily loaded packets name them, in each window of the range", (*answers.Question).Timeline, serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to", "step", "top"}, windows: 60, ask: answers.ServedTimeline,
		}),
		newQueryFlows(),
		newQueryFindings(),
		newQueryPath(),
		newQueryExport(),
		newQueryCoverage(),
		newQueryTaps(),
		newQueryForget(),
		newQueryWatch(),
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

// openForReading opens a store that has to exist. The schema of a server is left as it is, since
// readers may not be allowed to change it.
func openForReading(cmd *cobra.Command, dsn string) (*openedStore, error) {
	return openForReadingIn(cmd, dsn, 0)
}

// openForReadingIn is openForReading with a limit of the embedded engine, bytes; 0: its default.
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

// timeRange is a range that a command is asked for.
type timeRange struct {
	from, to   string
	begin, end time.Time // as they are unless a flag says otherwise
}

// add adds the flags; otherwise names the range without them.
func (r *timeRange) add(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&r.from, "from", "", "begin of the range (`TIME`, RFC 3339), default "+otherwise)
	cmd.Flags().StringVar(&r.to, "to", "", "end of the range (`TIME`, RFC 3339), default "+otherwise)
	before(cmd, func([]string) error {
		return errors.Join(r.parse("from", r.from, &r.begin), r.parse("to", r.to, &r.end))
	})
}

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

// atLeastOne refuses a limit on rows that leaves none.
func atLeastOne(top int) error {
	if top < 1 {
		return fmt.Errorf("--top %d: expected at least 1", top)
	}
	return nil
}

// cellFlags say which cells of a signal a question is about.
type cellFlags struct{ signal, level, src, dst string }

func (f *cellFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.signal, "signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd or type_N; type_N:AGGREGATION:UNIT where several meanings of a type are stored")
	flags.StringVar(&f.level, "level", "location", "where modes are taken: location, set, device or stage")
	flags.StringVar(&f.src, "src", "", "only from this source `GROUP`, or a group in it where a server is asked")
	flags.StringVar(&f.dst, "dst", "", "only to this destination `GROUP`, or a group in it where a server is asked")
	before(cmd, func([]string) error {
		if _, err := csig.ParseSignal(f.signal); err != nil {
			return fmt.Errorf("--signal: %w", err)
		}
		if _, err := fabric.ParseLevel(f.level); err != nil {
			return fmt.Errorf("--level: %w", err)
		}
		return nil
	})
}

// questionFlags are those of all questions that are asked of signals.
type questionFlags struct {
	out              output
	times            timeRange
	cells            cellFlags
	step, resolution time.Duration
	top              int
}

// newQuestionCommand is a question that answer answers from a store and, where served can be
// asked, a server.
func newQuestionCommand(
	name, short string, answer func(*answers.Question, context.Context) (*tabular.Listing, error), served serverQuestion,
) *cobra.Command {
	var f questionFlags
	cmd := &cobra.Command{Use: name, Short: short, Args: noArgs}
	flags := cmd.Flags()
	f.out.add(cmd, tabular.ListingFormats()...)
	f.cells.add(cmd)
	f.times.add(cmd, "that of the data")
	flags.DurationVar(&f.step, "step", time.Second, "length of the answer's windows")
	flags.DurationVar(&f.resolution, "resolution", 0, "length of the stored windows to read, default the coarsest that fits")
	flags.IntVar(&f.top, "top", 20, "how many locations or flows")
	before(cmd, func([]string) error { return f.check() })
	withStore(cmd, openForReading, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		q, err := f.ask(cmd.Context(), db)
		if err != nil {
			return err
		}
		if _, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db); err != nil {
			return err
		}
		t, err := answer(q, cmd.Context())
		if err != nil {
			return err
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: no stored rows match: see csigscope query extent")
		}
		return f.out.list(cmd, t)
	})
	if served.ask != nil {
		askServer(cmd, &f.out, served)
	}
	return cmd
}

func (f *questionFlags) check() error {
	if f.step <= 0 {
		return fmt.Errorf("--step %s: expected a time above 0", f.step)
	}
	if f.resolution < 0 {
		return fmt.Errorf("--resolution %s: expected 1m, 1s or less than 1s", f.resolution)
	}
	return atLeastOne(f.top)
}

// ask prepares the question to a store.
func (f *questionFlags) ask(ctx context.Context, db *openedStore) (*answers.Question, error) {
	p := answers.Params{
		Signal: f.cells.signal, Src: f.cells.src, Dst: f.cells.dst, Top: f.top,
		Query: store.Question{From: f.times.begin, To: f.times.end, Step: f.step, Resolution: f.resolution},
	}
	p.Query.Level, _ = fabric.ParseLevel(f.cells.level) // checked
	q, err := answers.Ask(ctx, db.store, p)
	if wrong, ok := errors.AsType[*answers.ParameterError](err); ok {
		return nil, usageError{fmt.Errorf("--%w", wrong)}
	}
	if errors.Is(err, answers.ErrEmpty) {
		return nil, fmt.Errorf("query %s: %w: run csigscope replay first", db.target, err)
	}
	return q, err
}

func newQueryFlows() *cobra.Command {
	cmd := newQuestionCommand("flows", "Flows by how often they were heavily loaded", (*answers.Question).Flows, serverQuestion{
		parameters: []string{"signal", "src", "dst", "from", "to", "top"}, ask: answers.ServedFlows,
	})
	cmd.Long = `flows lists the flows with the most heavy observations, and the location that most of those name. A row of a flow counts its heavy observations alone. "others" are all
that is left: the clear observations, and those of flows that are not named, cell by cell
where a cell names a flow and in the group overflow of all other cells. Together they are
all observations, but for min and max, which are those of the whole cells.

Each window of 1 s or 1 min names the worst flows of each signal and kind (flows: {top:
100} in the configuration; 0 for none). Up to flows: {budget: 4096} flows a window their
numbers are exact; beyond that they are what was counted at least, as they are where a
replay cuts a window with more than 1024 flows. Those that export sees are handed over; a
collector takes up to 10,000 rows of a stream's window (window_flows among the limits of its
section ingest) and adds the rest to the others.`
	return cmd
}

func newQueryCoverage() *cobra.Command {
	var by string
	cmd := newQuestionCommand("coverage", "How much of the range is known, by window or cell", func(q *answers.Question, ctx context.Context) (*tabular.Listing, error) {
		if by == "cell" {
			return q.CoverageCells(ctx)
		}
		return q.CoverageWindows(ctx)
	}, serverQuestion{})
	cmd.Long = `coverage lists the observations behind the answers. By window, over all signals: observations by
kind, those that no hop touched, trimmed ones and those past a producer's key budget, how
many producers there were, and what is missing: rows that were taken and never stored
leave gaps. gap_share is the part of the window that is missing of at least one producer,
lost how many observations are missing, with those that the kernel had no room for and those
missing in the numbers of mirror sessions, each packet for one.
A window that is not listed was silent.

By cell, of one signal: the same, and covered, the share of the range's stored windows in
which the cell was observed at all, the least first.`
	cmd.Flags().StringVar(&by, "by", "window", "window or cell")
	before(cmd, func([]string) error {
		if by != "window" && by != "cell" {
			return fmt.Errorf("--by %q: expected window or cell", by)
		}
		return nil
	})
	return cmd
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
		Short: "Packets and observations of each tap, and what became of them",
		Long: `taps lists the packets and observations of taps over a range: packets by the result of
decoding, observations = stored + overflow + late + rejected, packets that the kernel
dropped, frames that receive offload (GRO) made of several, whose packets and bytes are
wrong, and packets missing in the numbers of mirror sessions. A piece of a
capture counts whole if any of it lies in the range. Where files have no names for their
interfaces, a tap is called like its file. A session of a mirror is a tap, called
MIRROR/SWITCH/SESSION; timestamps says whether its times are the switch's.`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	times.begin, times.end = store.Everything()
	times.add(cmd, "that of all")
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
		Short: "List live producers, or wait no longer for some of them",
		Long: `Without a name, forget lists the producers of the last day, which are live taps and
EXPORTER/STREAM, and those that are forgotten. Live windows of all collectors of the store are
complete with rows of each of them, and of the taps and exporters of the configuration and the
fabric file.

With names, or the hexadecimal ids of the list where several hosts share a name, forget has
collectors expect these producers no longer, within a minute, until they write again. What is
stored stays. Exporters and taps that never wrote are expected until the configuration or the
fabric file names them no longer.`,
		Example: `  csigscope query forget
  csigscope query forget host7/eth0 host7/eth1`,
	}
	out.add(cmd, tabular.ListingFormats()...)
	return withStore(cmd, asItIs(mustExist, nil, "no producers"), func(cmd *cobra.Command, db *openedStore, names []string) error {
		if len(names) == 0 {
			list, err := db.store.Producers(cmd.Context(), time.Now().Add(-expectFor))
			if err != nil {
				return err
			}
			return out.list(cmd, answers.Producers(list))
		}
		var list []store.Producer
		for _, name := range names {
			forgotten, err := db.store.Forget(cmd.Context(), name)
			if err != nil {
				return fmt.Errorf("%w: csigscope query forget lists those of the last day", err)
			}
			list = append(list, forgotten...)
		}
		return out.list(cmd, answers.Producers(list))
	})
}

func newQueryFindings() *cobra.Command {
	var out output
	var times timeRange
	var q store.FindingQuestion
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "Violations of the protocol or the configuration, the most severe first",
		Example: `  csigscope query findings --severity error,warning
  csigscope query findings --device leaf3 --from 2026-01-20T09:00:00Z -o json`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	times.begin, times.end = store.Everything()
	times.add(cmd, "that of all, or a server's last hour")
	flags := cmd.Flags()
	flags.StringSliceVar(&q.Severities, "severity", nil, "only these `SEVERITIES`: "+strings.Join(severities, ", "))
	flags.StringSliceVar(&q.Kinds, "kind", nil, "only these `KINDS`")
	flags.StringSliceVar(&q.Devices, "device", nil, "only about these `DEVICES`")
	flags.IntVar(&q.Limit, "top", 100, "how many at most")
	before(cmd, func([]string) error {
		for _, s := range q.Severities {
			if !slices.Contains(severities, s) {
				return fmt.Errorf("--severity %q: expected %s", s, strings.Join(severities, ", "))
			}
		}
		return atLeastOne(q.Limit)
	})
	withStore(cmd, openForReading, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		q.From, q.To = times.begin, times.end
		t, err := answers.Findings(cmd.Context(), db.store, q)
		if err != nil {
			return err
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: there are no such findings")
		}
		return out.list(cmd, t)
	})
	askServer(cmd, &out, serverQuestion{parameters: []string{"from", "to", "severity", "kind", "device", "top"}, ask: answers.ServedFindings})
	return cmd
}
