package window_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// traffic is a repeating second of observations, whose times advance each time it is played.
type traffic struct {
	obs   []decode.Observation
	times []int64
	round int64
}

// next returns a batch of at most 256 observations.
func (tr *traffic) next(at int) []decode.Observation {
	batch := tr.obs[at:min(at+256, len(tr.obs))]
	for i := range batch {
		batch[i].TimeNS = tr.times[at+i] + tr.round*int64(time.Second)
	}
	return batch
}

func newTraffic(n int, fill func(r *rand.Rand, i int, o *decode.Observation)) *traffic {
	r := rand.New(rand.NewPCG(1, 2))
	tr := &traffic{obs: make([]decode.Observation, n), times: make([]int64, n)}
	for i := range tr.obs {
		tr.times[i] = benchStart + int64(i)*int64(time.Second)/int64(n)
		o := &tr.obs[i]
		o.Kind, o.Flags, o.Bytes = decode.Tag, decode.HasAddrs, 1500
		o.Tag.Layout = csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
		fill(r, i, o)
	}
	return tr
}

var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// setAddr makes an IPv4 address that fakeResolver puts into the group.
func setAddr(a *[16]byte, group, host uint32) {
	*a = [16]byte{10: 0xff, 11: 0xff, 12: 10}
	binary.BigEndian.PutUint16(a[13:], uint16(group))
	a[15] = byte(host)
}

// fabricTraffic has 64 hosts in 16 racks, a bottleneck of two ports for each rack pair and two
// signals: about 1,000 series of 100 and more observations a second.
func fabricTraffic(n int, format csig.Format) *traffic {
	return newTraffic(n, func(r *rand.Rand, i int, o *decode.Observation) {
		src, dst := r.Uint32N(64), r.Uint32N(64)
		setAddr(&o.Src, src/4, src%4)
		setAddr(&o.Dst, dst/4, dst%4)
		o.Tag.Layout.Format = format
		o.Tag.T = uint8(r.Uint32N(2) * 2)
		o.Tag.LM = uint16(1 + src/4*2 + r.Uint32N(2))
		o.Tag.S = uint32(min(max(8+r.NormFloat64()*3, 0), 30))
		if format == csig.Wide {
			o.Tag.S = 3000 + r.Uint32N(2000)
		}
	})
}

// randomTraffic has 20,000 flows whose locator metadata changes with every packet.
func randomTraffic(n int) *traffic {
	flows := make([][2][16]byte, 20000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range flows {
		setAddr(&flows[i][0], r.Uint32N(1<<16), r.Uint32N(256))
		setAddr(&flows[i][1], r.Uint32N(1<<16), r.Uint32N(256))
	}
	return newTraffic(n, func(r *rand.Rand, i int, o *decode.Observation) {
		f := &flows[r.Uint32N(uint32(len(flows)))]
		o.Src, o.Dst = f[0], f[1]
		o.Tag.LM, o.Tag.S = uint16(r.Uint32N(64)), r.Uint32N(32)
	})
}

// discard is a sink that counts rows alone.
type discard struct{ rows int }

func (d *discard) WriteBlock(_ context.Context, b *aggregate.Block) error {
	d.rows += b.Len()
	return nil
}
