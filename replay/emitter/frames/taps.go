package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Taps holds the taps of a run and their outputs.
type Taps struct {
	List    []tap
	At      [][]int32 // by port: taps on the link behind it
	outputs []*captureFile
	sender  *sender // sends frames to an interface instead of files
	from    int64   // start of the run, Unix ns
}

// tap is one tap.
type tap struct {
	scenario.PlacedTap
	out        *captureFile
	iface      uint32 // interface number in the file
	CaptureLen int
	random     exact.Random
	exact      bool // without loss, duplicates, reordering or clock error

	mirror *mirror
	held   []byte // delayed record, empty if none is held
	after  uint64 // number of records to write before it

	Stats TapStats
}

// TapStats counts the frames of a tap. Frames = Captured - Duplicated + Lost.
type TapStats struct {
	Frames     uint64 // frames on the tap's links that carry CSIG, or all with CaptureUntagged
	Captured   uint64 // records written
	Lost       uint64
	Duplicated uint64
	Reordered  uint64
}

// NewTaps places the taps of a scenario. They have no outputs yet.
func NewTaps(s *scenario.Scenario, points []scenario.Point) (*Taps, error) {
	placed, err := scenario.PlaceTaps(s, points)
	if err != nil {
		return nil, err
	}
	t := &Taps{List: make([]tap, len(placed)), At: make([][]int32, len(points)), from: s.Start.UnixNano()}
	for i := range placed {
		p := &t.List[i]
		p.PlacedTap = placed[i]
		p.CaptureLen = s.SnapLen
		if p.SnapLen != 0 {
			p.CaptureLen = p.SnapLen
		}
		p.random = exact.Derive(s.Seed, 6, uint64(i))
		p.exact = p.Offset == 0 && p.Step == 0 && p.Drift == 0 && p.Jitter == 0 && p.Loss == 0 && p.Duplicate == 0 && p.Reorder == 0
		if p.ERSPAN != 0 {
			p.mirror = newMirror(p.ERSPAN, p.Session, i)
		}
		for _, port := range p.Links {
			t.At[port] = append(t.At[port], int32(i))
		}
	}
	return t, nil
}

// CreateFiles creates the capture files of a run, one per tap or one for all.
func (t *Taps) CreateFiles(s *scenario.Scenario, dir string) error {
	create := func(base string, of []tap) error {
		path := filepath.Join(dir, base+extensionOf(s))
		file, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("create capture: %w", err)
		}
		return t.Output(s, file, path, of)
	}
	if s.SingleFile {
		if !namesFile(s.Name) {
			return fmt.Errorf("create capture: the scenario's name %q is no name of a file: choose another", s.Name)
		}
		return create(s.Name, t.List)
	}
	for i := range t.List {
		if name := t.List[i].Name; !namesFile(name) {
			return fmt.Errorf("create capture of tap %q: its name is no name of a file: rename that rack in the fabric file, or set single_file: true", name)
		}
	}
	for i := range t.List {
		if err := create(t.List[i].Name, t.List[i:i+1]); err != nil {
			return errors.Join(err, t.Close())
		}
	}
	return nil
}

