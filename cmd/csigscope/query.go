package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Ask the store where the bottlenecks are",
		Long: `query reads what replays have stored. Means are in the signal's unit: bit/s, a
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
  csigscope query path --src rack1 --dst rack2                   # of a collector
  csigscope query export --format parquet --out cells.parquet    # the same
  csigscope query cells --server http://127.0.0.1:9465           # the last window of a collector
  csigscope query cells --server http://127.0.0.1:9465 --watch   # and each one that closes
  csigscope query serve`,
	}
	cmd.AddCommand(
		newQueryExtent(),
		askServer(newQuestionCommand("cells", "Mean and mode of the bottleneck of each cell over the range", (*question).cells), serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to"}, windows: 1, watch: true, ask: askCells,
		}),
		newQuestionCommand("windows", "The same for each window of the range", (*question).windows),
		askServer(newQuestionCommand("locations", "Locations by how often heavily loaded packets name them", (*question).locations), serverQuestion{
			parameters: []string{"signal", "level", "from", "to", "top"}, windows: 1, ask: askLocations,
		}),
		askServer(newQuestionCommand("timeline", "The same for each window of the range", (*question).timeline), serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to", "step", "top"}, windows: 60, ask: askTimeline,
		}),
		askServer(newQueryFlows(), serverQuestion{
			parameters: []string{"signal", "src", "dst", "from", "to", "top"}, ask: askFlows,
		}),
		newQueryFindings(),
		newQueryPath(),
		newQueryExport(),
		newQueryCoverage(),
		newQueryTaps(),
		newQueryWatch(),
		newQueryServe(),
	)
	return cmd
}

// question is what the flags of a query ask, and the answers' names.
type question struct {
	cmd    *cobra.Command
	db     *openedStore
	query  store.Query
	top    int
	names  map[aggregate.GroupID]string
	places map[aggregate.LocationID]fabric.Location
}

// queryFlags are the flags of all questions.
type queryFlags struct {
	dsn, output, signal, from, to, level, src, dst string
	step, resolution                               time.Duration
	top                                            int
}

func newQuestionCommand(name, short string, answer func(*question) (*table, error)) *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{Use: name, Short: short, Args: usageArgs(cobra.NoArgs)}
	flags := cmd.Flags()
	addStoreFlag(cmd, &f.dsn)
	addOutputFlag(cmd, &f.output)
	flags.StringVar(&f.signal, "signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd or type_N; type_N:AGGREGATION:UNIT where several meanings of a type are stored")
	flags.StringVar(&f.from, "from", "", "begin of the range (`TIME`, RFC 3339), default that of the data")
	flags.StringVar(&f.to, "to", "", "end of the range (`TIME`, RFC 3339), default that of the data")
	flags.StringVar(&f.level, "level", "location", "where modes are taken: location, set, device or stage")
	flags.StringVar(&f.src, "src", "", "only cells from this source `GROUP`")
	flags.StringVar(&f.dst, "dst", "", "only cells to this destination `GROUP`")
	flags.DurationVar(&f.step, "step", time.Second, "length of the answer's windows")
	flags.DurationVar(&f.resolution, "resolution", 0, "length of the stored windows to read, default the coarsest that fits")
	flags.IntVar(&f.top, "top", 20, "how many locations or flows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := f.open(cmd)
		if err != nil {
			return err
		}
		defer q.db.Close()
		t, err := answer(q)
		if err != nil {
			return err
		}
		return t.write(cmd.OutOrStdout(), f.output)
	}
	return cmd
}

// open checks the flags, opens the store and reads its names.
func (f *queryFlags) open(cmd *cobra.Command) (*question, error) {
	q := &question{cmd: cmd, top: f.top, query: store.Query{Step: f.step, Resolution: f.resolution}}
	var err error
	if _, err = csig.ParseSignal(f.signal); err != nil {
		return nil, usageError{fmt.Errorf("--signal: %w", err)}
	}
	if q.query.Level, err = fabric.ParseLevel(f.level); err != nil {
		return nil, usageError{fmt.Errorf("--level: %w", err)}
	}
	if err = parseRange(f.from, f.to, &q.query.From, &q.query.To); err != nil {
		return nil, err
	}
	if q.db, err = openForReading(cmd, f.dsn); err != nil {
		return nil, err
	}
	if err = q.prepare(f); err != nil {
		q.db.Close()
		return nil, err
	}
	return q, nil
}

