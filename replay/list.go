package replay

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// ListConfig configures a Lister.
type ListConfig struct {
	Decode decode.Config
	// Tap works as in Config, but only its Mirrors are used: no place is left out. Nil means no
	// mirrors.
	Tap   func(name string) window.Tap
	Out   io.Writer // one JSON object per line, or with Array one JSON array
	Array bool
	Text  bool // lines for people instead of objects
	// Annotate, unless nil, receives a pcapng copy of every packet, with comments on those that
	// carry CSIG.
	Annotate io.Writer
	// Follow waits for more data at the end of a growing file, or for more files in a folder, until
	// ctx ends.
	Follow bool
	// Logger receives errors while following; nil discards them.
	Logger *slog.Logger
}

// Lister prints the observations of captures. It must be used by one goroutine at a time.
//
// A single capture is listed in packet order. Several captures are merged by time, and the order
// within each is kept. The merged order is for reading only: taps have different clocks, so it
// proves nothing about packets of different captures.
type Lister struct {
	cfg     ListConfig
	out     *bufio.Writer
	decoder *decode.Decoder
	copy    *capture.Writer
	counts  ListCounts
	result  decode.Result
	line    []byte
	refused window.UnreadableLinks // of files that have no readable packets
	copied  []capture.Interface    // all interfaces so far, by their number in the copy
}

// ListCounts counts the input of a Lister.
type ListCounts struct {
	Packets, Observations uint64
	Decoded               decode.Counters // over all decoded packets
	SkippedLink           window.UnreadableLinks
	Damaged               Damage
	// Deferred is the number of captures listed later than in time order, because too many overlap
	// to be open at once.
	Deferred int
	// Missed is the number of followed captures that were not read completely.
	Missed int
}

// WriteText writes the counts for people.
func (c *ListCounts) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%d packets, %d observations\n", c.Packets, c.Observations)
	line := func(name, text string) { fmt.Fprintf(w, "  %-24s %s\n", name, text) }
	count := func(name string, n uint64, about string) {
		if n > 0 {
			line(name, strconv.FormatUint(n, 10)+about)
		}
	}
	for i, n := range c.Decoded.Reasons {
		count(decode.Reason(i).String(), n, "")
	}
	count("orphans", c.Decoded.Orphans, " of the observations")
	count("excess reflections", c.Decoded.ExcessReflections, fmt.Sprintf(", beyond %d observations of one packet", decode.MaxObservations))
	if c.Deferred > 0 {
		line("out of order", fmt.Sprintf("%d captures are listed late: too many overlap to be open at the same time", c.Deferred))
	}
	if c.Damaged.Gaps > 0 {
		line("damaged places", fmt.Sprintf("%d, %d bytes are left out", c.Damaged.Gaps, c.Damaged.Bytes))
	}
	c.SkippedLink.List(func(u window.UnreadableLink, n uint64) {
		line("not read", fmt.Sprintf("%d of %s", n, u))
	})
}

// NewLister checks the configuration.
func NewLister(cfg ListConfig) (*Lister, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	l := &Lister{cfg: cfg, decoder: d, out: bufio.NewWriterSize(cfg.Out, 256<<10)}
	if cfg.Annotate != nil {
		l.copy = capture.NewWriter(cfg.Annotate)
	}
	return l, nil
}

// Run lists all captures; a folder stands for the captures in it. With several captures or a
// folder, each object begins with its file, in which its packet is numbered. A failed capture does
// not stop the others; all errors are returned at the end.
func (l *Lister) Run(ctx context.Context, paths []string) error {
	if l.cfg.Array {
		l.write("[")
	}
	failures := []error{l.list(ctx, paths)}
	if l.cfg.Array {
		l.write("\n]\n")
	}
	failures = append(failures, l.flush())
	if l.copy != nil {
		failures = append(failures, l.copy.Flush())
	}
	failures = append(failures, l.refused.Refused())
	return errors.Join(failures...)
}

func (l *Lister) list(ctx context.Context, paths []string) error {
	if l.cfg.Follow {
		if len(paths) != 1 {
			return fmt.Errorf("follow %d captures: expected one file or folder", len(paths))
		}
		return l.follow(ctx, paths[0])
	}
	var files []string
	var failures []error
	named := len(paths) > 1 // also if all but one fail
	for _, path := range paths {
		found, damaged, err := capture.Files(path)
		failures = append(append(failures, err), damaged...)
		files = append(files, found...)
		named = named || isFolder(path)
	}
	switch {
	case len(files) == 1:
		failures = append(failures, l.file(ctx, newListing(files[0], named)))
	case len(files) > 1:
		failures = append(failures, l.merge(ctx, files))
	}
	return errors.Join(failures...)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Counts returns the counts so far.
func (l *Lister) Counts() *ListCounts {
	l.counts.Decoded = l.decoder.Counters()
	return &l.counts
}

func (l *Lister) file(ctx context.Context, from *listing) error {
	open := capture.Open
	if readOnce(from.path) { // a wait for its writer ends with ctx
		open = func(path string, o capture.Options) (*capture.Reader, error) { return capture.Follow(ctx, path, o) }
	}
	r, err := open(from.path, listOptions())
	if err != nil {
		return err
	}
	defer r.Close()
	cut, err := l.read(ctx, r, from, r.Size() < 0)
	l.ended(from)
	return errors.Join(l.counts.Damaged.add(r), cut, cmp.Or(err, ctx.Err()))
}

// listOptions returns options to read damaged files like a replay.
func listOptions() capture.Options { return capture.Options{Resume: DefaultChunkBytes} }

// read lists a capture to its end. If the capture ends early, cut is the reason; err stops the
// Lister. live means that someone watches the output.
func (l *Lister) read(ctx context.Context, r *capture.Reader, from *listing, live bool) (cut, err error) {
	var batch capture.Batch
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return err, nil
		}
		for i := range batch.N {
			if err := l.frame(&batch.Frames[i], r.Interfaces(), from); err != nil {
				return nil, err
			}
		}
		if live {
			if err := l.flush(); err != nil {
				return nil, err
			}
		}
	}
	return nil, ctx.Err()
}

