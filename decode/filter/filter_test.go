package filter

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

func domain(t testing.TB, change func(*csig.Spec)) *csig.Domain {
	t.Helper()
	s := csig.DefaultSpec()
	if change != nil {
		change(&s)
	}
	d, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// machine runs the program of a configuration instead of the kernel. The machine has no stripped
// tags, so the tag is written into its program.
type machine struct {
	t   testing.TB
	cfg Config
	of  map[uint16]*bpf.VM // by TPID of the stripped tag
}

func newMachine(t testing.TB, cfg Config) *machine {
	return &machine{t: t, cfg: cfg, of: map[uint16]*bpf.VM{}}
}

func (m *machine) run(frame []byte, tpid uint16) int {
	m.t.Helper()
	vm := m.of[tpid]
	if vm == nil {
		code, err := build(m.cfg, func(a *assembler) { a.emit(bpf.LoadConstant{Dst: bpf.RegA, Val: uint32(tpid)}) })
		if err != nil {
			m.t.Fatal(err)
		}
		if vm, err = bpf.NewVM(code); err != nil {
			m.t.Fatal(err)
		}
		m.of[tpid] = vm
	}
	n, err := vm.Run(frame)
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// strip removes the tag that the kernel strips.
func strip(frame []byte) (rest []byte, tpid uint16) {
	if len(frame) < 16 {
		return frame, 0
	}
	if tpid = binary.BigEndian.Uint16(frame[12:]); tpid != 0x8100 && tpid != 0x88a8 {
		return frame, 0
	}
	return append(append([]byte{}, frame[:12]...), frame[16:]...), tpid
}

// finds reports whether the decoder finds something in the frame: an observation, or a count that
// only a tap that sees the frame can make.
func finds(t testing.TB, cfg decode.Config, frame []byte) bool {
	t.Helper()
	d, err := decode.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var r decode.Result
	d.Decode(frame, &r)
	c := d.Counters()
	return r.N > 0 || r.Reason == decode.Hidden || c.EmptyReflections+c.InvalidReflections+c.ExcessReflections > 0
}

// goldens returns the frames of the decoder's tests, which cover every path through it.
func goldens(t testing.TB) (frames [][]byte) {
	t.Helper()
	for _, f := range livetest.ReadHex(t, filepath.Join("..", "testdata", "frames")) {
		frames = append(frames, f.Data)
	}
	return frames
}

func configs(t testing.TB) map[string]decode.Config {
	t.Helper()
	pony := func(s *csig.Spec) {
		s.UDPReflections = []csig.UDPReflectionSpec{{Ports: []uint16{4000}, Offset: 20, Format: "compact", Profile: "ietf01"}}
	}
	return map[string]decode.Config{
		"default": {Domain: domain(t, nil)},
		"udp":     {Domain: domain(t, pony), InnerTags: true},
		"bare": {Domain: domain(t, func(s *csig.Spec) {
			s.TPIDs, s.Reflections = s.TPIDs[2:], []csig.ReflectionSpec{}
		}), UDPTunnels: map[uint16]decode.Encap{}},
	}
}

// check compares the filter with the decoder: a frame in which the decoder finds something passes,
// as it was sent and with its VLAN tag stripped.
func check(t *testing.T, m *machine, frame []byte) (passed bool) {
	t.Helper()
	rest, tpid := strip(frame)
	whole, stripped := m.run(frame, 0), m.run(rest, tpid)
	if finds(t, m.cfg.Decode, frame) && (whole == 0 || stripped == 0) {
		t.Errorf("a frame with something in it does not pass (%d whole, %d stripped):\n%x", whole, stripped, frame)
	}
	return whole > 0
}

// TestPassesWhatDecodes runs every frame of the decoder's tests and of the emitter, also truncated
// and with changed bytes.
func TestPassesWhatDecodes(t *testing.T) {
	emitted := emittertest.EveryEncapsulation(t)
	step := 1
	if testing.Short() {
		step = 8
	}
	for name, cfg := range configs(t) {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, Config{Decode: cfg})
			for _, frame := range goldens(t) {
				check(t, m, frame)
				for i := 0; i < len(frame); i += step {
					changed := append([]byte{}, frame...)
					changed[i] ^= byte(1 << (i % 8))
					check(t, m, changed)
				}
			}
			found := 0
			for i, frame := range emitted {
				if i%3 == 0 && check(t, m, frame) {
					found++
				}
			}
			if found < 100 {
				t.Errorf("%d emitted frames passed", found)
			}
		})
	}
}

// TestDropsPlainTraffic: no frame of the emitter without tags and reflections passes, whatever its
// encapsulation, except encrypted ones.
func TestDropsPlainTraffic(t *testing.T) {
	cfg := decode.Config{Domain: domain(t, nil)}
	m := newMachine(t, Config{Decode: cfg})
	plain := 0
	for _, frame := range emittertest.EveryEncapsulation(t) {
		if finds(t, cfg, frame) {
			continue
		}
		plain++
		if rest, tpid := strip(frame); m.run(frame, 0) != 0 || m.run(rest, tpid) != 0 {
			t.Errorf("a frame with nothing in it passes:\n%x", frame)
		}
	}
	if plain < 100 {
		t.Errorf("%d plain frames", plain)
	}
}

func BenchmarkBuild(b *testing.B) {
	cfg := Config{Decode: decode.Config{Domain: domain(b, nil)}}
	for b.Loop() {
		raw, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(raw)), "instructions")
	}
}
