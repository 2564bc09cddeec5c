package wireshark_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// tcpFrame returns a frame with tags, if any, and TCP options, which it pads.
func tcpFrame(tags, list []byte) []byte {
	for len(list)%4 != 0 {
		list = append(list, 0)
	}
	be := binary.BigEndian
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	b = append(b, tags...)
	b = append(b, 0x08, 0x00, 0x45, 0)
	b = be.AppendUint16(b, uint16(40+len(list)))
	b = append(b, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 1, 2)
	b = append(b, 0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0x10, 0)
	b = append(b, byte(5+len(list)/4)<<4, 0x10, 0xff, 0xff, 0, 0, 0, 0)
	return append(b, list...)
}

// randomTag returns a tag of random fields, each of which fits its layout.
func randomTag(rng *rand.Rand, l csig.Layout) csig.Tag {
	t := csig.Tag{
		Layout: l,
		T:      uint8(rng.IntN(l.Types())),
		S:      rng.Uint32() & l.MaxS(),
		LM:     uint16(rng.Uint32() & (1<<l.LMBits() - 1)),
		D:      l.Profile == csig.UEC050 && rng.IntN(2) == 0,
		R:      uint8(rng.IntN(2)),
	}
	if l.Format == csig.Wide {
		t.R = uint8(rng.Uint32())
	}
	return t
}

// options returns the arguments that set preferences.
func options(prefs ...string) []string {
	var args []string
	for _, p := range prefs {
		args = append(args, "-o", p)
	}
	return args
}

// TestLayouts compares random fields in all layouts, with every type.
func TestLayouts(t *testing.T) {
	t.Parallel()
	spec := csig.DefaultSpec()
	spec.TPIDs = append(spec.TPIDs, csig.TPIDSpec{TPID: 0x88b7, Format: "wide", Profile: "ietf01"})
	decoder := newReader(t, spec)
	rng := rand.New(rand.NewPCG(1, 2))
	var frames []capture
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		tpid, ok := decoder.domain.TPID(l)
		if !ok {
			t.Fatalf("no TPID for %s", l)
		}
		for n := range 8 * l.Types() {
			tag := randomTag(rng, l)
			tag.T = uint8(n % l.Types())
			b := tcpFrame(tag.Append(binary.BigEndian.AppendUint16(nil, tpid)), nil)
			frames = append(frames, capture{fmt.Sprintf("%s %+v", l, tag), b, len(b)})
		}
	}
	for i, got := range dissect(t, frames, options("csig.tpid_wide_ietf01:0x88b7")...) {
		compare(t, frames[i], decoder.read(frames[i].bytes), got)
		if len(got.seen) != 1 {
			t.Errorf("%s: %d tags, want 1", frames[i].name, len(got.seen))
		}
	}
}

// TestPreferences compares domains that differ from the default one.
func TestPreferences(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		prefs []string
		part  csig.Spec // of the default domain
	}{
		{
			"TPIDs swapped, several and none",
			[]string{"csig.tpid_compact_ietf01:0x88b5, 39321", "csig.tpid_compact_uec050:0x9900", "csig.tpid_wide_uec050:"},
			csig.Spec{TPIDs: []csig.TPIDSpec{
				{TPID: 0x88b5, Format: "compact", Profile: "ietf01"},
				{TPID: 0x9999, Format: "compact", Profile: "ietf01"},
				{TPID: 0x9900, Format: "compact", Profile: "uec050"},
			}},
		},
		{
			"another experiment",
			[]string{"csig.reflection_kind:254", "csig.reflection_exid_size:32 bits", "csig.reflection_exid:0x12345678"},
			csig.Spec{Reflections: []csig.ReflectionSpec{{Kind: 254, ExID: 0x12345678, ExIDBits: 32}}},
		},
		{
			"a plain kind, the other profiles",
			[]string{
				"csig.reflection_kind:200", "csig.reflection_exid_size:none",
				"csig.reflection_compact:uec050", "csig.reflection_wide:ietf01",
			},
			csig.Spec{Reflections: []csig.ReflectionSpec{{Kind: 200, Compact: "uec050", Wide: "ietf01"}}},
		},
		{
			"length counts data fields",
			[]string{"csig.reflection_payload_length:TRUE"},
			csig.Spec{Reflections: []csig.ReflectionSpec{{Kind: 253, ExID: 0xc516, ExIDBits: 16, Length: "payload"}}},
		},
		{
			"no reflections",
			[]string{"csig.reflections:FALSE"},
			csig.Spec{Reflections: []csig.ReflectionSpec{}},
		},
	}
	frames := variedFrames()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			decoder := newReader(t, csig.DefaultSpec().Overlay(tt.part))
			found := 0
			for i, got := range dissect(t, frames, options(tt.prefs...)...) {
				compare(t, frames[i], decoder.read(frames[i].bytes), got)
				found += len(got.seen)
			}
			if found == 0 {
				t.Error("no tag and no reflection in any frame")
			}
		})
	}
}

// variedFrames hold tags of several TPIDs and reflections of several encodings.
func variedFrames() []capture {
	var frames []capture
	add := func(name string, tags, list []byte) {
		b := tcpFrame(tags, list)
		frames = append(frames, capture{name, b, len(b)})
	}
	compact, wide := []byte{0x2b, 0x85}, []byte{0x02, 0x59, 0x31, 0x86, 0xa0, 0x01}
	for _, tpid := range []uint16{0x9900, 0x88b5, 0x88b6, 0x9999} {
		for _, data := range [][]byte{compact, wide} {
			add(fmt.Sprintf("tag of 0x%04x, %x", tpid, data),
				append(binary.BigEndian.AppendUint16(nil, tpid), data...), nil)
		}
	}
	heads := [][]byte{{253, 0, 0xc5, 0x16}, {254, 0, 0x12, 0x34, 0x56, 0x78}, {200, 0}}
	for _, head := range heads {
		for _, data := range [][]byte{nil, compact, wide, {1, 2, 3, 4}} {
			for _, length := range []int{len(head) + len(data), len(data)} {
				option := append(bytes.Clone(head), data...)
				option[1] = byte(length)
				add(fmt.Sprintf("option %x, twice", option), nil, slices.Concat(option, option))
			}
		}
	}
	return frames
}

// TestBadPreference expects the message to name the preference and the value, and the other
// preferences to apply.
func TestBadPreference(t *testing.T) {
	t.Parallel()
	tests := []struct{ pref, value string }{
		{"tpid_wide_ietf01", "banana"},
		{"tpid_wide_ietf01", "0x0800"},
		{"tpid_wide_ietf01", "1500"},
		{"tpid_wide_ietf01", "0x10000"},
		{"tpid_wide_ietf01", "0x9900"},
		{"reflection_exid", "banana"},
	}
	b := tcpFrame([]byte{0x99, 0x00, 0x2b, 0x85}, nil)
	frames := []capture{{"tag", b, len(b)}}
	for _, tt := range tests {
		out, diag := tshark(t, frames, "-o", "csig."+tt.pref+":"+tt.value, "-T", "fields", "-e", "csig.signal")
		want := fmt.Sprintf("csig.%s: %q: expected ", tt.pref, tt.value)
		if !bytes.Contains(diag, []byte(want)) {
			t.Errorf("%s = %s: message %q, want %q in it", tt.pref, tt.value, diag, want)
		}
		if got := string(bytes.TrimSpace(out)); got != "min_abw_ratio" {
			t.Errorf("%s = %s: signal %q of another TPID, want min_abw_ratio", tt.pref, tt.value, got)
		}
	}
}
