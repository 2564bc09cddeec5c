package csig_test

import (
	"encoding/hex"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

var allLayouts = []csig.Layout{
	{Format: csig.Compact, Profile: csig.IETF01},
	{Format: csig.Compact, Profile: csig.UEC050},
	{Format: csig.Wide, Profile: csig.IETF01},
	{Format: csig.Wide, Profile: csig.UEC050},
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	t.Parallel()
	ci, cu, wi, wu := allLayouts[0], allLayouts[1], allLayouts[2], allLayouts[3]
	for _, tc := range []struct {
		name   string
		data   string
		layout csig.Layout
		want   csig.Tag
	}{
		// The first two are test vectors of public switch code (FBOSS).
		{"fboss min(ABW/C)", "2b85", ci, csig.Tag{T: 1, S: 0x17, LM: 5}},
		{"fboss locator", "2842", ci, csig.Tag{T: 1, S: 0x10, LM: 0x42}},
		// One field of all ones at a time, in the bit positions of Figure 1.
		{"compact T", "e000", ci, csig.Tag{T: 7}},
		{"compact R", "1000", ci, csig.Tag{R: 1}},
		{"compact S", "0f80", ci, csig.Tag{S: 31}},
		{"compact LM", "007f", ci, csig.Tag{LM: 127}},
		// The IEEE slides give LM 6 bits and D the last one.
		{"compact LM, D bit", "007e", cu, csig.Tag{LM: 63}},
		{"compact D", "0001", cu, csig.Tag{D: true}},
		{"compact S, D bit", "0f80", cu, csig.Tag{S: 31}},
		// Figure 2: bits 16 to 31 of the first word, then the second word.
		{"wide LM", "ffff00000000", wi, csig.Tag{LM: 0xffff}},
		{"wide T", "0000f0000000", wi, csig.Tag{T: 15}},
		{"wide S", "00000fffff00", wi, csig.Tag{S: 1<<20 - 1}},
		{"wide R", "0000000000ff", wi, csig.Tag{R: 255}},
		{"wide LM, D bit", "fffe00000000", wu, csig.Tag{LM: 0x7fff}},
		{"wide D", "000100000000", wu, csig.Tag{D: true}},
		{"wide all", "123521234567", wu, csig.Tag{LM: 0x91a, D: true, T: 2, S: 0x12345, R: 0x67}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.want.Layout = tc.layout
			if got := csig.Parse(tc.layout, unhex(t, tc.data)); got != tc.want {
				t.Errorf("Parse(%s) = %+v, want %+v", tc.data, got, tc.want)
			}
			if got := hex.EncodeToString(tc.want.Append(nil)); got != tc.data {
				t.Errorf("Append() = %s, want %s", got, tc.data)
			}
		})
	}
}

func TestCompactRoundTripsEveryPattern(t *testing.T) {
	t.Parallel()
	for _, l := range allLayouts[:2] {
		for v := range 1 << 16 {
			data := [2]byte{byte(v >> 8), byte(v)}
			if got := csig.Parse(l, data[:]).Append(nil); [2]byte(got) != data {
				t.Fatalf("%s: %x comes back as %x", l, data, got)
			}
		}
	}
}

func TestAppendCutsFieldsToTheLayout(t *testing.T) {
	t.Parallel()
	for _, l := range allLayouts {
		whole := csig.Tag{Layout: l, T: 255, S: ^uint32(0), LM: ^uint16(0), D: true, R: 255}
		b := whole.Append([]byte{0xaa})
		if len(b) != 1+l.Format.DataLen() || b[0] != 0xaa {
			t.Fatalf("%s: appended %x", l, b)
		}
		got := csig.Parse(l, b[1:])
		want := csig.Tag{
			Layout: l, T: uint8(l.Types() - 1), S: l.MaxS(), LM: uint16(1<<l.LMBits() - 1),
			D: l.Profile == csig.UEC050, R: 1,
		}
		if l.Format == csig.Wide {
			want.R = 255
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", l, got, want)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	data := unhex(t, "123521234567")
	for _, l := range allLayouts {
		var sum uint32
		if n := testing.AllocsPerRun(100, func() { sum += csig.Parse(l, data).S }); n != 0 {
			t.Errorf("%s: %v allocations", l, n)
		}
	}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, l := range allLayouts {
		i := l.Index()
		if i < 0 || i >= csig.NumLayouts || seen[i] || csig.LayoutAt(i) != l {
			t.Errorf("%s: index %d, back to %s", l, i, csig.LayoutAt(i))
		}
		seen[i] = true
		f, err := csig.ParseFormat(l.Format.String())
		if err != nil || f != l.Format {
			t.Errorf("ParseFormat(%s) = %v, %v", l.Format, f, err)
		}
		p, err := csig.ParseProfile(l.Profile.String())
		if err != nil || p != l.Profile {
			t.Errorf("ParseProfile(%s) = %v, %v", l.Profile, p, err)
		}
	}
	if f, err := csig.ParseFormat("expanded"); err != nil || f != csig.Wide {
		t.Errorf("the draft's name for wide: %v, %v", f, err)
	}
	if _, err := csig.ParseFormat("narrow"); err == nil {
		t.Error("ParseFormat(narrow) succeeds")
	}
	if _, err := csig.ParseProfile(""); err == nil {
		t.Error(`ParseProfile("") succeeds`)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		profile csig.Profile
		t       uint8
		name    string
		unit    string
		dir     csig.Direction
		known   bool
	}{
		{csig.IETF01, 0, "min_abw", "bit/s", csig.Min, true},
		{csig.IETF01, 1, "min_abw_ratio", "ratio", csig.Min, true},
		{csig.IETF01, 2, "max_delay", "ns", csig.Max, true},
		{csig.IETF01, 3, "type_3", "", csig.Max, false},
		{csig.UEC050, 3, "max_nqd", "ratio", csig.Max, true},
		{csig.UEC050, 4, "type_4", "", csig.Max, false},
		{csig.UEC050, 15, "type_15", "", csig.Max, false},
	} {
		s := csig.SignalOf(tc.profile, tc.t)
		if s.String() != tc.name || s.Unit().String() != tc.unit || s.Known() != tc.known ||
			s.Direction() != tc.dir || s.Type() != tc.t || int(s) >= csig.NumSignals {
			t.Errorf("%s type %d: %s, unit %q, known %v, type %d", tc.profile, tc.t, s, s.Unit(), s.Known(), s.Type())
		}
		if back, err := csig.ParseSignal(tc.name); err != nil || back != s {
			t.Errorf("ParseSignal(%s) = %v, %v", tc.name, back, err)
		}
	}
	for _, bad := range []string{"", "abw", "type_", "type_16", "type_-1"} {
		if _, err := csig.ParseSignal(bad); err == nil {
			t.Errorf("ParseSignal(%q) succeeds", bad)
		}
	}
	if csig.Min.Tighter(3, 3) || csig.Max.Tighter(3, 3) {
		t.Error("the comparison is strict: among equal codes the first hop stays")
	}
	if !csig.Min.Tighter(2, 3) || !csig.Max.Tighter(3, 2) {
		t.Error("lower is tighter for min signals, higher for max signals")
	}
}
