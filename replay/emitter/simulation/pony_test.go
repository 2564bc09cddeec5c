package simulation

import (
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// With the fabric file's UDP reflection, the decoder must find every reflection that the truth
// counts, and no other.
func TestPonyReflectsWhatTheDecoderReads(t *testing.T) {
	long(t)
	for _, l := range []csig.Layout{wideUEC, compactIETF} {
		for _, version := range []int{4, 6} {
			s := tiny()
			s.RepeatAckEvery, s.IP, s.SingleFile, s.CaptureUntagged, s.SnapLen = 3, version, true, true, 9000
			for i := range s.Workloads {
				s.Workloads[i].Transport = scenario.Pony
			}
			s = s.WithLayout(l)
			r, dir := run(t, s)
			var want, got [3]uint64
			for _, c := range readTruth(t, r.Truth).cells {
				if c.Source == "tag" {
					want[decode.Tag] += c.Observations
				} else {
					want[decode.Reflection] += c.Observations
				}
			}
			d, err := decode.New(decode.Config{Domain: domainOf(t, dir)})
			if err != nil {
				t.Fatal(err)
			}
			frames := uint64(0)
			eachFrame(t, filepath.Join(dir, "tiny.pcapng"), func(b []byte) {
				var result decode.Result
				d.Decode(b, &result)
				for _, o := range result.Obs[:result.N] {
					got[o.Kind]++
				}
				checkDatagram(t, &s, b)
				frames++
			})
			if got != want || got[decode.Reflection] == 0 {
				t.Errorf("%s, IPv%d: %d tags and %d reflections, want %d and %d", l, version,
					got[decode.Tag], got[decode.Reflection], want[decode.Tag], want[decode.Reflection])
			}
			if c := d.Counters(); c.InvalidReflections != 0 || c.EmptyReflections+got[decode.Reflection] != frames {
				t.Errorf("%s, IPv%d: %d frames, counters %+v", l, version, frames, c)
			}
		}
	}
}

func eachFrame(t *testing.T, path string, visit func(b []byte)) {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var batch capture.Batch
	for {
		if err := r.ReadBatch(&batch); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range batch.N {
			visit(batch.Frames[i].Data)
		}
	}
}

// checkDatagram compares lengths and checksums with gopacket's.
func checkDatagram(t *testing.T, s *scenario.Scenario, frame []byte) {
	t.Helper()
	b := frame[frames.EthernetLen:]
	if binary.BigEndian.Uint16(frame[12:]) == scenario.TPIDOf(s.Layout) {
		b = frame[frames.EthernetLen+2+s.Layout.Format.DataLen():]
	}
	first := layers.LayerTypeIPv4
	if s.IP == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.Default)
	if p.ErrorLayer() != nil {
		t.Fatal(p.ErrorLayer().Error())
	}
	udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || udp.DstPort != scenario.PonyPort || int(udp.Length) != len(udp.Contents)+len(udp.Payload) {
		t.Fatalf("not a whole datagram to port %d: %v", scenario.PonyPort, p)
	}
	again := *udp
	if err := again.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	out := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{ComputeChecksums: true}, &again, gopacket.Payload(udp.Payload))
	if err != nil || again.Checksum != udp.Checksum {
		t.Fatalf("checksum %04x, want %04x (%v)", udp.Checksum, again.Checksum, err)
	}
}
