package replay_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// captured is a captured packet and its port.
type captured struct {
	conform.Packet
	port int
}

// capturedFrames returns the packets of a capture.
func capturedFrames(t *testing.T, path string, port int) (list []captured) {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b capture.Batch
	for {
		err := r.ReadBatch(&b)
		if errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Frames[:b.N] {
			list = append(list, captured{conform.Packet{Data: bytes.Clone(f.Data), Number: f.Packet, TimeNS: f.TimeNS, WireLen: f.WireLen}, port})
		}
	}
}

// flips is a leaf in whose packets one bit can be flipped.
type flips struct {
	cfg           conform.Config
	before, after []captured
}

func newFlips(t *testing.T, layout csig.Layout, encap string) *flips {
	t.Helper()
	cfg := emitLeaf(t, func(s *scenario.Scenario) {
		*s = s.WithLayout(layout)
		s.Duration, s.Encap = 8*time.Millisecond, encap
	})
	f := &flips{cfg: cfg.Judge, before: capturedFrames(t, cfg.Before[0], 0)}
	for i, c := range cfg.After {
		f.cfg.Ports = append(f.cfg.Ports, c.Port)
		f.after = append(f.after, capturedFrames(t, c.Path, i)...)
	}
	f.cfg.Own = func(port int, l csig.Layout, typ uint8, lm uint16) (own, known bool) {
		return cfg.Fabric.Writes(f.cfg.Ports[port], l, typ, lm)
	}
	f.prefix(t)
	return f
}

// prefix determines the comparable length of packets.
func (f *flips) prefix(t *testing.T) {
	t.Helper()
	s, err := conform.NewScan(&f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]captured{f.before, f.after} {
		for i := range list {
			s.Add(&list[i].Packet)
		}
	}
	_, f.cfg.Prefix = s.Cut()
}

func (f *flips) judge(t *testing.T) *conform.Report {
	t.Helper()
	j, err := conform.New(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.StartPart(0, 1)
	for i := range f.before {
		if err := j.Before(&f.before[i].Packet); err != nil {
			t.Fatal(err)
		}
	}
	for i := range f.after {
		j.After(f.after[i].port, &f.after[i].Packet)
	}
	j.EndPart()
	return j.Report()
}

// tagged returns the packets with a tag and the offsets of their data fields.
func (f *flips) tagged(t *testing.T, layout csig.Layout) (packets, at []int) {
	t.Helper()
	d, err := decode.New(f.cfg.Decode)
	if err != nil {
		t.Fatal(err)
	}
	var result decode.Result
	tpid, _ := f.cfg.Decode.Domain.TPID(layout)
	for i := range f.after {
		data := f.after[i].Data
		d.Decode(data, &result)
		if result.N == 0 || result.Obs[0].Kind != decode.Tag {
			continue
		}
		whole := result.Obs[0].Tag.Append(binary.BigEndian.AppendUint16(nil, tpid))
		if k := bytes.Index(data, whole); k >= 0 {
			packets, at = append(packets, i), append(at, k+2)
		}
	}
	return packets, at
}

// TestEveryFlipIsFound checks that every flipped bit of a tag is found, in every encapsulation, and
// that nothing is found without a flip.
func TestEveryFlipIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	t.Parallel()
	layouts := []csig.Layout{{Format: csig.Wide, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.IETF01}}
	for _, encap := range []string{"none", "vlan", "qinq", "vlan-tunnel", "macsec", "macsec-no-sci", "macsec-vlan", "mpls", "pw", "vxlan", "geneve", "gre", "srv6"} {
		for _, layout := range layouts {
			t.Run(encap+" "+layout.String(), func(t *testing.T) {
				t.Parallel()
				f := newFlips(t, layout, encap)
				if r := f.judge(t); r.Broken() > 0 || r.Counts.Matched < r.Counts.Before*98/100 || r.Counts.Updated == 0 {
					t.Fatalf("faithful: %+v, %+v", r.Counts, r.Findings)
				}
				packets, at := f.tagged(t, layout)
				if len(packets) < 50 {
					t.Fatalf("%d tagged packets", len(packets))
				}
				for bit := range layout.Format.DataLen() * 8 {
					n := (bit*37 + 11) % len(packets)
					data := f.after[packets[n]].Data
					b, mask := at[n]+bit/8, byte(0x80)>>(bit%8)
					data[b] ^= mask
					if r := f.judge(t); r.Broken() == 0 {
						t.Errorf("bit %d of packet %d: nothing is found: %+v", bit, packets[n], r.Counts)
					}
					data[b] ^= mask
				}
			})
		}
	}
}