// namesFile reports whether a capture can have a name, with an extension, without leaving its folder. Racks of a fabric
// file have any names.
func namesFile(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// extensionOf returns the extension of capture files.
func extensionOf(s *scenario.Scenario) string {
	extension := ".pcapng"
	if s.Classic {
		extension = ".pcap"
	}
	switch s.Compress {
	case scenario.Gzip:
		extension += ".gz"
	case scenario.Zstd:
		extension += ".zst"
	}
	return extension
}

// Output makes w the capture of some taps and takes over its closing.
func (t *Taps) Output(s *scenario.Scenario, w io.WriteCloser, path string, of []tap) error {
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

// Packet writes a frame as the tap sees it at ns and returns the number of records written.
func (t *Taps) Packet(number int32, f *Framer, s *Segment, ns int64) (records int, err error) {
	p := &t.List[number]
	p.Stats.Frames++
	if p.exact && t.sender == nil {
		p.Stats.Captured++
		return 1, p.out.write(p.record(f, s, ns))
	}
	if p.Loss > 0 && p.random.Below(uint64(scenario.WholeShare)) < uint64(p.Loss) {
		p.Stats.Lost++
		if p.mirror != nil {
			p.mirror.sequence++
		}
		return 0, nil
	}
	records = 1
	if p.Duplicate > 0 && p.random.Below(uint64(scenario.WholeShare)) < uint64(p.Duplicate) {
		p.Stats.Duplicated++
		records = 2
	}
	at := p.clock(ns, t.from)
	for range records {
		p.Stats.Captured++
		if t.sender != nil {
			if err := t.sender.packet(p, f, s, ns); err != nil {
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

// clock returns the tap's reading of a time; both are Unix ns.
func (t *tap) clock(ns, from int64) int64 {
	const second = 1e9
	at := ns + t.Offset.Nanoseconds()
	if t.Drift != 0 {
		since := ns - from
		at += since/second*t.Drift + since%second*t.Drift/second
	}
	if ns-from >= t.StepAt.Nanoseconds() {
		at += t.Step.Nanoseconds()
	}
	if t.Jitter > 0 {
		at += int64(t.random.Below(2*uint64(t.Jitter)+1)) - int64(t.Jitter)
	}
	return max(at, 0)
}

// maxReorder is the largest number of records that may overtake a delayed one.
const maxReorder = 8

// writeInOrder writes a record, or holds it back until later ones are written. At most one is held.
func (t *tap) writeInOrder(f *Framer, s *Segment, ns int64) error {
	r := t.record(f, s, ns)
	if len(t.held) == 0 && t.Reorder > 0 && t.random.Below(uint64(scenario.WholeShare)) < uint64(t.Reorder) {
		t.Stats.Reordered++
		t.held, t.after = append(t.held[:0], r...), 1+t.random.Below(maxReorder)
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

// release writes the held record.
func (t *tap) release() error {
	if len(t.held) == 0 {
		return nil
	}
	err := t.out.write(t.held)
	t.held = t.held[:0]
	return err
}

// record returns the tap's record of a frame, valid until the next call.
func (t *tap) record(f *Framer, s *Segment, ns int64) []byte {
	length := s.Length
	if t.mirror != nil {
		length += len(t.mirror.header)
	}
	size := min(length, t.CaptureLen)
	b := t.out.begin(ns, t.iface, size, length)
	if t.mirror == nil {
		b = f.append(b, s, t.CaptureLen)
		return t.out.end(b, size)
	}
	begin := len(b)
	b = t.mirror.append(b, s, ns)
	if t.CaptureLen > len(t.mirror.header) {
		b = f.append(b, s, t.CaptureLen-len(t.mirror.header))
	}
	return t.out.end(b[:begin+size], size)
}

// Paths returns the paths of the capture files in the order of the taps.
func (t *Taps) Paths() []string {
	paths := make([]string, len(t.outputs))
	for i, c := range t.outputs {
		paths[i] = c.path
	}
	return paths
}

// Close writes held records and closes all captures.
func (t *Taps) Close() error {
	var errs []error
	for i := range t.List {
		if t.List[i].out != nil {
			errs = append(errs, t.List[i].release())
		}
	}
	for _, c := range t.outputs {
		errs = append(errs, c.close())
	}
	t.outputs = nil
	if t.sender != nil {
		errs = append(errs, t.sender.close())
		t.sender = nil
	}
	return errors.Join(errs...)
}

// mirror is a switch's mirror session: ERSPAN of type II or III over GRE in IPv4
// (draft-foschiano-erspan-03). It numbers every frame, including those lost on the way, so that
// gaps in the sequence show losses.
type mirror struct {
	header   []byte // Ethernet, IPv4, GRE, ERSPAN
	kind     int    // 2 or 3
	sequence uint32
}

const (
	greLen       = 8      // with sequence number
	erspan3Len   = 12 + 8 // with the platform subheader
	mirrorPrefix = EthernetLen + ipv4Len + greLen
)

// newMirror returns the session of a tap, from the switch with the tap's number to the collector.
// Both addresses are in 198.18.0.0/15.
func newMirror(kind int, session uint16, number int) *mirror {
	const gre, hasSequence, dontFragment = 47, 0x10, 0x40
	from, to := 198<<24|18<<16|uint32(number+1), uint32(198<<24|19<<16|1)
	be := binary.BigEndian
	h := make([]byte, mirrorPrefix, mirrorPrefix+erspan3Len)
	scenario.PutMAC(h, scenario.HostMAC, to)
	scenario.PutMAC(h[6:], scenario.SwitchMAC, uint32(number+1))
	be.PutUint16(h[12:], 0x0800)
	ip := h[EthernetLen:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, dontFragment, 64, gre
	be.PutUint32(ip[12:], from)
	be.PutUint32(ip[16:], to)
	g := ip[ipv4Len:]
	g[0] = hasSequence
	if kind == 2 {
		be.PutUint16(g[2:], 0x88be)
		h = be.AppendUint16(h, 1<<12)
		h = be.AppendUint16(h, session)
		h = be.AppendUint32(h, uint32(number+1)) // index
		return &mirror{header: h, kind: kind}
	}
	const egress, ieee1588, hasSubheader, seconds = 1 << 3, 2 << 1, 1, 5 << 2
	be.PutUint16(g[2:], 0x22eb)
	h = be.AppendUint16(h, 2<<12)
	h = be.AppendUint16(h, session)
	h = be.AppendUint32(h, 0) // nanoseconds
	h = be.AppendUint16(h, 0)
	h = be.AppendUint16(h, egress|ieee1588|hasSubheader)
	h = append(h, seconds, 0, 0, 0)
	h = be.AppendUint32(h, 0) // seconds
	return &mirror{header: h, kind: kind}
}

// append appends the headers of a mirrored frame. ns is the switch's clock, Unix time.
func (m *mirror) append(b []byte, s *Segment, ns int64) []byte {
	be := binary.BigEndian
	begin := len(b)
	b = append(b, m.header...)
	h := b[begin:]
	ip := h[EthernetLen:]
	be.PutUint16(ip[2:], uint16(min(len(h)-EthernetLen+s.Length, 0xffff)))
	be.PutUint16(ip[4:], uint16(m.sequence))
	be.PutUint16(ip[10:], ^fold(sum(ip[:ipv4Len], 0)))
	be.PutUint32(ip[ipv4Len+4:], m.sequence)
	m.sequence++
	if m.kind == 3 {
		p := h[mirrorPrefix:]
		be.PutUint32(p[4:], uint32(ns%1e9))
		be.PutUint32(p[16:], uint32(ns/1e9))
	}
	return b
}