func (l *Lister) flush() error {
	if err := l.out.Flush(); err != nil {
		return fmt.Errorf("write observations: %w", err)
	}
	return nil
}

// frame lists one packet of a capture.
func (l *Lister) frame(f *capture.Frame, interfaces []capture.Interface, from *listing) error {
	l.counts.Packets++
	from.packets++
	link, known := window.LinkOf(interfaces, f.Interface)
	if known {
		in := window.FrameOf(f)
		l.decoder.DecodeFrame(decode.Framing{Link: link, Mirrors: l.mirrors(f.Interface, interfaces, from)}, &in, &l.result)
		if err := l.print(f, from); err != nil {
			return err
		}
	} else {
		l.result.N = 0
		from.unread.Add(window.UnreadableLink{File: from.path, Link: interfaces[f.Interface].Link}, 1)
	}
	if l.copy == nil {
		return nil
	}
	return l.annotate(f, interfaces, from)
}

// mirrors returns the mirror sessions at a capture interface's tap.
func (l *Lister) mirrors(index uint32, interfaces []capture.Interface, from *listing) decode.Mirrors {
	if l.cfg.Tap == nil {
		return decode.Mirrors{}
	}
	named := source{path: from.path}
	for n := len(from.mirrors); n < len(interfaces); n++ {
		from.mirrors = append(from.mirrors, l.cfg.Tap(named.tapName(interfaces, uint32(n))).Mirrors)
	}
	return from.mirrors[index]
}

func (l *Lister) print(f *capture.Frame, from *listing) error {
	for i := range l.result.N {
		o := &l.result.Obs[i]
		window.SetCaptureFields(o, f)
		l.line = l.line[:0]
		if l.cfg.Array {
			if l.counts.Observations > 0 {
				l.line = append(l.line, ',')
			}
			l.line = append(l.line, '\n')
		}
		if l.cfg.Text {
			if from.named {
				l.line = append(append(l.line, from.path...), ' ')
			}
			l.line = o.AppendText(l.line, l.cfg.Decode.Domain, l.result.EncapOf(i))
		} else {
			l.line = append(l.line, from.prefix...)
			at := len(l.line)
			l.line = o.AppendJSON(l.line, l.cfg.Decode.Domain, l.result.EncapOf(i))
			if len(from.prefix) > 0 {
				l.line[at] = ',' // the prefix has opened the object
			}
		}
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

// write prints text around the observations; bufio keeps an error for Flush.
func (l *Lister) write(text string) { _, _ = l.out.WriteString(text) }

// follow lists a growing capture and the files that its program writes next. It logs and counts
// unreadable files at once, since the end may be far away.
func (l *Lister) follow(ctx context.Context, path string) (err error) {
	rotation, err := capture.FollowRotation(ctx, path, capture.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rotation.Close()) }()
	named := isFolder(path)
	for {
		r, err := rotation.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			l.missed(err)
			continue
		}
		l.cfg.Logger.Debug("following", slog.String("file", r.Name()))
		from := newListing(r.Name(), named)
		cut, err := l.read(ctx, r, from, true)
		l.ended(from)
		if err != nil {
			return err
		}
		if cut != nil {
			l.missed(cut)
		}
	}
	if l.counts.Missed > 0 {
		return fmt.Errorf("follow %q: %s not read in full", path, counted(uint64(l.counts.Missed), "capture"))
	}
	return ctx.Err()
}

func (l *Lister) missed(err error) {
	l.counts.Missed++
	l.cfg.Logger.Warn("capture is not read in full", slog.Any("error", err))
}

// listing is the state of one capture.
type listing struct {
	path   string
	named  bool
	prefix []byte   // of each object: the file, or nothing
	ports  []uint32 // its interfaces' numbers in the annotated copy

	packets uint64
	unread  window.UnreadableLinks // subset of packets

	mirrors []decode.Mirrors // of its taps, by interface
}

// ended counts the unread packets of a capture.
func (l *Lister) ended(from *listing) {
	l.counts.SkippedLink.Merge(from.unread)
	if from.unread.Total() == from.packets {
		l.refused.Merge(from.unread)
	}
}

func newListing(path string, named bool) *listing {
	from := &listing{path: path, named: named}
	if named {
		quoted, _ := json.Marshal(path) // a string can always be encoded
		from.prefix = append(append(from.prefix, `{"file":`...), quoted...)
	}
	return from
}

// merge lists several captures in time order.
func (l *Lister) merge(ctx context.Context, files []string) error {
	m := capture.MergeFiles(files, listOptions())
	defer m.Close()
	listings := make([]*listing, len(files))
	var failures []error
	for ctx.Err() == nil {
		f, i, err := m.Next()
		for i, ok := m.Ended(); ok; i, ok = m.Ended() {
			if r := m.Reader(i); r != nil {
				failures = append(failures, l.counts.Damaged.add(r))
			}
			if listings[i] != nil {
				l.ended(listings[i])
			}
			listings[i] = nil
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if listings[i] == nil {
			listings[i] = newListing(files[i], true)
		}
		if err := l.frame(f, m.Reader(i).Interfaces(), listings[i]); err != nil {
			return err
		}
	}
	l.counts.Deferred = m.Deferred()
	return errors.Join(append(failures, ctx.Err())...)
}
