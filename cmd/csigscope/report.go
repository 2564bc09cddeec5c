package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// reportFlags are those of the command report.
type reportFlags struct {
	network        networkFlags
	place          string
	out, format    string
	failOn         string
	senders        []string
	steps, workers int
}

// reportFine is the shortest step in which a report looks for what repeats.
const reportFine = time.Millisecond

// severities that --fail-on knows, the least first.
var severities = []string{"info", "warning", "error"}

func newReportCommand() *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write what captures tell as one document",
		Long: `report reads captures and writes one document: both matrices of every signal, bottlenecks
over time, the worst cells and their candidates, what is wrong (with the packets to open in
Wireshark), and what could not be known. The HTML is one file without scripts that can be sent along with a ticket.

No store is needed. Memory is bounded by "windows: max_keys" of the configuration and by
--steps: steps are of 1ms, and of longer captures wider.

With --fail-on, findings of that severity or worse make the exit code 3.`,
		Example: `  csigscope report capture.pcapng --fabric fabric.yaml                # report.html
  csigscope report captures/ --fabric fabric.yaml --out ticket-4711.html
  csigscope report capture.pcap -o markdown --out -
  csigscope report capture.pcap -o json --out - --fail-on warning`,
		Args: filesArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.StringVar(&f.place, "place", "receiver", "where taps stand that neither the fabric file nor the configuration places: receiver, sender, mid or outside")
	flags.StringSliceVar(&f.senders, "senders", nil, "`PREFIXES` of the hosts that may send tags (default all)")
	flags.StringVarP(&f.format, "output", "o", "html", "output `FORMAT`: html, json or markdown")
	flags.StringVar(&f.out, "out", "", "`FILE` to write, - for standard output (default report.html, report.json or report.md)")
	flags.StringVar(&f.failOn, "fail-on", "", "exit with 3 if there are findings of this `SEVERITY` or worse: error, warning or info")
	flags.IntVar(&f.steps, "steps", 8192, "steps of time that are held apart, at most: what repeats is found in them")
	flags.IntVar(&f.workers, "workers", 2, "cores that read captures")
	return cmd
}

// reportExtensions are the formats and the names of their files.
var reportExtensions = map[string]string{"html": "html", "json": "json", "markdown": "md"}

func (f *reportFlags) run(cmd *cobra.Command, args []string) (err error) {
	prefixes, err := f.check()
	if err != nil {
		return usageError{err}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	files, remove, err := replay.Spool(cmd.Context(), args)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return err
	}
	r, failed := f.make(cmd, files, n, prefixes)
	if r == nil {
		return failed
	}
	for _, path := range args {
		r.Files = append(r.Files, filepath.Base(path))
	}
	if err := f.write(cmd, r); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return f.verdict(r)
}

func (f *reportFlags) check() (senders []netip.Prefix, err error) {
	extension, known := reportExtensions[f.format]
	if !known {
		return nil, fmt.Errorf("output format %q: expected html, json or markdown", f.format)
	}
	if f.out == "" {
		f.out = "report." + extension
	}
	if f.failOn != "" && !slices.Contains(severities, f.failOn) {
		return nil, fmt.Errorf("--fail-on %q: expected error, warning or info", f.failOn)
	}
	if _, err := finding.ParsePlace(f.place); err != nil {
		return nil, fmt.Errorf("--place: %w", err)
	}
	if f.steps < 2 || f.steps > 1<<20 {
		return nil, fmt.Errorf("--steps %d: expected 2 to 1048576", f.steps)
	}
	for _, text := range f.senders {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--senders: %q: expected a prefix such as 10.0.0.0/8", text)
		}
		senders = append(senders, p)
	}
	return senders, nil
}

