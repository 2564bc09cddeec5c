package main

import (
	"context"
	"errors"
	"fmt"
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
  csigscope query path --src rack1 --dst rack2                   # asks a running collect --api-listen
  csigscope query export --format parquet --out cells.parquet    # so does this
  csigscope query cells --server http://127.0.0.1:9465           # the last window of a collector
  csigscope query cells --server http://127.0.0.1:9465 --watch   # and each one that closes
  csigscope query serve`,
	}
	cmd.AddCommand(
		newQueryExtent(),
		askServer(newQuestionCommand("cells", "Mean and mode of the bottleneck of each cell over the range", (*answers.Question).Cells), serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to"}, windows: 1, watch: true, ask: answers.ServedCells,
		}),
		newQuestionCommand("windows", "Mean and mode of the bottleneck of each cell in each window of the range", (*answers.Question).Windows),
		askServer(newQuestionCommand("locations", "Locations by how often heavily loaded packets name them", (*answers.Question).Locations), serverQuestion{
			parameters: []string{"signal", "level", "from", "to", "top"}, windows: 1, ask: answers.ServedLocations,
		}),
		askServer(newQuestionCommand("timeline", "Locations by how often heavily loaded packets name them, in each window of the range", (*answers.Question).Timeline), serverQuestion{
			parameters: []string{"signal", "level", "src", "dst", "from", "to", "step", "top"}, windows: 60, ask: answers.ServedTimeline,
		}),
		askServer(newQueryFlows(), serverQuestion{
			parameters: []string{"signal", "src", "dst", "from", "to", "top"}, ask: answers.ServedFlows,
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

// queryFlags are the flags of all questions.
type queryFlags struct {
	dsn, output, signal, from, to, level, src, dst string
	step, resolution                               time.Duration
	top                                            int
}

func newQuestionCommand(name, short string, answer func(*answers.Question, context.Context) (*tabular.Listing, error)) *cobra.Command {
	var f queryFlags
	cmd := &cobra.Command{Use: name, Short: short, Args: noArgs}
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
		db, q, err := f.open(cmd)
		if err != nil {
			return err
		}
		defer db.Close()
		t, err := answer(q, cmd.Context())
		if err != nil {
			return err
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: nothing is stored that fits: csigscope query extent says what is")
		}
		return t.Write(cmd.OutOrStdout(), f.output)
	}
	return cmd
}

// open checks the flags, opens the store and prepares the question.
func (f *queryFlags) open(cmd *cobra.Command) (*openedStore, *answers.Question, error) {
	p := answers.Params{Signal: f.signal, Src: f.src, Dst: f.dst, Top: f.top, Query: store.Query{Step: f.step, Resolution: f.resolution}}
	var err error
	if f.top < 1 {
		return nil, nil, usageError{fmt.Errorf("--top %d: expected at least 1", f.top)}
	}
	if f.step <= 0 {
		return nil, nil, usageError{fmt.Errorf("--step %s: expected a time above 0", f.step)}
	}
	if f.resolution < 0 {
		return nil, nil, usageError{fmt.Errorf("--resolution %s: expected 1m, 1s or less than 1s", f.resolution)}
	}
	if _, err = csig.ParseSignal(f.signal); err != nil {
		return nil, nil, usageError{fmt.Errorf("--signal: %w", err)}
	}
	if p.Query.Level, err = fabric.ParseLevel(f.level); err != nil {
		return nil, nil, usageError{fmt.Errorf("--level: %w", err)}
	}
	if err = parseRange(f.from, f.to, &p.Query.From, &p.Query.To); err != nil {
		return nil, nil, err
	}
	db, err := openForReading(cmd, f.dsn)
	if err != nil {
		return nil, nil, err
	}
	q, err := answers.Ask(cmd.Context(), db.store, p)
	if wrong, ok := errors.AsType[*answers.ParameterError](err); ok {
		err = usageError{fmt.Errorf("--%w", wrong)}
	}
	if errors.Is(err, answers.ErrEmpty) {
		err = fmt.Errorf("query %s: %w: run csigscope replay first", db.target, err)
	}
	if err == nil {
		_, err = notePartial(cmd.Context(), cmd.ErrOrStderr(), db)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, q, nil
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
			return usageError{fmt.Errorf("--%s %q: expected a date and time with its zone, such as 2026-01-05T09:30:00Z", o.name, o.text)}
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
		return nil, usageError{fmt.Errorf("%s: --store none keeps nothing to ask for", cmd.Name())}
	case db.engine == nil:
		return db, nil
	}
	if err := db.store.Migrate(cmd.Context()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
