package fabric_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestRandomPrefixesBlindNobody: addresses are forged by the million. A prefix that was active
// before keeps its group, one that becomes active meanwhile or afterwards gets its own, and every
// observation is in some row.
func TestRandomPrefixesBlindNobody(t *testing.T) {
	const (
		calm, attack, silence, end = 5, 65, 200, 230 // seconds
		begins                     = 35              // of the second prefix, during the attack
		patience                   = 20
	)
	for _, random := range []int{fabric.MaxDerived, 1_000_000} {
		t.Run(fmt.Sprint(random), func(t *testing.T) {
			domain, err := csig.DefaultSpec().Compile()
			if err != nil {
				t.Fatal(err)
			}
			f := fabric.None(domain)
			seen := &groupsSeen{rows: map[aggregate.GroupID]map[int64]uint64{}}
			shard, err := window.NewShard(window.Config{Domain: domain, Resolver: f, Tap: window.Tap{Tags: true}}, seen)
			if err != nil {
				t.Fatal(err)
			}
			rng, sent, met := rand.New(rand.NewPCG(1, uint64(random))), uint64(0), uint64(0)
			var obs []decode.Observation
			from := func(a netip.Addr) {
				sent++
				obs = append(obs, decode.Observation{
					Bytes: 1500, Kind: decode.Tag, Flags: decode.HasAddrs, Src: a.As16(), Dst: netip.MustParseAddr("10.0.0.1").As16(),
					Tag: csig.Tag{Layout: csig.LayoutAt(0)},
				})
			}
			send := func(second int64) {
				for i := range obs {
					obs[i].TimeNS = second*1e9 + int64(i)*1e9/int64(len(obs))
				}
				if err := shard.Add(t.Context(), obs); err != nil {
					t.Fatal(err)
				}
				obs = obs[:0]
			}
			for second := int64(1); second <= end; second++ {
				if second > calm && second <= attack {
					for range random/(attack-calm) + 1 {
						var b [4]byte
						binary.BigEndian.PutUint32(b[:], rng.Uint32()|1<<31) // away from the real ones
						from(netip.AddrFrom4(b))
					}
				}
				for range 10 {
					from(netip.MustParseAddr("10.1.1.1"))
					if second >= begins {
						from(netip.MustParseAddr("10.2.2.2"))
					}
					if second >= silence {
						from(netip.MustParseAddr("10.3.3.3"))
					}
				}
				send(second)
				_, met = f.GroupsSince(met)
				f.Stored(met)
			}
			if err := shard.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, since := range map[string]int64{"10.1.1.0/24": 1, "10.2.2.0/24": begins + patience, "10.3.3.0/24": silence + patience} {
				for second := since; second <= end; second++ {
					if n := seen.rows[fabric.GroupIDOf(name)][second]; n != 10 {
						t.Errorf("%s: %d of 10 observations in second %d, %+v", name, n, second, f.Counts())
						break
					}
				}
			}
			if seen.all != sent || f.Counts().GroupFallbacks == 0 {
				t.Errorf("%d of %d observations are in rows, %+v", seen.all, sent, f.Counts())
			}
			if n := len(f.Groups()); n > fabric.MaxDerived+2 {
				t.Errorf("%d groups", n)
			}
		})
	}
}

// groupsSeen is a sink that counts the observations of 1 s windows by their source.
type groupsSeen struct {
	rows map[aggregate.GroupID]map[int64]uint64
	all  uint64
}

func (s *groupsSeen) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != 1e9 {
		return nil
	}
	for i, n := range b.Observations {
		s.all += n
		id := aggregate.GroupID(b.SrcGroup[i])
		if s.rows[id] == nil {
			s.rows[id] = map[int64]uint64{}
		}
		s.rows[id][b.WindowStart/1e9] += n
	}
	return nil
}
