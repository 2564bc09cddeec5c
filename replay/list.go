package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// ListConfig is what a Lister needs.
type ListConfig struct {
	Decode decode.Config
	Out    io.Writer // one JSON object a line, or with Array one JSON array
	Array  bool
	// Annotate, unless nil, takes a copy of every packet as pcapng, with a comment on
	// those that carry CSIG.
	Annotate io.Writer
	// Follow waits at the end of growing files until ctx ends.
	Follow bool
}

// Lister prints the observations of captures in the order of their packets. It is
// used by one goroutine.
type Lister struct {
	cfg     ListConfig
	out     *bufio.Writer
	decoder *decode.Decoder
	copy    *capture.Writer
	counts  ListCounts
	result  decode.Result
	line    []byte
	// interfaces of files that have been copied: a copy numbers those of all files.
	copied []capture.Interface
}

// ListCounts is what a Lister has seen.
type ListCounts struct {
	Packets, Observations uint64
	Frames                [decode.NumReasons]uint64 // by what decoding them came to
	SkippedLink           map[capture.LinkType]uint64
}

// NewLister checks the configuration.
func NewLister(cfg ListConfig) (*Lister, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	l := &Lister{cfg: cfg, decoder: d, out: bufio.NewWriterSize(cfg.Out, 256<<10)}
	l.counts.SkippedLink = map[capture.LinkType]uint64{}
	if cfg.Annotate != nil {
		l.copy = capture.NewWriter(cfg.Annotate)
	}
	return l, nil
}

// Run lists all captures; a folder stands for the captures in it. A capture that
// fails does not keep the others from being listed: all failures are returned in the
// end.
func (l *Lister) Run(ctx context.Context, paths []string) error {
	var failures []error
	if l.cfg.Array {
		l.write("[")
	}
	for _, path := range paths {
		files, err := capture.Files(path)
		if err != nil {
			failures = append(failures, err)
		}
		for _, file := range files {
			if err := l.file(ctx, file); err != nil {
				failures = append(failures, err)
			}
		}
	}
	if l.cfg.Array {
		l.write("\n]\n")
	}
	failures = append(failures, l.out.Flush())
	if l.copy != nil {
		failures = append(failures, l.copy.Flush())
	}
	return errors.Join(failures...)
}

// Counts is what has been listed so far.
func (l *Lister) Counts() *ListCounts { return &l.counts }

func (l *Lister) file(ctx context.Context, path string) error {
	r, err := l.open(ctx, path)
	if err != nil {
		return err
	}
	defer r.Close()
	base := len(l.copied)
	var batch capture.Batch
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); err != nil {
			if errors.Is(err, io.EOF) {
				l.copied = append(l.copied, r.Interfaces()...)
				return nil
			}
			return err
		}
		if err := l.batch(&batch, r.Interfaces(), base); err != nil {
			return err
		}
		if l.cfg.Follow {
			if err := l.out.Flush(); err != nil {
				return fmt.Errorf("write observations: %w", err)
			}
		}
	}
	return ctx.Err()
}

func (l *Lister) open(ctx context.Context, path string) (*capture.Reader, error) {
	if l.cfg.Follow {
		return capture.Follow(ctx, path, capture.Options{})
	}
	return capture.Open(path, capture.Options{})
}

func (l *Lister) batch(batch *capture.Batch, interfaces []capture.Interface, base int) error {
	if l.copy != nil {
		if err := l.copy.Declare(append(l.copied[:base:base], interfaces...)); err != nil {
			return fmt.Errorf("write annotated copy: %w", err)
		}
	}
	for i := range batch.N {
		f := &batch.Frames[i]
		l.counts.Packets++
		link, known := linkOf(interfaces, f.Interface)
		if known {
			wireLen := decodeFrame(l.decoder, link, f, &l.result)
			l.counts.Frames[l.result.Reason]++
			if err := l.print(f, wireLen); err != nil {
				return err
			}
		} else {
			l.result.N = 0
			l.counts.SkippedLink[interfaces[f.Interface].Link]++
		}
		if l.copy != nil {
			if err := l.annotate(f, base); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lister) print(f *capture.Frame, wireLen uint32) error {
	for i := range l.result.N {
		stamp(&l.result.Obs[i], f, wireLen)
		l.line = l.line[:0]
		if l.cfg.Array {
			if l.counts.Observations > 0 {
				l.line = append(l.line, ',')
			}
			l.line = append(l.line, '\n')
		}
		l.line = l.result.Obs[i].AppendJSON(l.line, l.cfg.Decode.Domain, &l.result.Encap)
		if !l.cfg.Array {
			l.line = append(l.line, '\n')
		}
		if _, err := l.out.Write(l.line); err != nil {
			return fmt.Errorf("write observations: %w", err)
		}
		l.counts.Observations++
	}
	return nil
}

// write prints what stands around the observations; bufio keeps an error for Flush.
func (l *Lister) write(text string) { _, _ = l.out.WriteString(text) }
