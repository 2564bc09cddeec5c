package window

import (
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Sealed entries stay sealed in a state, and what is counted after them goes where it
// would have gone.
func TestStateOfSealedEntries(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []csig.Layout{{Format: csig.Compact, Profile: csig.UEC050}, {Format: csig.Wide, Profile: csig.UEC050}} {
		var want, got recordedBlock
		cfg := Config{Domain: domain, Resolver: oneGroup{}, Tap: Tap{Tags: true, Weight: 4}}
		o := decode.Observation{TimeNS: 5e9, Kind: decode.Tag, Bytes: 1, Tag: csig.Tag{Layout: l, S: l.MaxS()}}
		obs := []decode.Observation{o, o, o}
		ctx := context.Background()
		play := func(sink aggregate.Sink, interrupt bool) {
			s, err := NewShard(cfg, sink)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				if err := s.Add(ctx, obs); err != nil {
					t.Fatal(err)
				}
				w := s.levels[0].open[0]
				if jump := uint32(math.MaxUint32 - 5); i == 0 && l.Format == csig.Wide {
					w.wide[0].count += jump
					slot, _ := w.dist.at(distKey(0, csig.DistIndex(l.MaxS())))
					*slot += jump
				} else if i == 0 {
					w.compact[0].hist[31] += jump
				}
				if i == 2 && len(w.compact)+len(w.wide) != 2 {
					t.Fatalf("%s: nothing is sealed", l)
				}
				if !interrupt {
					continue
				}
				state, err := s.AppendState(nil)
				if err != nil {
					t.Fatal(err)
				}
				if s, err = RestoreShard(cfg, sink, state); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		play(&want, false)
		play(&got, true)
		if !reflect.DeepEqual(got, want) || len(want.rows) != 2 {
			t.Errorf("%s: got %+v, expected %+v", l, got, want)
		}
	}
}
