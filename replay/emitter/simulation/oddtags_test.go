package simulation

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// TestOddTags checks that the effects of these faults on tags appear in the captures behind the
// device, and that the truth's values do not change.
func TestOddTags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind string
		odd  func(r *decode.Result) bool
	}{
		{scenario.ReservedBits, func(r *decode.Result) bool {
			return r.N == 1 && r.Obs[0].Tag.R != 0 && r.Obs[0].Flags&decode.Orphan == 0
		}},
		{scenario.DoubleTag, func(r *decode.Result) bool {
			return r.N == 2 && r.Obs[0].Flags&decode.Orphan != 0 && r.Obs[1].Flags&decode.Orphan == 0 && r.Obs[0].Tag == r.Obs[1].Tag
		}},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			s := tiny()
			s.Faults = []scenario.Behavior{{Match: "spine1", Kind: tt.kind}}
			s.Taps = []scenario.Tap{{Name: "before", Before: []string{"spine1"}}, {Name: "after", Ports: []string{"spine1:*"}}}
			s.Duration = 300 * time.Millisecond
			report, dir := run(t, s)
			d, err := decode.New(decode.Config{Domain: domainOf(t, dir)})
			if err != nil {
				t.Fatal(err)
			}
			m := capture.MergeFiles(report.Captures, capture.Options{})
			defer m.Close()
			counts := map[bool]int{}
			for {
				f, tap, err := m.Next()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				var r decode.Result
				d.Decode(f.Data, &r)
				if r.N == 0 || r.Obs[0].Kind != decode.Tag {
					continue
				}
				odd := tt.odd(&r)
				counts[odd]++
				if odd != (tap == 1) {
					t.Errorf("tap %d, packet %d: odd %t", tap, f.Packet, odd)
				}
				if ip := int(binary.BigEndian.Uint16(f.Data[14+8*r.N+2:])); ip > s.MTU || int(f.WireLen) < ip+14+8*r.N {
					t.Errorf("tap %d, packet %d: %d bytes, %d of IP", tap, f.Packet, f.WireLen, ip)
				}
			}
			if counts[true] < 100 || counts[false] < 100 {
				t.Errorf("%v", counts)
			}
		})
	}
}
