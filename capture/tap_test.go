package capture

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/bpf"
)

func TestNewTapTellsWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		cfg  TapConfig
		want string
	}{
		{TapConfig{}, "name of an interface"},
		{TapConfig{Interface: "a-name-of-16-byte"}, "1 to 15 bytes"},
		{TapConfig{Interface: "a", Rings: -1}, "-1 rings"},
		{TapConfig{Interface: "a", Rings: MaxTapRings + 1}, "257 rings"},
		{TapConfig{Interface: "a", BlockSize: 3 << 20}, "power of two"},
		{TapConfig{Interface: "a", BlockSize: 4096}, "from 65536 to"},
		{TapConfig{Interface: "a", Blocks: 1}, "at least 2"},
		{TapConfig{Interface: "a", Blocks: 1 << 20}, "at most 16 GiB"},
		{TapConfig{Interface: "a", Blocks: 16384, Rings: 8}, "at most 16 GiB"},
		{TapConfig{Interface: "a", Retire: time.Minute}, "retire 1m0s"},
		{TapConfig{Interface: "a", Wait: time.Microsecond}, "wait 1µs"},
		{TapConfig{Interface: "a", Filter: make([]bpf.RawInstruction, 5000)}, "5000"},
		{TapConfig{Interface: "a", Timestamps: 9}, "timestamps 9"},
		{TapConfig{Interface: "a", SnapLen: 9, Filter: []bpf.RawInstruction{{Op: returnA}}}, "returns constants"},
	} {
		if _, err := NewTap(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one with %q", tc.cfg, err, tc.want)
		}
	}
	if _, err := NewTap(TapConfig{Interface: "a"}); err != nil {
		t.Error(err)
	}
}

func TestLimited(t *testing.T) {
	filter := []bpf.RawInstruction{{Op: 0x28, K: 12}, {Op: returnConstant, K: 300}, {Op: returnConstant}, {Op: returnConstant, K: 50}}
	got, err := limited(filter, 100)
	if err != nil || got[0].K != 12 || got[1].K != 100 || got[2].K != 0 || got[3].K != 50 || filter[1].K != 300 {
		t.Errorf("%v, %v; the original %v", got, err, filter)
	}
	for snap, want := range map[uint32]uint32{0: math.MaxInt32, 96: 96} {
		if got, err := limited(nil, snap); err != nil || len(got) != 1 || got[0].K != want {
			t.Errorf("%v, %v; want one that keeps %d", got, err, want)
		}
	}
}

func TestParseStamp(t *testing.T) {
	for _, s := range []TimestampSource{TimestampAuto, TimestampSoftware, TimestampHardware} {
		if got, err := ParseTimestampSource(s.String()); err != nil || got != s {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	if _, err := ParseTimestampSource("gps"); err == nil {
		t.Error("no error for gps")
	}
}

// TestStrippedTags writes frames with a stripped tag to a file, and unwraps mirrored frames in
// them.
func TestStrippedTags(t *testing.T) {
	whole := pattern(64, 1)
	f := Frame{Data: append(append([]byte{}, whole[:12]...), whole[16:]...), WireLen: 64, TimeNS: 5}
	f.TPID, f.TCI = uint16(whole[12])<<8|uint16(whole[13]), uint16(whole[14])<<8|uint16(whole[15])
	if got := f.Append(nil); !bytes.Equal(got, whole) {
		t.Errorf("restored %x, want %x", got, whole)
	}
	short := Frame{Data: whole[:5], TPID: 0x8100}
	if got := short.Append(nil); !bytes.Equal(got, whole[:5]) {
		t.Errorf("restored %x, want %x", got, whole[:5])
	}
	var file bytes.Buffer
	w := NewWriter(&file, Interface{Link: LinkEthernet})
	if err := w.Write(&f, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&file, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := drain(t, r)
	if len(got) != 1 || got[0].Data != string(whole) || got[0].WireLen != 64 {
		t.Errorf("%+v, %v", got, err)
	}
}
