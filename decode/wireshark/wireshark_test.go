package wireshark_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// fixtures returns the frames of package decode's tests.
func fixtures(t *testing.T) (frames []capture) {
	t.Helper()
	for _, f := range livetest.ReadHex(t, filepath.Join("..", "testdata", "frames")) {
		frames = append(frames, capture{f.Name, f.Data, len(f.Data)})
	}
	return frames
}

// reading is package decode's result for one frame.
type reading struct {
	seen   []seen
	reason decode.Reason
	empty  uint64 // reflections without data fields
	bad    uint64 // reflections of impossible length
	excess uint64 // reflections beyond the bound of one frame
	macsec bool   // there is a SecTAG
	// pseudowire is the label above an Ethernet pseudowire, or 0.
	pseudowire uint32
}

// reader reads frames with package decode.
type reader struct {
	domain  *csig.Domain
	decoder *decode.Decoder
}

func newReader(t *testing.T, spec csig.Spec) *reader {
	t.Helper()
	domain, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	return &reader{domain, d}
}

func (r *reader) read(frame []byte) reading {
	var res decode.Result
	before := r.decoder.Counters()
	r.decoder.Decode(frame, &res)
	after := r.decoder.Counters()
	got := reading{
		reason: res.Reason,
		empty:  after.EmptyReflections - before.EmptyReflections,
		bad:    after.InvalidReflections - before.InvalidReflections,
		excess: after.ExcessReflections - before.ExcessReflections,
	}
	for i, l := range res.Encap.Layers() {
		switch l.Encap {
		case decode.MACsec:
			got.macsec = true
		case decode.Pseudowire:
			got.pseudowire = res.Encap.Layers()[i-1].ID
		}
	}
	for i := range res.Obs[:res.N] {
		o := &res.Obs[i]
		got.seen = append(got.seen, seen{
			Kind:    o.Kind.String(),
			Format:  o.Tag.Layout.Format.String(),
			Profile: o.Tag.Layout.Profile.String(),
			Signal:  o.Tag.Signal().String(),
			T:       uint32(o.Tag.T),
			S:       o.Tag.S,
			LM:      uint32(o.Tag.LM),
			R:       uint32(o.Tag.R),
			D:       o.Tag.D,
			Orphan:  o.Flags&decode.Orphan != 0,
			Noted:   o.Tag.R != 0,
		})
	}
	return got
}

// compare checks a dissection against package decode's result for the same bytes.
func compare(t *testing.T, frame capture, want reading, got dissection) {
	t.Helper()
	all := got.seen
	// The decoder bounds the observations of one frame. Wireshark shows the rest as well.
	excess := len(got.seen) - len(want.seen)
	more := want.reason == decode.TooDeep || want.excess > 0 && uint64(excess) == want.excess
	if more && excess > 0 {
		all = got.seen[:len(want.seen)]
	}
	if diff := cmp.Diff(want.seen, all, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s, %d of %d bytes: (-decode +csig.lua):\n%s", frame.name, len(frame.bytes), frame.whole, diff)
	}
	if uint64(got.empty) != want.empty || uint64(got.invalid) != want.bad {
		t.Errorf("%s, %d of %d bytes: %d empty and %d invalid reflections, want %d and %d", frame.name, len(frame.bytes),
			frame.whole, got.empty, got.invalid, want.empty, want.bad)
	}
	for _, n := range got.next {
		if there := binary.BigEndian.Uint16(frame.bytes[n.offset:]); n.etherType != there {
			t.Errorf("%s: next EtherType 0x%04x at offset %d, want 0x%04x", frame.name, n.etherType, n.offset, there)
		}
	}
}

// compareAll checks csig.lua against package decode over all frames. Nothing on the wire names the
// payload of an MPLS label, so tshark gets the labels of pseudowires.
func compareAll(t *testing.T, frames []capture) {
	t.Helper()
	decoder := newReader(t, csig.DefaultSpec())
	byLabel := map[uint32][]capture{}
	for _, f := range frames {
		label := decoder.read(f.bytes).pseudowire
		byLabel[label] = append(byLabel[label], f)
	}
	for label, frames := range byLabel {
		var options []string
		if label != 0 {
			options = []string{"-d", fmt.Sprintf("mpls.label==%d,pwethcw", label)}
		}
		for i, got := range dissect(t, frames, options...) {
			compare(t, frames[i], decoder.read(frames[i].bytes), got)
		}
	}
}

// TestFixtures compares every frame of the decoder's tests, field by field.
func TestFixtures(t *testing.T) {
	t.Parallel()
	compareAll(t, fixtures(t))
}

// TestCut compares every frame after every number of captured bytes.
func TestCut(t *testing.T) {
	t.Parallel()
	decoder := newReader(t, csig.DefaultSpec())
	var frames []capture
	for _, f := range fixtures(t) {
		// Whether a header claims more than its packet has is known only for a whole frame: a Lua
		// dissector does not get the length of a truncated one. After a SecTAG, Wireshark takes the
		// last captured bytes as the ICV.
		r := decoder.read(f.bytes)
		if r.reason == decode.BadTransport || r.macsec {
			continue
		}
		for n := range f.bytes {
			frames = append(frames, capture{f.name, f.bytes[:n], f.whole})
		}
	}
	compareAll(t, frames)
}

// TestBounds checks that the dissector shows only a few tags of a frame full of them.
func TestBounds(t *testing.T) {
	t.Parallel()
	const tags = 10000
	ethernet := "020000000002020000000001"
	var frames []capture
	for name, unit := range map[string]string{"tags": "99002b85", "tags and VLAN tags": "99002b8581000007"} {
		frame, err := hex.DecodeString(ethernet + strings.Repeat(unit, tags*4/(len(unit)/2)) + "0800")
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, capture{name, frame, len(frame)})
	}
	for i, got := range dissect(t, frames) {
		if n := len(got.seen); n < 4 || n > 20 || !got.tooDeep {
			t.Errorf("%s: %d tags shown, noted as too many: %t", frames[i].name, n, got.tooDeep)
		}
	}
}

// TestReadme runs each filter of the README over frames in which it finds something.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var filters []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "| filter: `"); ok {
			filter, _, _ := strings.Cut(rest, "`")
			filters = append(filters, strings.ReplaceAll(filter, `\|`, "|"))
		}
	}
	if len(filters) == 0 {
		t.Fatal("README.md shows no filters")
	}
	frames := fixtures(t)
	for _, filter := range filters {
		out, _ := tshark(t, frames, "-Y", filter, "-T", "fields", "-e", "frame.number")
		found := strings.Fields(string(out))
		if len(found) == 0 || len(found) == len(frames) {
			t.Errorf("filter %s: finds %d of %d frames", filter, len(found), len(frames))
		}
		for _, n := range found {
			if _, err := strconv.Atoi(n); err != nil {
				t.Errorf("filter %s: %q is not a frame number", filter, n)
			}
		}
	}
}
