package capture_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/csigscope/csigscope/capture"
)

// count reads frames until the reader ends.
func count(r *capture.Reader) (frames int, err error) {
	var b capture.Batch
	for {
		if err := r.ReadBatch(&b); err != nil {
			return frames, err
		}
		frames += b.N
	}
}

// A truncated file yields its intact packets before the error.
func ExampleReader_ReadBatch() {
	r, err := capture.Open("tap.pcap", capture.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = r.Close() }()
	frames, err := count(r)
	var cut *capture.CutError
	switch {
	case errors.Is(err, io.EOF):
		fmt.Println(frames, "frames")
	case errors.As(err, &cut):
		fmt.Println(frames, "frames, then the file is cut at byte", cut.Offset)
	default:
		fmt.Println(err)
	}
}

// The chunks of a file may be read concurrently, but each one counts only if all chunks before it
// ended with io.EOF.
func ExampleChunks() {
	const path = "tap.pcap"
	chunks, err := capture.Chunks(path, 64<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	total := 0
	for _, c := range chunks {
		r, err := capture.OpenChunk(path, c, capture.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		frames, err := count(r)
		_ = r.Close() // read-only
		var boundary *capture.BoundaryError
		if errors.As(err, &boundary) {
			fmt.Println("drop everything, read the file again with capture.Open")
			return
		}
		total += frames
		if !errors.Is(err, io.EOF) {
			fmt.Println(err) // later chunks cannot be trusted
			break
		}
	}
	fmt.Println(total, "frames")
}

// Copy a capture and add a comment to some of its packets.
func ExampleWriter() {
	r, err := capture.Open("tap.pcap", capture.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = r.Close() }()
	var file bytes.Buffer
	w := capture.NewWriter(&file)
	var b capture.Batch
	for err == nil {
		if err = r.ReadBatch(&b); err != nil {
			break
		}
		err = w.Declare(r.Interfaces())
		for i := range b.Frames[:b.N] {
			comment := ""
			if b.Frames[i].WireLen > 9000 {
				comment = "larger than a jumbo frame"
			}
			err = errors.Join(err, w.Write(&b.Frames[i], comment))
		}
	}
	if err = errors.Join(err, w.Flush()); !errors.Is(err, io.EOF) {
		fmt.Println(err)
	}
}

// Follow a file that is still being written, across rotations, until ctx is done.
func ExampleFollow() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		r, err := capture.Follow(ctx, "tap.pcap", capture.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		frames, err := count(r)
		_ = r.Close() // read-only
		fmt.Println(frames, "frames")
		if !errors.Is(err, io.EOF) {
			fmt.Println(err)
			return
		}
	}
}
