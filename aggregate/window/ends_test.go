package window_test

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// countingResolver counts its calls.
type countingResolver struct {
	fakeResolver
	groups, locations int
}

func (r *countingResolver) Group(a netip.Addr) aggregate.GroupID {
	r.groups++
	return r.fakeResolver.Group(a)
}

func (r *countingResolver) Locate(l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (aggregate.LocationID, uint64) {
	r.locations++
	return r.fakeResolver.Locate(l, t, lm, src, dst)
}

// classifier puts all addresses of a group into one class: fakeResolver depends on nothing else.
type classifier struct{ countingResolver }

func (*classifier) Classes(netip.Addr) (src, dst uint64) { return 0, 0 }

func (*classifier) AddressBits() (v4, v6 int) { return 24, 0 }

// A Classifier gets fewer Locate calls and gives equal blocks.
func TestClassifier(t *testing.T) {
	obs := randomObservations(rand.New(rand.NewPCG(1, 7)), 3000)
	hosts, prefixes := map[[16]byte]bool{}, map[netip.Prefix]bool{}
	for i := range obs {
		o := &obs[i]
		if o.Flags&decode.HasAddrs != 0 {
			o.Src[15], o.Dst[15] = byte(i), byte(i*7)
			for _, a := range [][16]byte{o.Src, o.Dst} {
				hosts[a] = true
				p, _ := netip.AddrFrom16(a).Unmap().Prefix(24)
				prefixes[p] = true
			}
		}
	}
	var each, classes collector
	one, all := &countingResolver{}, &classifier{}
	for _, test := range []struct {
		resolver aggregate.Resolver
		sink     *collector
	}{{one, &each}, {all, &classes}} {
		s, err := window.NewShard(window.Config{
			Domain: defaultDomain(t), Resolver: test.resolver, Tap: window.Tap{Tags: true, Reflections: true},
		}, test.sink)
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, obs, 256)
	}
	if !reflect.DeepEqual(each.blocks, classes.blocks) {
		t.Errorf("%d blocks with classes differ from %d without", len(classes.blocks), len(each.blocks))
	}
	if one.groups > len(hosts) || all.groups > len(prefixes) {
		t.Errorf("%d and %d groups were asked for, expected at most one for each of %d addresses, and of %d prefixes", one.groups, all.groups, len(hosts), len(prefixes))
	}
	if all.locations*2 > one.locations {
		t.Errorf("%d locations were asked for with classes, %d without", all.locations, one.locations)
	}
}

// More addresses than the cache holds cost time, nothing else.
func TestManyAddresses(t *testing.T) {
	const n = 150_000
	obs := make([]decode.Observation, n)
	for i := range obs {
		o := &obs[i]
		o.TimeNS, o.Kind, o.Flags, o.Bytes = benchStart, decode.Tag, decode.HasAddrs, 100
		setAddr(&o.Src, uint32(i>>8), uint32(i))
		setAddr(&o.Dst, 9, 9)
		o.Tag = csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, S: 4, LM: 1}
	}
	var sink collector
	c := run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true}, MaxSeries: 1 << 12}, &sink), obs, 1000)
	if c.CacheResets == 0 || c.Stored != n {
		t.Errorf("counts %+v: expected a full cache and all observations stored", c)
	}
}
