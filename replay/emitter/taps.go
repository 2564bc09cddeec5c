package emitter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// taps are the places of a run where frames are captured, and where they go.
type taps struct {
	list    []tap
	at      [][]int32 // by port: the taps that stand behind it
	outputs []*captureFile
	wire    *wire // takes the frames as they are, instead of files
	from    int64 // start of the run, Unix ns
}

// tap is one place.
type tap struct {
	tapPlace
	out     *captureFile
	iface   uint32 // number in the file
	snapLen int
	random  random
	exact   bool // it makes no mistakes

	mirror *mirror
	held   []byte // record that waits to be written, empty when none does
	after  uint64 // so many records

	stats TapStats
}

// TapStats is what a tap did. Frames = Captured - Duplicated + Lost.
type TapStats struct {
	Frames     uint64 // that crossed the tap's links and carry CSIG, or any with CaptureUntagged
	Captured   uint64 // records written
	Lost       uint64
	Duplicated uint64
	Reordered  uint64
}

// newTaps places the taps of a scenario; they have no outputs yet.
func newTaps(s *Scenario, points []point) (*taps, error) {
	places, err := placeTaps(s, points)
	if err != nil {
		return nil, err
	}
	t := &taps{list: make([]tap, len(places)), at: make([][]int32, len(points)), from: s.Start.UnixNano()}
	for i := range places {
		p := &t.list[i]
		p.tapPlace = places[i]
		p.snapLen = s.SnapLen
		if p.SnapLen != 0 {
			p.snapLen = p.SnapLen
		}
		p.random = stream(s.Seed, 6, uint64(i))
		p.exact = p.Offset == 0 && p.Drift == 0 && p.Jitter == 0 && p.Loss == 0 && p.Duplicate == 0 && p.Reorder == 0
		if p.ERSPAN != 0 {
			p.mirror = newMirror(p.ERSPAN, p.Session, i)
		}
		for _, port := range p.ports {
			t.at[port] = append(t.at[port], int32(i))
		}
	}
	return t, nil
}

// createFiles starts the capture files of a run, one for each tap or one for all.
func (t *taps) createFiles(s *Scenario, dir string) error {
	create := func(base string, of []tap) error {
		path := filepath.Join(dir, base+s.extension())
		file, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("create capture: %w", err)
		}
		return t.output(s, file, path, of)
	}
	if s.SingleFile {
		return create(s.Name, t.list)
	}
	for i := range t.list {
		if err := create(t.list[i].Name, t.list[i:i+1]); err != nil {
			return errors.Join(err, t.close())
		}
	}
	return nil
}

// extension is that of capture files.
func (s *Scenario) extension() string {
	extension := ".pcapng"
	if s.Classic {
		extension = ".pcap"
	}
	switch s.Compress {
	case compressGzip:
		extension += ".gz"
	case compressZstd:
		extension += ".zst"
	}
	return extension
}

// output makes w the capture of some taps and takes over its closing.
func (t *taps) output(s *Scenario, w io.WriteCloser, path string, of []tap) error {
	c, err := newCapture(s, w, path, of)
	if err != nil {
		return err
	}
	for i := range of {
		of[i].out, of[i].iface = c, uint32(i)
	}
	t.outputs = append(t.outputs, c)
	return nil
}

// packet writes what a tap sees of a frame at a time, and tells how many records
// that makes.
func (t *taps) packet(number int32, f *framer, s *segment, ns int64) (records int, err error) {
	p := &t.list[number]
	p.stats.Frames++
	if p.exact && t.wire == nil {
		p.stats.Captured++
		return 1, p.out.write(p.record(f, s, ns))
	}
	if p.Loss > 0 && p.random.below(uint64(wholeShare)) < uint64(p.Loss) {
		p.stats.Lost++
		if p.mirror != nil {
			p.mirror.sequence++
		}
		return 0, nil
	}
	records = 1
	if p.Duplicate > 0 && p.random.below(uint64(wholeShare)) < uint64(p.Duplicate) {
		p.stats.Duplicated++
		records = 2
	}
	at := p.clock(ns, t.from)
	for range records {
		p.stats.Captured++
		if t.wire != nil {
			if err := t.wire.packet(p, f, s, ns); err != nil {
				return records, err
			}
			continue
		}
		if err := p.writeInOrder(f, s, at); err != nil {
			return records, err
		}
	}
	return records, nil
}

// clock is the tap's reading of a time, both Unix ns.
func (t *tap) clock(ns, from int64) int64 {
	const second = 1e9
	at := ns + t.Offset.Nanoseconds()
	if t.Drift != 0 {
		since := ns - from
		at += since/second*t.Drift + since%second*t.Drift/second
	}
	if t.Jitter > 0 {
		at += int64(t.random.below(2*uint64(t.Jitter)+1)) - int64(t.Jitter)
	}
	return max(at, 0)
}

// maxReorder is after how many records at most one is written that comes too late.
const maxReorder = 8

// writeInOrder writes a record, or keeps it until others are written. One waits at a
// time.
func (t *tap) writeInOrder(f *framer, s *segment, ns int64) error {
	r := t.record(f, s, ns)
	if len(t.held) == 0 && t.Reorder > 0 && t.random.below(uint64(wholeShare)) < uint64(t.Reorder) {
		t.stats.Reordered++
		t.held, t.after = append(t.held[:0], r...), 1+t.random.below(maxReorder)
		return nil
	}
	if err := t.out.write(r); err != nil {
		return err
	}
	if len(t.held) > 0 {
		if t.after--; t.after == 0 {
			return t.release()
		}
	}
	return nil
}

// release writes the record that waits.
func (t *tap) release() error {
	if len(t.held) == 0 {
		return nil
	}
	err := t.out.write(t.held)
	t.held = t.held[:0]
	return err
}

// record is the tap's record of a frame, valid until the next one.
func (t *tap) record(f *framer, s *segment, ns int64) []byte {
	length := s.length
	if t.mirror != nil {
		length += len(t.mirror.header)
	}
	size := min(length, t.snapLen)
	b := t.out.begin(ns, t.iface, size, length)
	if t.mirror == nil {
		b = f.append(b, s, t.snapLen)
		return t.out.end(b, size)
	}
	begin := len(b)
	b = t.mirror.append(b, s, ns)
	if t.snapLen > len(t.mirror.header) {
		b = f.append(b, s, t.snapLen-len(t.mirror.header))
	}
	return t.out.end(b[:begin+size], size)
}

func (t *taps) paths() []string {
	paths := make([]string, len(t.outputs))
	for i, c := range t.outputs {
		paths[i] = c.path
	}
	return paths
}

// close writes what waits and ends all captures.
func (t *taps) close() error {
	var errs []error
	for i := range t.list {
		if t.list[i].out != nil {
			errs = append(errs, t.list[i].release())
		}
	}
	for _, c := range t.outputs {
		errs = append(errs, c.close())
	}
	t.outputs = nil
	if t.wire != nil {
		errs = append(errs, t.wire.close())
		t.wire = nil
	}
	return errors.Join(errs...)
}