// parseRange reads the flags --from and --to; empty ones change nothing.
func parseRange(from, to string, begin, end *time.Time) error {
	for _, o := range []struct {
		name, text string
		to         *time.Time
	}{{"from", from, begin}, {"to", to, end}} {
		if o.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, o.text)
		if err != nil {
			return usageError{fmt.Errorf("--%s: %w", o.name, err)}
		}
		*o.to = t
	}
	return nil
}

// openForReading opens a store that has to exist. A server is left as it is, since who
// asks may not be allowed more.
func openForReading(cmd *cobra.Command, dsn string) (*openedStore, error) {
	db, err := connectStore(cmd, dsn, mustExist)
	switch {
	case err != nil:
		return nil, err
	case db == nil:
		return nil, usageError{fmt.Errorf("%s: --store none keeps nothing to ask for", cmd.CommandPath())}
	case db.engine == nil:
		return db, nil
	}
	if err := db.store.Migrate(cmd.Context()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// prepare reads names and fills in what the flags leave open.
func (q *question) prepare(f *queryFlags) error {
	ctx := q.cmd.Context()
	extent, err := q.db.store.Extent(ctx)
	if err != nil {
		return err
	}
	if !extent.First.Before(extent.Last) {
		return fmt.Errorf("query %s: nothing is stored yet: run csigscope replay first", q.db.target)
	}
	if _, err := notePartial(ctx, q.cmd.ErrOrStderr(), q.db); err != nil {
		return err
	}
	if q.query.From.IsZero() {
		// The window of a minute that has the first second begins before that.
		q.query.From = extent.First.Truncate(q.query.Resolution)
	}
	if q.query.To.IsZero() {
		q.query.To = extent.Last
	}
	// A replay that was interrupted early has left fine windows alone.
	if n := len(extent.Resolutions); q.query.Resolution == 0 && n > 0 && extent.Resolutions[n-1] < time.Second {
		q.query.Resolution = extent.Resolutions[n-1]
	}
	if err := q.findSignal(f.signal, extent.Signals); err != nil {
		return err
	}
	groups, err := q.db.store.Groups(ctx)
	if err != nil {
		return err
	}
	q.names = make(map[aggregate.GroupID]string, len(groups))
	ids := make(map[string]aggregate.GroupID, len(groups))
	for _, g := range groups {
		q.names[g.ID] = g.Name
		ids[g.Name] = g.ID
	}
	for _, o := range []struct {
		name string
		to   **aggregate.GroupID
	}{{f.src, &q.query.Src}, {f.dst, &q.query.Dst}} {
		if o.name == "" {
			continue
		}
		id, ok := ids[o.name]
		if !ok {
			return usageError{fmt.Errorf("group %q: is not in the store", o.name)}
		}
		*o.to = &id
	}
	locations, err := q.db.store.Locations(ctx)
	if err != nil {
		return err
	}
	q.places = make(map[aggregate.LocationID]fabric.Location, len(locations))
	for _, l := range locations {
		q.places[l.ID] = l
	}
	return nil
}

// findSignal finds the signal that a name means among recent ones, or else among those
// of the range.
func (q *question) findSignal(name string, recent []csig.Signal) error {
	s, err := csig.FindSignal(name, recent)
	if err == nil && !s.HasValue() && q.query.From.Before(q.query.To) {
		inRange, readErr := q.db.store.Signals(q.cmd.Context(), q.query.From.Truncate(time.Minute), q.query.To)
		if readErr != nil {
			return readErr
		}
		s, err = csig.FindSignal(name, inRange)
	}
	if err != nil {
		return usageError{fmt.Errorf("--signal: %w", err)}
	}
	q.query.Signal = s
	return nil
}

func (q *question) group(id aggregate.GroupID) string {
	return cmp.Or(q.names[id], fmt.Sprintf("group %016x", uint64(id)))
}

func (q *question) location(id aggregate.LocationID) string {
	if id == aggregate.NoLocation {
		if !q.query.Signal.Aggregation().Locates() {
			return "all hops"
		}
		return "untouched"
	}
	return cmp.Or(q.places[id].Name, fmt.Sprintf("location %016x", uint64(id)))
}