// make reads the captures twice: for what they add up to, and for what is wrong in them.
// What could be read of captures that end early is in the report beside the error.
func (f *reportFlags) make(cmd *cobra.Command, files []string, n *network, senders []netip.Prefix) (*report.Report, error) {
	place := f.place
	if place == "outside" {
		place = "mid" // what is seen there enters no heatmap
	}
	c, err := (&replayFlags{place: place, fine: reportFine, fineAll: true, chunkSize: replay.DefaultChunkBytes, workers: f.workers}).config(files, n)
	if err != nil {
		return nil, err
	}
	total := aggregate.NewSummary(c.Resolutions[len(c.Resolutions)-1], c.MaxKeys)
	timeline := aggregate.NewTimeline(c.Resolutions[0], f.steps, c.MaxKeys)
	c.Sink, c.Logger = &sinks{total, timeline}, newLogger(cmd, cmd.ErrOrStderr())
	run, err := replay.New(c)
	if err != nil {
		return nil, err
	}
	if err := runWithProgress(cmd, run); err != nil {
		return nil, err
	}
	e, failed := f.examine(cmd, files, n, senders)
	if e == nil {
		return nil, failed
	}
	result := run.Result()
	r := &report.Report{
		Title: "CSIG report", GeneratedAt: time.Now().UTC(), From: time.Unix(0, e.From).UTC(), To: time.Unix(0, e.To).UTC(),
		Signals:  report.Signals(total, timeline, newNames(n.fabric)),
		Findings: report.Findings(e.Findings), Counts: countsOf(result, e), Unknown: unknownOf(result, e, n),
	}
	return r, errors.Join(result.Cuts...)
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

func (f *reportFlags) examine(cmd *cobra.Command, files []string, n *network, senders []netip.Prefix) (*replay.Examined, error) {
	var total int64
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			total += info.Size()
		}
	}
	var done atomic.Int64
	stop := showProgress(cmd.ErrOrStderr(), max(total, 1), true, func() (int64, string) { return done.Load(), "examining" })
	defer stop()
	e, err := replay.Examine(cmd.Context(), replay.ExamineConfig{
		Files: files, Decode: n.decode, Progress: done.Store,
		Finding: finding.Config{
			Domain: n.domain, Locator: n.fabric, Senders: senders, Uninitialized: n.config.Windows.LocateUntouched,
		},
		Place: func(name string) (finding.Place, error) { return finding.ParsePlace(n.tap(name, f.place).Place) },
	})
	if e == nil {
		return nil, err
	}
	return e, nil // how captures end was told of when they were added up
}

func (f *reportFlags) write(cmd *cobra.Command, r *report.Report) error {
	write := map[string]func(io.Writer) error{
		"html": r.WriteHTML, "markdown": r.WriteMarkdown,
		"json": func(w io.Writer) error { return writeIndented(w, r) },
	}[f.format]
	if f.out == "-" {
		return write(cmd.OutOrStdout())
	}
	if err := createFile(f.out, write); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d findings, %d signals\n", f.out, len(r.Findings), len(r.Signals))
	return nil
}

// verdict is an error if findings are as bad as --fail-on says.
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
		return findingsError{fmt.Errorf("%d findings of severity %s or worse", bad, f.failOn)}
	}
	return nil
}

// countsOf is what was read and what became of it.
func countsOf(result *replay.Result, e *replay.Examined) []report.Count {
	c := &result.Counts
	list := []report.Count{{Name: "packets", N: result.Packets}}
	for i, n := range result.Frames {
		if n > 0 {
			list = append(list, report.Count{Name: "packets, " + decode.Reason(i).String(), N: n})
		}
	}
	list = append(list, report.Count{Name: "observations", N: c.In, About: "tags and reflections: stored + late + rejected + overflow"},
		report.Count{Name: "stored", N: c.Stored}, report.Count{Name: "late", N: c.Late}, report.Count{Name: "overflow", N: c.Overflow})
	for i, n := range c.Rejected {
		if n > 0 {
			list = append(list, report.Count{Name: "rejected, " + aggregate.Rejection(i).String(), N: n})
		}
	}
	return append(list, report.Count{Name: "untouched", N: c.Untouched, About: "no hop replaced the tag"},
		report.Count{Name: "trimmed", N: c.Trimmed, About: "counted apart, out of the mode"},
		report.Count{Name: "empty or invalid reflections", N: e.Decoded.EmptyReflections + e.Decoded.InvalidReflections, About: "of paths that are not CSIG-capable"})
}

// unknownOf is what could not be known, and why.
func unknownOf(result *replay.Result, e *replay.Examined, n *network) []string {
	list := []string{}
	say := func(count uint64, format string, a ...any) {
		if count > 0 {
			list = append(list, fmt.Sprintf("%d %s", count, fmt.Sprintf(format, a...)))
		}
	}
	say(result.Frames[decode.Hidden], "packets are encrypted by MACsec: tags inside them are hidden")
	say(e.Decoded.Encrypted, "packets are in ESP or PSP: reflections inside are for the hosts alone to see")
	say(e.Untracked, "packets are of more flows than are told apart: whether these lose tags is not known")
	say(result.Counts.Unknown, "observations are of a signal type that no table gives a meaning")
	say(result.Damaged.Bytes, "bytes of damaged captures are left out")
	for link, packets := range result.SkippedLink {
		say(packets, "packets are of link type %s, which is not read", link)
	}
	for _, cut := range result.Cuts {
		list = append(list, cut.Error())
	}
	for i := range result.Counts.Rejected {
		if aggregate.Rejection(i) == aggregate.RejectPlace {
			say(result.Counts.Rejected[i], "observations were made before the end of their path, and enter no heatmap")
		}
	}
	if len(n.fabric.Locations()) == 0 {
		list = append(list, "without a fabric file (--fabric), locations are raw locator metadata and groups are prefixes")
	}
	if e.Findings == nil {
		list = append(list, "what a switch does to packets is for two captures to tell, before and after it: csigscope conform")
	}
	return list
}
