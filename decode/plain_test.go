package decode_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// plainOptions lists TCP options, padded to whole words.
var plainOptions = []string{
	"",                           // none
	"0101080a 11223344 55667788", // timestamp
	"0101080a 11223344 55667788 fd06c516 2b850101",          // timestamp, reflection
	"fd06c516 2b850101 0101080a 11223344 55667788",          // timestamp behind
	"fd06c516 2b850101",                                     // reflection
	"0101080a 11223344 55667788 fd04c516",                   // empty reflection
	"fd06c516 2b850101 fd06c516 2b850101",                   // two reflections
	"080a1122 33445566 77880101",                            // another layout of timestamp
	"0101080b 11223344 55667788",                            // wrong length of timestamp
	"0101080a 11223344",                                     // cut timestamp
	"020405b4",                                              // segment size
	"00000000 11223344 55667788",                            // end of list
	"0101080a 11223344 55667788 0101050a 11223344 55667788", // selective acknowledgement
}

// plainFrames returns frames with and without a tag, of both versions of IP, and with each list of
// options. Lengths of headers may lie.
func plainFrames(t *testing.T) (frames [][]byte) {
	t.Helper()
	ip := map[string]string{
		"IPv4": "0800 4500 0000 0000 4000 4006 0000 c0000201 c0000202",
		"IPv6": "86dd 6000 0000 0000 0640 20010db8000000000000000000000001 20010db8000000000000000000000002",
	}
	for version, header := range ip {
		for _, options := range plainOptions {
			for _, tags := range []string{"", "9900 2b85", "88b6 0004 1000 4400", "9900 2b85 9900 2b85"} {
				for _, lie := range []int{0, -1, 1} {
					l2 := join(t, outerMAC, tags)
					list := join(t, options)
					packet := join(t, header)
					segment := append(join(t, "d431 1389 00000001 00000002 0010 ffff 0000 0000"), list...)
					segment[12] = byte(5+len(list)/4+lie) << 4
					segment = append(segment, "payload"...)
					if version == "IPv4" {
						binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-2+len(segment)))
					} else {
						binary.BigEndian.PutUint16(packet[6:], uint16(len(segment)))
					}
					frames = append(frames, bytes.Join([][]byte{l2, packet, segment}, nil))
				}
			}
		}
	}
	return frames
}

// checkPlain decodes a frame in front of other memory, and checks that parsing headers one by one
// gives the same result.
func checkPlain(t *testing.T, d, walker *decode.Decoder, frame, behind []byte) decode.Frame {
	t.Helper()
	in := decode.Frame{Data: append(bytes.Clone(frame), behind...)[:len(frame)], WireLen: uint32(len(frame) + len(behind))}
	var got, want decode.Result
	d.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &in, &got)
	walker.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &in, &want)
	if !cmp.Equal(got.Obs[:got.N], want.Obs[:want.N]) || got.Reason != want.Reason || got.Encap != want.Encap {
		t.Fatalf("%x, before %x:\n%+v, header by header\n%+v", frame, behind, got, want)
	}
	return in
}

// TestPlain: frames that DecodePlain reads have the results and counts of headers parsed one by one,
// cut at every byte, whether their rest or something else lies in memory behind them.
func TestPlain(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]csig.Spec{"default": csig.DefaultSpec(), "several kinds": reflectingSpec(), "none": {TPIDs: csig.DefaultSpec().TPIDs}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := decode.Config{Domain: domain(t, spec)}
			d, walker, other := decoderOf(t, cfg), walkerOf(t, cfg), decoderOf(t, cfg)
			plain := 0
			for _, frame := range plainFrames(t) {
				junk := bytes.Repeat([]byte{1, 1, 8, 10}, 30)
				for n := range len(frame) + 1 {
					for _, behind := range [][]byte{junk, append(bytes.Clone(frame[n:]), junk...)} {
						in := checkPlain(t, d, walker, frame[:n], behind)
						if _, _, is := other.DecodePlain(in.Data, in.WireLen, new([decode.MaxObservations]decode.Observation)); is != decode.NotPlain {
							plain++
						}
					}
				}
			}
			if got, want := d.Counters(), walker.Counters(); got != want {
				t.Errorf("%+v, header by header %+v", got, want)
			}
			if plain < 1000 {
				t.Errorf("%d frames were plain: the test shows nothing", plain)
			}
		})
	}
}
