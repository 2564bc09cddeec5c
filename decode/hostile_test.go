package decode_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/csigscope/csigscope/decode"
)

// repeated returns the start of a frame, then a header repeated up to 64 KiB.
func repeated(t *testing.T, start, header string) []byte {
	t.Helper()
	b, err := unhex("020000000002020000000001" + start)
	if err != nil {
		t.Fatal(err)
	}
	h, err := unhex(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, bytes.Repeat(h, (1<<16-len(b))/len(h))...)
}

// TestHostileStacks: however many headers a frame has, the walk ends after a bounded number of
// them, with the observations so far.
func TestHostileStacks(t *testing.T) {
	t.Parallel()
	const (
		tag  = "9900 2b85"
		ipv4 = "4500 0000 0001 0000 40"
		ends = "0000 0a000001 0a000102"
	)
	dom := domain(t, reflectingSpec())
	for _, tc := range []struct {
		name          string
		start, header string
		want          decode.Reason
		layers, n     int
	}{
		{"VLAN tags", tag, "8100 0001", decode.TooDeep, 16, 1},
		{"CSIG tags", "", tag, decode.TooDeep, 0, 3},
		{"SecTAGs", tag, "88e5 0000 00000001", decode.TooDeep, 16, 1},
		{"MPLS labels", tag + "8847", "00010040", decode.TooDeep, 16, 1},
		{"IPv4 in IPv4", tag + "0800", ipv4 + "04" + ends, decode.TooDeep, 5, 1},
		{"IPv6 in IPv6", tag + "86dd", "60000000 0000 29 40" + zeros(32), decode.TooDeep, 5, 1},
		{"GRE", tag + "0800", ipv4 + "2f" + ends + "0000 0800", decode.TooDeep, 5, 1},
		{"VXLAN", tag + "0800", ipv4 + "11" + ends + "c350 12b5 0000 0000 08000000 00000000" + zeros(12) + "0800", decode.TooDeep, 5, 1},
		{"VXLAN-GPE", tag + "0800", ipv4 + "11" + ends + "c350 12b6 0000 0000 0c000001 00000000", decode.TooDeep, 5, 1},
		{"Geneve", tag + "0800", ipv4 + "11" + ends + "c350 17c1 0000 0000 0000 0800 00000000", decode.TooDeep, 5, 1},
		{"GTP-U", tag + "0800", ipv4 + "11" + ends + "c350 0868 0000 0000 30ff 0000 00000000", decode.TooDeep, 5, 1},
		{"segment routing in IPv6", tag + "86dd", "60000000 0000 2b 40" + zeros(32) + "2900 0400 00000000", decode.TooDeep, 5, 1},
		{"VXLAN with tags", "0800", ipv4 + "11" + ends + "c350 12b5 0000 0000 08000000 00000000" + zeros(12) + tag + "0800", decode.TooDeep, 4, 3},
		{"pseudowires", tag + "8847", "00010140 00000000" + zeros(12) + "8847", decode.TooDeep, 10, 1},
		{"hop-by-hop headers", tag + "86dd 60000000 0000 00 40" + zeros(32), zeros(8), decode.TooDeep, 0, 1},
		{"segment routing headers", tag + "86dd 60000000 0000 2b 40" + zeros(32), "2b00 0400 00000000", decode.TooDeep, 8, 1},
		{"GTP-U extension headers", tag + "0800" + ipv4 + "11" + ends + "c350 0868 0000 0000 34ff 0000 00000000 0000 0085", "01000085", decode.TooDeep, 0, 1},
		{"ERSPAN", tag + "0800", ipv4 + "2f" + ends + "1000 88be 00000000 1000 0000 00000000" + zeros(12) + "0800", decode.TooDeep, 9, 1},
		{"TZSP", tag + "0800", ipv4 + "11" + ends + "c350 9090 0000 0000 01000001 01" + zeros(12) + "0800", decode.TooDeep, 4, 1},
		{"TZSP fields", tag + "0800" + ipv4 + "11" + ends + "c350 9090 0000 0000 01000001", "28020000", decode.BadTunnel, 0, 1},
		{"TZSP padding", tag + "0800" + ipv4 + "11" + ends + "c350 9090 0000 0000 01000001", "00", decode.BadTunnel, 0, 1},
		{"Geneve options of length 0", tag + "0800" + ipv4 + "11" + ends + "c350 17c1 0000 0000 3f00 0800 00000000", "00000000", decode.BadIP, 1, 1},
	} {
		for name, cfg := range configs(dom) {
			d := decoderOf(t, cfg)
			frame := repeated(t, tc.start, tc.header)
			var r decode.Result
			d.Decode(frame, &r)
			if r.Reason != tc.want || len(r.Encap.Layers()) != tc.layers || r.N != tc.n {
				t.Errorf("%s, %s: %s, %d layers, %d observations, want %s, %d, %d",
					tc.name, name, r.Reason, len(r.Encap.Layers()), r.N, tc.want, tc.layers, tc.n)
			}
			// Bytes beyond the bounds are not even read.
			var short decode.Result
			d.Decode(frame[:1000], &short)
			if short.Reason != r.Reason || short.N != r.N {
				t.Errorf("%s, %s: %s from the first 1000 bytes, %s from all", tc.name, name, short.Reason, r.Reason)
			}
		}
	}
}

func zeros(n int) string {
	const pair = "00"
	return string(bytes.Repeat([]byte(pair), n))
}

// TestHostileOptions fills the TCP options with those that cost the most steps.
func TestHostileOptions(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, reflectingSpec()))
	for name, tc := range map[string]struct {
		options string
		want    decode.Reason
	}{
		"no operation": {string(bytes.Repeat([]byte("01"), 40)), decode.NoCSIG},
		"length 0":     {"0800", decode.BadOptions},
		"length 1":     {"fd01", decode.BadOptions},
		"two bytes":    {string(bytes.Repeat([]byte("0602"), 20)), decode.NoCSIG},
		"reflections":  {string(bytes.Repeat([]byte("c8042b85"), 10)), decode.OK},
	} {
		var r decode.Result
		d.Decode(ack(t, tc.options), &r)
		if r.Reason != tc.want {
			t.Errorf("%s: %s, want %s", name, r.Reason, tc.want)
		}
	}
	if c := d.Counters(); c.Reflections != decode.MaxObservations || c.ExcessReflections != 10-decode.MaxObservations {
		t.Errorf("%+v", c)
	}
}

// TestLengthsLie sets every 16-bit field of the headers to extremes: no panic, and no read beyond
// the frame.
func TestLengthsLie(t *testing.T) {
	t.Parallel()
	dom := domain(t, reflectingSpec())
	for _, cfg := range configs(dom) {
		d := decoderOf(t, cfg)
		for _, g := range goldens(t) {
			frame := bytes.Clone(g.Data)
			for at := 12; at+2 <= len(frame); at++ {
				was := binary.BigEndian.Uint16(frame[at:])
				for _, lie := range []uint16{0, 1, 0x7fff, 0xffff, was + 1, was - 1} {
					binary.BigEndian.PutUint16(frame[at:], lie)
					var r decode.Result
					d.Decode(frame[:len(frame):len(frame)], &r)
					if r.N > decode.MaxObservations || r.Reason >= decode.NumReasons {
						t.Fatalf("%s: %+v", g.Name, r)
					}
				}
				binary.BigEndian.PutUint16(frame[at:], was)
			}
		}
	}
}
