package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
	"github.com/csigscope/csigscope/replay"
)

// reportResolutions are the windows that a report is made of, the finest first.
var reportResolutions = source.Resolutions{Fine: time.Millisecond, Window: time.Second, Total: time.Minute}

// reportRun is the making of one report.
type reportRun struct {
	flags   *reportFlags
	cmd     *cobra.Command
	files   []string
	network *network
	senders []netip.Prefix
}

// reportNumbers are what the captures add up to, and what could not be known of that.
type reportNumbers struct {
	data    report.Data
	result  *replay.Result
	taps    []report.Tap
	unknown []string
}

// make reads the captures twice: for what they add up to, and for what is wrong in them;
// once more where that does not fit into memory, through the embedded engine. What could be
// read of captures that end early is in the report beside the error.
func (r *reportRun) make() (doc *report.Report, err error) {
	numbers, leave, err := r.numbers()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	noteNoCSIG(r.cmd.ErrOrStderr(), numbers.result.Packets, numbers.result.Counts.In, r.network.domain)
	e, failed := r.examine()
	if e == nil {
		return nil, failed
	}
	if doc, err = r.write(numbers, e); err != nil {
		return nil, err
	}
	return doc, errors.Join(numbers.result.Cuts...)
}

// numbers are those from memory, or from the embedded engine where memory does not suffice.
// leave is to be called when they have been read.
func (r *reportRun) numbers() (numbers *reportNumbers, leave func() error, err error) {
	memory, numbers, err := r.inMemory()
	if err != nil {
		return nil, nil, err
	}
	limited, hint := memory.Limited(), "(--use-engine)"
	full := len(limited) > 0
	if r.flags.engine == engineAlways || r.flags.engine == engineAuto && full {
		_, err := chdb.FindLibrary("")
		switch {
		case err == nil:
			if full {
				fmt.Fprintf(r.cmd.ErrOrStderr(), "what the captures add up to takes more than --memory %s: reading them once more, through the embedded engine\n", r.flags.memory)
			}
			// The engine takes memory of its own: nothing holds the other from here on.
			return r.throughEngine(memory.Wanted(), memory.Sampler())
		case r.flags.engine == engineAlways || !errors.Is(err, chdb.ErrNoEngine):
			return nil, nil, err
		}
		hint = "(make engine), which is not installed"
	}
	if full {
		limited = append(limited, "what there was no memory for takes more of it (--memory), or the embedded engine "+hint)
	}
	numbers.unknown = append(numbers.unknown, limited...)
	return numbers, func() error { return nil }, nil
}

// write fills the document.
func (r *reportRun) write(numbers *reportNumbers, e *replay.Examined) (*report.Report, error) {
	ctx, n := r.cmd.Context(), r.network
	names := newNames(n.fabric)
	doc := &report.Report{
		Title: "CSIG report", GeneratedAt: time.Now().UTC(), From: time.Unix(0, e.From).UTC(), To: time.Unix(0, e.To).UTC(),
		Findings: report.Findings(e.Findings), Counts: countsOf(numbers.result, e),
	}
	var err error
	if doc.Signals, err = report.Signals(ctx, numbers.data, names, n.domain); err != nil {
		return nil, err
	}
	ways := make([]report.CellPackets, len(e.Ways))
	for i, w := range e.Ways {
		ways[i] = report.CellPackets{Src: w.Src, Dst: w.Dst, Tagged: w.Tagged, Untagged: w.Untagged, Incapable: w.Incapable}
	}
	if err := doc.Coverage.Cover(ctx, numbers.data, names, ways); err != nil {
		return nil, err
	}
	doc.Coverage.SetTaps(numbers.taps, n.taps())
	doc.Unknown = append(unknownOf(numbers.result, e, n), numbers.unknown...)
	missed, err := report.Missed(ctx, numbers.data, reportResolutions.Fine)
	if missed != "" {
		doc.Unknown = append(doc.Unknown, missed)
	}
	return doc, err
}

// config is the replay that a report is made of.
func (r *reportRun) config() (replay.Config, error) {
	taps := r.flags.taps
	if taps.place == "outside" {
		taps.place = "mid" // what is seen there enters no heatmap
	}
	c, err := (&replayFlags{taps: taps, fineAll: true, chunkSize: replay.DefaultChunkBytes, workers: r.flags.workers}).config(r.files, r.network)
	c.Resolutions = reportResolutions.List()
	c.Finding = nil // examine looks at every observation
	return c, err
}

// inMemory adds the captures up in memory.
func (r *reportRun) inMemory() (memory *source.Memory, numbers *reportNumbers, err error) {
	c, err := r.config()
	if err != nil {
		return nil, nil, err
	}
	memory = source.NewMemory(reportResolutions, source.Limits{Bytes: r.flags.bytes, Steps: r.flags.steps})
	taps := &tapSums{}
	c.Sink, c.Logger, c.Taps = memory, newLogger(r.cmd, r.cmd.ErrOrStderr()), taps.add
	run, err := replay.New(c)
	if err != nil {
		return nil, nil, err
	}
	if err := runWithProgress(r.cmd, run); err != nil {
		return nil, nil, err
	}
	return memory, &reportNumbers{data: memory, result: run.Result(), taps: taps.list}, nil
}

// examine looks for what is wrong.
func (r *reportRun) examine() (*replay.Examined, error) {
	var total int64
	for _, file := range r.files {
		if info, err := os.Stat(file); err == nil {
			total += info.Size()
		}
	}
	var done atomic.Int64
	stop := showProgress(r.cmd.ErrOrStderr(), max(total, 1), true, func() (int64, string) { return done.Load(), "examining" })
	defer stop()
	n := r.network
	e, err := replay.Examine(r.cmd.Context(), replay.ExamineConfig{
		Files: r.files, Decode: n.decode, Progress: done.Store, Group: n.fabric.Group,
		Finding: finding.Config{
			Domain: n.domain, Locator: n.fabric, Senders: r.senders, Uninitialized: n.config.Windows.LocateUntouched,
		},
		Tap: func(name string) window.Tap { return n.tap(name, r.flags.taps) },
	})
	if e == nil {
		return nil, err
	}
	return e, nil // how captures end was told of when they were added up
}

// runWithProgress replays, and shows how far it is.
func runWithProgress(cmd *cobra.Command, run *replay.Replay) error {
	_, total, _ := run.Progress()
	stop := showProgress(cmd.ErrOrStderr(), max(total, 1), true, func() (int64, string) {
		done, _, _ := run.Progress()
		return done, "adding up"
	})
	defer stop()
	return run.Run(cmd.Context())
}
