package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

func newDecodeCommand() *cobra.Command {
	var network networkFlags
	var taps tapFlags
	var format, annotate string
	var follow bool
	cmd := &cobra.Command{
		Use:   "decode FILE...",
		Short: "Print each tag and reflection of a capture as JSON",
		Long: `decode prints one JSON object per tag or reflection, in the order of the packets
in the file. What was rejected, and why, goes to standard error at the end.
FILE may be pcap or pcapng, plain or compressed with gzip or zstd, a folder of
captures, or - for standard input. A classic pcap that is damaged in its middle is read
on where its records prove themselves; what is left out is counted, and packets are
numbered as if it had not been there. A pcapng file is read up to the damage.

Frames that a switch has mirrored are taken out of ERSPAN, GRE-TAP, VXLAN or TZSP where
--mirrors, the fabric file or the configuration (taps: mirrors) says that the capture holds
such sessions. Elsewhere a tag in a mirror session is an orphan: anybody can send one.

Several files, or those of a folder, are merged by time, and each object then begins
with its "file". "packet" always counts from 1 in its own file, whose order is kept.
The merge is for reading: clocks of different taps differ, so the order of packets
of two taps proves nothing.

With --follow, decode goes on with the file that replaces FILE under its name, and of
a folder with the files that a rotating program begins in it (tcpdump -C, -G and -W,
dumpcap -b), until it is interrupted. One program writes to such a folder. Compressed
files cannot be followed.`,
		Example: `  csigscope decode capture.pcap
  csigscope decode capture.pcapng.gz -o json
  csigscope decode mirrored.pcap --mirrors erspan
  csigscope decode rotated/ --annotate merged.pcapng
  csigscope decode capture.pcap --annotate annotated.pcapng
  csigscope decode growing.pcap --follow
  csigscope decode rotated/ --follow
  tcpdump -w - -i eth0 | csigscope decode -`,
		Args: filesArgs,
	}
	network.add(cmd.Flags())
	taps.addMirrors(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "ndjson", "output `FORMAT`: ndjson or json")
	cmd.Flags().StringVar(&annotate, "annotate", "", "also copy the packets to a pcapng `FILE`, with comments on those that carry CSIG")
	cmd.Flags().BoolVar(&follow, "follow", false, "wait for more at the end of a growing file, and for the next files of a rotating capture program")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if format != "ndjson" && format != "json" {
			return usageError{fmt.Errorf("output format %q: expected ndjson or json", format)}
		}
		if follow && len(files) != 1 {
			return usageError{fmt.Errorf("--follow: expected one file or folder, got %d", len(files))}
		}
		n, err := openNetwork(network.config, network.fabric)
		if err != nil {
			return err
		}
		return list(cmd, replay.ListConfig{
			Decode: n.decode, Tap: func(name string) window.Tap { return n.tap(name, taps) }, Out: cmd.OutOrStdout(), Array: format == "json", Follow: follow,
			Logger: newLogger(cmd, cmd.ErrOrStderr()),
		}, files, annotate)
	}
	return cmd
}

func list(cmd *cobra.Command, c replay.ListConfig, files []string, annotate string) (err error) {
	if annotate != "" {
		if err := keepCaptures("--annotate", annotate, files); err != nil {
			return err
		}
		var f *os.File
		if f, err = os.Create(annotate); err != nil {
			return fmt.Errorf("write annotated copy: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		c.Annotate = f
	}
	l, err := replay.NewLister(c)
	if err != nil {
		return err
	}
	err = l.Run(cmd.Context(), files)
	if err == nil || l.Counts().Packets > 0 {
		summarizeList(cmd.ErrOrStderr(), l.Counts()) // what could not be opened has nothing to sum up
	}
	noteNoCSIG(cmd.ErrOrStderr(), l.Counts().Packets, l.Counts().Observations, c.Decode.Domain)
	if c.Follow && errors.Is(err, context.Canceled) {
		return nil // an interrupt is how following ends
	}
	return err
}

func summarizeList(w io.Writer, c *replay.ListCounts) {
	fmt.Fprintf(w, "%d packets, %d observations\n", c.Packets, c.Observations)
	for i, n := range c.Frames {
		if n > 0 {
			fmt.Fprintf(w, "  %-24s %d\n", decode.Reason(i), n)
		}
	}
	if c.Deferred > 0 {
		fmt.Fprintf(w, "  %-24s %d captures are listed late: too many overlap to be open together\n", "out of order", c.Deferred)
	}
	if c.Damaged.Places > 0 {
		fmt.Fprintf(w, "  %-24s %d, %d bytes are left out\n", "damaged places", c.Damaged.Places, c.Damaged.Bytes)
	}
	for _, link := range slices.Sorted(maps.Keys(c.SkippedLink)) {
		fmt.Fprintf(w, "  %-24s %d\n", "not read, of "+link.String(), c.SkippedLink[link])
	}
}
