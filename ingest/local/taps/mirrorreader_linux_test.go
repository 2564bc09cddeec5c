package taps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// mirroredFrames reads until want frames have arrived, or none for a while, and returns session
// and frame of each as text.
func mirroredFrames(t *testing.T, r *MirrorReader, want int) []string {
	t.Helper()
	var b capture.Batch
	var got []string
	for quiet := 0; quiet < 15 && len(got) < want; {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		if quiet++; b.N > 0 {
			quiet = 0
		}
		for i := range b.N {
			f := &b.Frames[i]
			if age := time.Since(time.Unix(0, f.TimeNS)); age < 0 || age > time.Minute {
				t.Errorf("a frame is %s old", age)
			}
			got = append(got, fmt.Sprintf("%s %d %x", r.Interfaces()[f.Interface].Name, f.WireLen, f.Data))
		}
	}
	return got
}

// TestMirrorSockets sends every kind of session to sockets: the frames come out as the switch
// saw them.
func TestMirrorSockets(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	frame := livetest.Tagged(livetest.Plain(1, 2, 900), 0x8100<<16|5, 0x9900<<16|0x2b85)
	for _, tc := range []struct {
		listen string
		header []byte
		want   string
	}{
		{"127.0.0.1:4789", []byte{8, 0, 0, 0, 0, 0, 77, 0}, "vxlan/127.0.0.1/77"},
		{"[::1]:4789", []byte{8, 0, 0, 0, 0, 0, 77, 0}, "vxlan/::1/77"},
		{"[::]:37008", []byte{1, 0, 0, 1, 1}, "tzsp/::1/0"},
		{"127.0.0.1:37008", []byte{1, 0, 0, 1, 1}, "tzsp/127.0.0.1/0"},
		{"127.0.0.1:0", []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 77}, "gretap/127.0.0.1/77"},
		{"127.0.0.1:0", []byte{0x10, 0, 0x88, 0xbe, 0, 0, 0, 0, 0x10, 0, 0, 77, 0, 0, 0, 0}, "erspan/127.0.0.1/77"},
		{"[::1]:0", []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 77}, "gretap/::1/77"},
	} {
		t.Run(tc.listen+" "+tc.want, func(t *testing.T) {
			socket, err := capture.NewMirrorSocket(capture.MirrorSocketConfig{Listen: netip.MustParseAddrPort(tc.listen), MaxFrame: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if err := socket.Open(); err != nil {
				t.Fatal(err)
			}
			r := newMirrorReader(socket, mirrorConfig{Mirrors: everyMirror, MaxSessions: 256})
			defer r.Close()
			packet := append(append([]byte{}, tc.header...), frame...)
			const packets = 300 // more than a batch
			for range packets {
				livetest.SendTo(t, net.Dialer{}, tc.listen, packet)
			}
			got := mirroredFrames(t, r, packets)
			want := fmt.Sprintf("%s %d %x", tc.want, len(frame), frame)
			if len(got) != packets || got[0] != want || got[packets-1] != want {
				t.Fatalf("%d frames, the first %.300q, want %.300q; %+v", len(got), got[:min(1, len(got))], want, r.Counters())
			}
			livetest.SendTo(t, net.Dialer{}, tc.listen, append(packet, make([]byte, 500)...))
			if got := mirroredFrames(t, r, 1); len(got) != 1 || socket.Counters().Cut != 1 || socket.Counters().Packets != packets+1 || socket.Counters().Dropped != 0 {
				t.Errorf("%.100q, %+v", got, socket.Counters())
			}
			var b capture.Batch
			began := time.Now().UnixNano()
			if err := r.ReadBatch(&b); err != nil || b.N != 0 || r.LowWatermark() < began {
				t.Errorf("%d frames, %v, quiet until %d, asked at %d", b.N, err, r.LowWatermark(), began)
			}
		})
	}
}

// TestMirrorsByTap sends the mirrored packets of the emitter's switches through the link: the
// tap gets the frames as they were in the switch, including those behind a stripped VLAN tag.
func TestMirrorsByTap(t *testing.T) {
	if !livetest.InNamespace(t) {
		return
	}
	defer goleak.VerifyNone(t)
	livetest.MakeLink(t)
	s := emittertest.Named(t, "mirrors")
	s.Packets, s.SingleFile, s.SnapLen = 3000, true, 9000
	report := emittertest.Run(t, s, t.TempDir())
	sent := livetest.Read(t, report.Captures[0])
	want := map[string]int{}
	unwrap := decode.NewUnwrapper(everyMirror)
	for i, data := range sent {
		inner, session, m := unwrap.Unwrap(&decode.Frame{Data: data, WireLen: uint32(len(data))})
		if m != decode.MirrorOK {
			t.Fatalf("frame %d: %s", i, m)
		}
		want[fmt.Sprintf("%s %d %x", session.Key(), inner.WireLen, inner.Data)]++
		if i%2 == 1 {
			sent[i] = livetest.Tagged(data, 0x8100<<16|5)
		}
	}
	tap, err := capture.NewTap(capture.TapConfig{Interface: livetest.TapEnd, BlockSize: 256 << 10, Retire: 100 * time.Millisecond})
	if err = errors.Join(err, tap.Open()); err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	r := newMirrorReader(tap.Rings()[0], mirrorConfig{Mirrors: everyMirror, MaxSessions: 256})
	sender := livetest.NewSender(t, livetest.SendEnd)
	sender.Send(sent...)
	got := mirroredFrames(t, r, len(sent))
	for _, frame := range got {
		want[frame]--
	}
	for frame, n := range want {
		if n != 0 {
			t.Errorf("%d of a frame are missing: %.200s", n, frame)
		}
	}
	if len(got) != len(sent) || len(r.Interfaces()) < 2 {
		t.Errorf("%d frames of %d in %d sessions, %+v", len(got), len(sent), len(r.Interfaces()), r.Counters())
	}
	// The kernel's headers are as the sender made them.
	if binary.BigEndian.Uint16(sent[1][12:]) != unix.ETH_P_8021Q {
		t.Error("no frame had a VLAN tag")
	}
}
