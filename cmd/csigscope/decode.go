package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/replay"
)

// decodeFlags are the flags of decode.
type decodeFlags struct {
	network  networkFlags
	taps     tapFlags
	out      output
	annotate outputFile
	follow   bool
}

func newDecodeCommand() *cobra.Command {
	f := &decodeFlags{annotate: outputFile{rotating: true}}
	cmd := &cobra.Command{
		Use:   "decode FILE...",
		Short: "Print each tag and reflection of a capture as JSON",
		Long: `decode prints one JSON object per tag or reflection, in the order of the packets in the file. low and
high bound its value; high is excluded, unless it is a ratio of 1. src and dst are the packet's own. A
tag measures the path from src to dst; a reflection, with "path": "reverse", the one from dst to src.
-o table prints a line for people instead, with the time as RFC 3339 beside time_ns. At the end decode
prints on standard error the numbers of packets, by result, and of observations.

FILE may be pcap or pcapng, plain or compressed with gzip or zstd, a folder of captures, or - for
standard input. After damage, reading resumes where packets are valid again. The bytes between are
counted, their packets get no numbers, and the exit code is 1. Compressed files and pipes are read up
to the damage.

decode unwraps frames that switches mirror in ERSPAN, GRE-TAP, VXLAN or TZSP where --mirrors, the
fabric file or the configuration (taps: mirrors) says that the capture holds such sessions. Elsewhere
a tag in a mirror session is an orphan ("orphan": true): anybody can send one.

Several files, or those of a folder, are merged by time, and each object then begins
with its "file". "packet" always counts from 1 in its own file, whose order is kept.
The merge is for reading: clocks of different taps differ, so the order of packets
of two taps proves nothing.

With --follow, decode reads on until it is interrupted: it waits for more at the end of FILE,
continues with the file that replaces it under its name, and in a folder with the next files
of a rotating program (tcpdump -C, -G and -W, dumpcap -b). Only one program may write to such
a folder. A followed file is read up to the first damage: decode reports the damage and waits for
the next file. Compressed files cannot be followed.`,
		Example: `  csigscope decode capture.pcap
  csigscope decode capture.pcap -o table | head
  csigscope decode capture.pcapng.gz -o json
  csigscope decode mirrored.pcap --mirrors erspan
  csigscope decode rotated/ --annotate merged.pcapng
  csigscope decode capture.pcap --annotate annotated.pcapng
  csigscope decode growing.pcap --follow
  csigscope decode rotated/ --follow
  tcpdump -w - -i eth0 | csigscope decode -`,
		Args: filesArgs,
		RunE: f.run,
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.Lookup("fabric").Usage = "fabric `FILE` (YAML) for its section csig (TPIDs, tables, reflections), without which the defaults apply, and its mirror sessions; locators stay numbers"
	f.taps.addMirrors(flags)
	f.out.add(cmd, "ndjson", "json", "table")
	f.annotate.add(cmd, "annotate", "also copy the packets to a pcapng `FILE`, with comments on those that carry CSIG; a packet without a time gets 1970 there")
	flags.BoolVar(&f.follow, "follow", false, "wait for more at the end of a growing file, and for the next files of a rotating capture program")
	exclusive(flags, "follow", "out")
	return cmd
}

func (f *decodeFlags) run(cmd *cobra.Command, files []string) (err error) {
	switch {
	case f.follow && len(files) != 1:
		return usageError{fmt.Errorf("--follow: expected one file or folder, got %d", len(files))}
	case f.annotate.path == "-":
		return usageError{errors.New("--annotate -: expected the name of a file, since observations go to standard output")}
	case f.follow && f.out.named():
		return usageError{errors.New("--follow: prints while it reads: leave out --out")}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	c := replay.ListConfig{
		Decode: n.Decode, Tap: func(name string) window.Tap { return n.Tap(name, f.taps.defaults()) }, Array: f.out.format == "json", Text: f.out.format == "table", Follow: f.follow,
		Logger: newLogger(cmd, cmd.ErrOrStderr()),
	}
	if f.annotate.named() {
		annotated, failed := os.Create(f.annotate.path)
		if failed != nil {
			return fmt.Errorf("write annotated copy: %w", failed)
		}
		defer func() { err = errors.Join(err, annotated.Close()) }()
		c.Annotate = annotated
	}
	var failed error // a capture may fail after much output, which is kept
	err = f.out.write(cmd, func(w io.Writer) error {
		c.Out = w
		failed = list(cmd, c, files)
		return nil
	})
	return errors.Join(failed, err)
}

// list prints the observations of captures, and counts on standard error.
func list(cmd *cobra.Command, c replay.ListConfig, files []string) error {
	l, err := replay.NewLister(c)
	if err != nil {
		return err
	}
	err = l.Run(cmd.Context(), files)
	counts := l.Counts()
	if err == nil || counts.Packets > 0 { // otherwise no capture could be opened
		counts.WriteText(cmd.ErrOrStderr())
		replay.NoteMissing(cmd.ErrOrStderr(), counts.Packets, &counts.Decoded.Reasons, counts.Decoded.Tags, counts.Decoded.Reflections, c.Decode.Domain)
	}
	if c.Follow && errors.Is(err, context.Canceled) {
		return nil // an interrupt ends following
	}
	return err
}
