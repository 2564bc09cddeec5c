package taps

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

var everyMirror = decode.Mirrors{ERSPAN: true, GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.TZSPPort}

// unhex decodes a frame written in groups of hex digits.
func unhex(t *testing.T, groups ...string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(strings.Join(groups, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Parts of mirrored frames, from 192.0.2.1.
const (
	outerMAC = "020000000001 020000000002"
	mirrored = "0a0000000001 0a0000000002 9900 2b85 0800"
	typeI    = "0800 4500 002a 0000 4000 402f 0000 c0000201 c0000202 0000 88be"
	typeII   = "0800 4500 0036 0000 4000 402f 0000 c0000201 c0000202 1000 88be 00000007 1064 b555 000abcde"
)

// batches is a source of prepared batches; their frames have the given data.
type batches struct {
	list   [][][]byte
	from   int64 // time of the first frame of each
	closed bool
}

func (b *batches) ReadBatch(to *capture.Batch) error {
	to.N = 0
	if len(b.list) == 0 {
		return nil
	}
	for i, data := range b.list[0] {
		to.Frames[i] = capture.Frame{Data: data, WireLen: uint32(len(data)), TimeNS: b.from + int64(i), Interface: 9}
	}
	to.N, b.list = len(b.list[0]), b.list[1:]
	return nil
}

func (b *batches) LowWatermark() int64 { return 42 }
func (b *batches) Ahead() int64        { return 0 }

func (b *batches) Close() error {
	b.closed = true
	return nil
}

// TestMirrorReader distinguishes sessions, skips packets that are no mirrored frames, and
// counts losses.
func TestMirrorReader(t *testing.T) {
	gretap := func(key, sequence byte) []byte {
		p := unhex(t, outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "3000 6558 00000000 00000000", mirrored)
		p[41], p[45] = key, sequence
		return p
	}
	erspan := unhex(t, outerMAC, typeII, mirrored)
	plain := unhex(t, mirrored, "4500 0014 0000 4000 4006 0000 c0000201 c0000202")
	source := &batches{list: [][][]byte{
		{gretap(1, 5), plain, gretap(2, 9), gretap(1, 6), gretap(1, 9), gretap(1, 8)},
		{plain},
		{erspan, gretap(3, 0), gretap(2, 10)},
	}}
	r := newMirrorReader(source, mirrorConfig{Mirrors: everyMirror, MaxSessions: 3})
	var b capture.Batch
	var got []string
	for range 4 {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		for i := range b.N {
			f := &b.Frames[i]
			name := r.Interfaces()[f.Interface].Name
			if string(f.Data) != string(unhex(t, mirrored)) {
				t.Errorf("%+v of %s", f, name)
			}
			got = append(got, name)
		}
	}
	one, two, three := "gretap/192.0.2.1/1", "gretap/192.0.2.1/2", "erspan/192.0.2.1/341"
	if diff := cmp.Diff([]string{one, two, one, one, one, three, otherSessions, two}, got); diff != "" {
		t.Error(diff)
	}
	c := r.Counters()
	if c.Results[decode.MirrorOK] != 8 || c.Results[decode.MirrorNone] != 2 || c.Excess != 1 {
		t.Errorf("%+v", c)
	}
	wantCounts := []local.SessionCounters{{Name: otherSessions, Frames: 1}, {Name: one, Frames: 4, Lost: 2}, {Name: two, Frames: 2}, {Name: three, Frames: 1}}
	if diff := cmp.Diff(wantCounts, r.Sessions()); diff != "" || r.Received() != 2 {
		t.Error(diff, r.Received())
	}
	if err := r.Close(); err != nil || !source.closed || r.LowWatermark() != 42 {
		t.Errorf("the source is not closed, %v", err)
	}
}

// TestSequences counts missing frames, but no restarts of switches and no reordered packets.
func TestSequences(t *testing.T) {
	for _, tc := range []struct {
		name string
		list []uint32
		want uint64
	}{
		{"in order", []uint32{7, 8, 9}, 0},
		{"a gap", []uint32{7, 10, 11}, 2},
		{"overtaken", []uint32{7, 9, 8, 10}, 1},
		{"wraps", []uint32{1<<32 - 1, 0, 1}, 0},
		{"wraps with a gap", []uint32{1<<32 - 2, 1}, 2},
		{"begins again", []uint32{1 << 30, 1, 2}, 0},
		{"jumps", []uint32{1, 1 << 29, 1<<29 + 2}, 1},
	} {
		r := newMirrorReader(nil, mirrorConfig{})
		var state sessionState
		for _, n := range tc.list {
			r.follow(&state, &decode.Session{Sequenced: true, Sequence: n})
		}
		if state.count.Lost != tc.want {
			t.Errorf("%s: %d lost, want %d", tc.name, state.count.Lost, tc.want)
		}
	}
}

func TestMirrorReaderAllocatesNothing(t *testing.T) {
	erspan := unhex(t, outerMAC, typeII, mirrored)
	source := &batches{}
	r := newMirrorReader(source, mirrorConfig{Mirrors: everyMirror, MaxSessions: 256})
	list := [][][]byte{slices.Repeat([][]byte{erspan}, capture.BatchSize)}
	var b capture.Batch
	if allocs := testing.AllocsPerRun(50, func() {
		source.list = list
		if err := r.ReadBatch(&b); err != nil || b.N != capture.BatchSize {
			t.Fatalf("%d frames, %v", b.N, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a batch, want none", allocs)
	}
}

// TestSessionRoom: random sessions leave the room that is reserved for known ones, also for those that become known later.
func TestSessionRoom(t *testing.T) {
	session := func(id byte) []byte {
		p := unhex(t, outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "2000 6558 00000000", mirrored)
		p[41] = id
		return p
	}
	from := func(first uint64) Expected {
		return Expected{Reserved: 2, Has: func(k decode.SessionKey) bool { return k.ID >= first }}
	}
	for _, tc := range []struct {
		name          string
		before, after Expected // before and after the first batch
		batches       [2][]byte
		want          []string // of the second batch
		excess        uint64
	}{
		{"from the start", from(7), from(7), [2][]byte{{}, {1, 2, 3, 7, 8, 1}}, []string{"1", "2", otherSessions, "7", "8", "1"}, 1},
		{"later", Expected{}, from(7), [2][]byte{{}, {1, 2, 3, 7, 8, 1}}, []string{"1", "2", otherSessions, "7", "8", "1"}, 1},
		{"later, after a stranger", Expected{}, from(7), [2][]byte{{1}, {2, 3, 7, 8}}, []string{"2", otherSessions, "7", "8"}, 1},
		{"one that has a place already", Expected{}, from(7), [2][]byte{{7}, {1, 2, 3, 8}}, []string{"1", "2", otherSessions, "8"}, 1},
		{"no longer", from(7), Expected{}, [2][]byte{{1, 2, 3}, {3, 4, 5}}, []string{"3", "4", otherSessions}, 2},
	} {
		source := &batches{}
		r := newMirrorReader(source, mirrorConfig{Mirrors: everyMirror, MaxSessions: 4, Expected: tc.before})
		var got []string
		for i, ids := range tc.batches {
			if i > 0 {
				r.Expect(tc.after)
			}
			var list [][]byte
			for _, id := range ids {
				list = append(list, session(id))
			}
			source.list = [][][]byte{list}
			var b capture.Batch
			if err := r.ReadBatch(&b); err != nil {
				t.Fatal(err)
			}
			got = got[:0]
			for i := range b.N {
				got = append(got, strings.TrimPrefix(r.Interfaces()[b.Frames[i].Interface].Name, "gretap/192.0.2.1/"))
			}
		}
		if !slices.Equal(got, tc.want) || r.Counters().Excess != tc.excess {
			t.Errorf("%s: frames of %v, want %v; %+v", tc.name, got, tc.want, r.Counters())
		}
	}
}

// TestMirrorReaderSwitchTime: the frames of selected sessions have the time of their switch, if
// it is usable.
func TestMirrorReaderSwitchTime(t *testing.T) {
	const (
		head    = "0800 4500 003a 0000 4000 402f 0000 c0000201 c0000202 1000 22eb 00000008"
		further = "0800 4500 0042 0000 4000 402f 0000 c0000201 c0000202 1000 22eb 00000008"
	)
	unwrap := decode.NewUnwrapper(everyMirror)
	for _, mirror := range []struct{ name, head string }{
		{"type I", typeI},
		{"type II", typeII},
		{"type III in 100 us", head + "2fff f803 00000003 beef 83f8"},
		{"type III in 100 ns", head + "2001 0001 ffffffff 0000 0002"},
		{"type III with upper bits", further + "2001 0001 00000002 0000 0003 0c00 0001 00000001"},
		{"type III with upper bits beyond what ns can say", further + "2001 0001 00000002 0000 0001 1c00 0001 ffffffff"},
		{"type III with IEEE 1588 time", further + "2001 0001 075bcd15 0000 0005 1400 0001 6553f100"},
		{"type III with the ns of IEEE 1588 alone", head + "2001 0001 075bcd15 0000 0004"},
		{"type III in ticks of its own", head + "2001 0001 00000009 0000 0006"},
	} {
		packet := unhex(t, outerMAC, mirror.head, mirrored)
		_, session, m := unwrap.Unwrap(&decode.Frame{Data: packet, WireLen: uint32(len(packet))})
		if m != decode.MirrorOK {
			t.Fatal(m)
		}
		for _, asked := range []bool{false, true} {
			r := newMirrorReader(&batches{from: second, list: [][][]byte{{packet, packet}}}, mirrorConfig{
				Mirrors: everyMirror, MaxSessions: 1, SwitchTime: func(k decode.SessionKey) bool { return asked && k == session.Key() },
			})
			var b capture.Batch
			if err := r.ReadBatch(&b); err != nil || b.N != 2 {
				t.Fatalf("%d frames, %v", b.N, err)
			}
			want, at := local.SessionCounters{Name: session.Key().String(), Frames: 2}, second+1
			switch {
			case !asked:
			case session.SwitchClock == decode.ClockPTP:
				want.SwitchTimes, at = 2, session.SwitchNS
			case session.SwitchClock == decode.ClockNanos:
				want.SwitchTimes, at = 2, second+session.SwitchNS
			case session.SwitchClock == decode.Clock100us || session.SwitchClock == decode.Clock100ns:
				want.SwitchTimes, at = 2, second // no time passes between the two
			default:
				want.Unusable = 2
			}
			if got := r.Sessions()[1]; got != want || b.Frames[1].TimeNS != at {
				t.Errorf("%s, asked %t: %+v, want %+v; time %d, want %d", mirror.name, asked, got, want, b.Frames[1].TimeNS-second, at-second)
			}
		}
	}
}
