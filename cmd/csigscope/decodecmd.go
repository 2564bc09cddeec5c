package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func newDecodeCommand() *cobra.Command {
	var network networkFlags
	var format string
	cmd := &cobra.Command{
		Use:   "decode FILE...",
		Short: "Print each tag and reflection of a capture as JSON",
		Long: `decode prints one JSON object per tag or reflection, in the order of the packets
in the file. What was rejected, and why, goes to standard error at the end.
FILE may be pcap or pcapng, or - for standard input.`,
		Example: `  csigscope decode capture.pcap
  csigscope decode capture.pcapng -o json
  tcpdump -w - -i eth0 | csigscope decode -`,
		Args: filesArgs,
	}
	network.add(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "ndjson", "output `FORMAT`: ndjson or json")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if format != "ndjson" && format != "json" {
			return usageError{fmt.Errorf("output format %q: expected ndjson or json", format)}
		}
		n, err := openNetwork(network.config, network.fabric)
		if err != nil {
			return err
		}
		p, err := newDecodePrinter(cmd.OutOrStdout(), n.domain, format == "json")
		if err != nil {
			return err
		}
		return p.run(files, cmd.ErrOrStderr())
	}
	return cmd
}

// A decodePrinter prints the observations of files and counts what has none.
type decodePrinter struct {
	out      *bufio.Writer
	domain   *csig.Domain
	decoder  *decode.Decoder
	array    bool
	printed  uint64
	packets  uint64
	foreign  uint64
	reasons  [decode.NumReasons]uint64
	line     []byte
	result   decode.Result
	failures []error
}

func newDecodePrinter(w io.Writer, domain *csig.Domain, array bool) (*decodePrinter, error) {
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return &decodePrinter{out: bufio.NewWriterSize(w, 256<<10), domain: domain, decoder: d, array: array}, nil
}

// run prints all files. A file that fails does not keep the others from being
// printed; the first failure is returned in the end.
func (p *decodePrinter) run(files []string, summary io.Writer) error {
	if p.array {
		_, _ = p.out.WriteString("[")
	}
	for _, path := range files {
		if err := p.file(path); err != nil {
			p.failures = append(p.failures, fmt.Errorf("decode: %w", err))
		}
	}
	if p.array {
		_, _ = p.out.WriteString("\n]\n")
	}
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	p.summarize(summary)
	return errors.Join(p.failures...)
}

func (p *decodePrinter) file(path string) error {
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	var batch capture.Batch
	for {
		if err := r.ReadBatch(&batch); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for i := range batch.N {
			if err := p.frame(&batch.Frames[i], r.Interfaces()); err != nil {
				return err
			}
		}
	}
}

func (p *decodePrinter) frame(f *capture.Frame, interfaces []capture.Interface) error {
	p.packets++
	if int(f.Interface) < len(interfaces) && interfaces[f.Interface].Link != capture.LinkEthernet {
		p.foreign++
		return nil
	}
	p.decoder.Decode(f.Data, &p.result)
	p.reasons[p.result.Reason]++
	for i := range p.result.N {
		o := &p.result.Obs[i]
		o.TimeNS, o.Packet, o.Bytes = f.TimeNS, f.Packet, f.WireLen
		p.line = p.line[:0]
		if p.array {
			if p.printed > 0 {
				p.line = append(p.line, ',')
			}
			p.line = append(p.line, '\n')
		}
		p.line = o.AppendJSON(p.line, p.domain, &p.result.Encap)
		if !p.array {
			p.line = append(p.line, '\n')
		}
		if _, err := p.out.Write(p.line); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		p.printed++
	}
	return nil
}

func (p *decodePrinter) summarize(w io.Writer) {
	fmt.Fprintf(w, "%d packets, %d observations\n", p.packets, p.printed)
	for i, n := range p.reasons {
		if n > 0 {
			fmt.Fprintf(w, "  %-24s %d\n", decode.Reason(i), n)
		}
	}
	if p.foreign > 0 {
		fmt.Fprintf(w, "  %-24s %d\n", "not Ethernet", p.foreign)
	}
}
