package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/replay"
)

// reportFlags are those of the command report.
type reportFlags struct {
	network        networkFlags
	taps           tapFlags
	out, format    string
	failOn         string
	senders        []string
	steps, workers int
	memory         string
	bytes          uint64 // memory
	engine         string // auto, always or never
	engineDir      string
}

const (
	minReportMemory = 1 << 20 // bytes
	maxReportSteps  = 100_000 // as a store answers for
)

// severities that --fail-on knows, the least first.
var severities = []string{"info", "warning", "error"}

func newReportCommand() *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write what captures tell as one document",
		Long: `report reads captures and writes one document: both matrices of every signal, bottlenecks
over time, the worst cells with their paths and candidates, the flows that suffer, how values
are distributed, what repeats, what each tap and cell is missing, what is wrong (with the
packets to open in Wireshark), and what could not be known. The HTML is one file without
scripts that can be sent along with a ticket.

No store is needed. Steps are of 1ms, and of captures with more than --steps of them wider:
then what repeats faster is looked for in stretches of 1ms steps. What the captures add up to
takes at most --memory, beside what decoding takes. Where that is too little, they go once
more through the embedded engine, in a temporary folder or in --engine-dir, and the numbers
are the same; without the engine steps get wider still, or cells are left out, and the report
says so.

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
	flags.StringVar(&f.taps.place, "place", "receiver", "where taps stand that neither the fabric file nor the configuration places: receiver, sender, mid or outside")
	f.taps.addMirrors(flags)
	flags.StringSliceVar(&f.senders, "senders", nil, "`PREFIXES` of the hosts that may send tags (default those of section findings of the configuration, else all)")
	flags.StringVarP(&f.format, "output", "o", "html", "output `FORMAT`: html, json or markdown")
	flags.StringVar(&f.out, "out", "", "`FILE` to write, - for standard output (default report.html, report.json or report.md)")
	flags.StringVar(&f.failOn, "fail-on", "", "exit with 3 if there are findings of this `SEVERITY` or worse: error, warning or info")
	flags.IntVar(&f.steps, "steps", 16384, "steps of time that are held apart, at most, and as many of 1ms in stretches of longer captures: what repeats is found in them, from two and a half steps on")
	flags.StringVar(&f.memory, "memory", "512MiB", "`SIZE` of what the captures add up to in memory")
	flags.StringVar(&f.engine, "use-engine", engineAuto, "go through the embedded engine: auto, where memory does not suffice, always or never")
	flags.StringVar(&f.engineDir, "engine-dir", "", "empty `FOLDER` that the engine stores in, and that is kept (default a temporary one)")
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
	if f.out != "-" {
		if err := expectFolder("--out", f.out); err != nil {
			return err
		}
		if err := keepCaptures("--out", f.out, inFolders(args)); err != nil {
			return err
		}
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
	if len(prefixes) == 0 {
		prefixes = n.config.Findings.senders()
	}
	r, failed := (&reportRun{flags: f, cmd: cmd, files: files, network: n, senders: prefixes}).make()
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
	if _, err := finding.ParsePlace(f.taps.place); err != nil {
		return nil, fmt.Errorf("--place: %w", err)
	}
	if f.steps < 2 || f.steps > maxReportSteps {
		return nil, fmt.Errorf("--steps %d: expected 2 to %d", f.steps, maxReportSteps)
	}
	if f.bytes, err = parseBytes(f.memory); err != nil || f.bytes < minReportMemory {
		return nil, fmt.Errorf("--memory %q: expected a size of at least 1MiB, such as 512MiB", f.memory)
	}
	if !slices.Contains([]string{engineAuto, engineAlways, engineNever}, f.engine) {
		return nil, fmt.Errorf("--use-engine %q: expected auto, always or never", f.engine)
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
