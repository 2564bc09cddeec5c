package replay

import (
	"context"
	"errors"
	"io"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// pass reads captures once, for those that look at packets themselves instead of
// aggregating them. A damaged capture is read as a replay reads it. It is not safe for
// concurrent use.
type pass struct {
	// progress, unless nil, is told how many bytes were read.
	progress func(bytes int64)

	bytes   int64 // of the captures that have ended
	damaged Damage
	ends    []error // of captures that are cut or damaged
}

// packets are some of a capture, valid until the next ones.
type packets struct {
	path       string
	interfaces []capture.Interface
	frames     []capture.Frame
}

// read hands on all packets of a capture, or of those in a folder. It fails with what f
// fails with, where ctx ends, or where a capture cannot be opened; how one ends that could
// be read in part is in ends.
func (p *pass) read(ctx context.Context, path string, f func(*packets) error) error {
	files, err := capture.Files(path)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := p.file(ctx, file, f); err != nil {
			return err
		}
	}
	return nil
}

// ethernet tells whether a frame is. One of an interface that the capture does not describe
// is taken for Ethernet.
func (p *packets) ethernet(f *capture.Frame) bool {
	link, known := window.LinkOf(p.interfaces, f.Interface)
	return known && link == decode.Ethernet
}

func (p *pass) file(ctx context.Context, path string, f func(*packets) error) error {
	r, err := capture.Open(path, listOptions())
	if err != nil {
		return err
	}
	defer r.Close()
	var batch capture.Batch
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); err != nil {
			p.ended(r, err)
			return nil
		}
		if err := f(&packets{path: path, interfaces: r.Interfaces(), frames: batch.Frames[:batch.N]}); err != nil {
			return err
		}
		if p.progress != nil {
			p.progress(p.bytes + max(r.Offset(), 0))
		}
	}
	return ctx.Err()
}

// ended takes over how a capture ended.
func (p *pass) ended(r *capture.Reader, err error) {
	p.bytes += max(r.Offset(), 0)
	if damage := p.damaged.add(r); damage != nil {
		p.ends = append(p.ends, damage)
	}
	if !errors.Is(err, io.EOF) {
		p.ends = append(p.ends, err)
	}
}
