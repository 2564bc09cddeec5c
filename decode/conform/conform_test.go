package conform

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// A device that keeps all rules breaks none, and every packet is accounted for.
func TestHonestDevice(t *testing.T) {
	t.Parallel()
	for _, layout := range layouts {
		for seed := range uint64(4) {
			l := newLab(t, layout, seed)
			before := l.send(4000)
			after := l.forward(before)
			if seed%2 == 1 {
				l.cfg.Metrics = l.metrics(4 * time.Millisecond)
			}
			r := l.judge(before, after)
			c := r.Counts
			if broken(r) != "" {
				t.Errorf("%s: an honest device breaks %s: %+v", layout, broken(r), r.Findings)
			}
			if c.Before != 4000 || c.After != uint64(len(after)) || c.Matched+c.Lost+c.Ambiguous < c.Before-5 || c.Extra != 0 {
				t.Errorf("%s: %+v", layout, c)
			}
			if c.Matched < c.After*98/100 || c.Updated < 100 {
				t.Errorf("%s: few packets are judged: %+v", layout, c)
			}
		}
	}
}

// A frame that is padded on one link only, as a short one whose tag was removed, is the same packet.
func TestPadding(t *testing.T) {
	t.Parallel()
	const etherARP = 0x0806
	for name, etherType := range map[string]uint16{"IP": etherIPv4, "ARP": etherARP} {
		l := newLab(t, layouts[0], 1)
		var flights []flight
		var in, out [][]byte
		for n := range byte(50) {
			f := flight{ip: make([]byte, 28), tagged: true, tag: csig.Tag{Layout: layouts[0], S: 9, LM: 3}}
			f.ip[0], f.ip[3], f.ip[9], f.ip[19], f.ip[27] = 0x45, 28, protoUDP, n, 1
			frame := l.frame(&f, 1)
			binary.BigEndian.PutUint16(frame[16:], etherType)
			flights, in, out = append(flights, f), append(in, frame), append(out, append(slices.Clone(frame), make([]byte, 60-len(frame))...))
		}
		for _, r := range []*Report{l.judgeFrames(flights, flights, in, out), l.judgeFrames(flights, flights, out, in)} {
			if broken(r) != "" || r.Counts.Matched != 50 || r.Counts.Trimmed > 0 {
				t.Errorf("%s: breaks %q: %+v", name, broken(r), r.Counts)
			}
		}
	}
}

// Packets whose IP header states no length, as before segmentation offload, are matched by all their bytes.
func TestNoLength(t *testing.T) {
	t.Parallel()
	l := newLab(t, layouts[0], 1)
	before := l.send(2000)
	after := l.forward(before)
	want := l.judge(before, after).Counts
	for _, list := range [][]flight{before, after} {
		for i := range list {
			list[i].ip = slices.Clone(list[i].ip)
			at := 2
			if list[i].ip[0]>>4 == 6 {
				at = 4
			}
			clear(list[i].ip[at : at+2])
		}
	}
	if r := l.judge(before, after); r.Counts != want || broken(r) != "" {
		t.Errorf("breaks %q: %+v, with lengths %+v", broken(r), r.Counts, want)
	}
	d, err := decode.New(l.cfg.Decode)
	if err != nil {
		t.Fatal(err)
	}
	k, seen := NewPacketIdentifier(d, 0, 1), make(map[uint64]bool)
	for i := range before {
		id, _, ok := k.Identify(l.frame(&before[i], 1))
		seen[id] = true
		f := l.forward(before[i : i+1])
		if len(f) == 0 {
			continue // lost
		}
		if later, _, _ := k.Identify(l.frame(&f[0], 1)); !ok || later != id {
			t.Fatalf("packet %d: %x before the device, %x after it", i, id, later)
		}
	}
	if len(seen) < len(before)*9/10 {
		t.Errorf("%d packets have %d identities", len(before), len(seen))
	}
	s, err := NewScan(&l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		frame := l.frame(&before[i], 1)
		s.Add(&Packet{Data: frame[:len(frame)-1], WireLen: uint32(len(frame))})
	}
	if cut, _ := s.Cut(); cut != uint64(len(before)) {
		t.Errorf("%d of %d packets are cut, want all", cut, len(before))
	}
}

// Devices on the way change hop-by-hop options, such as those of in-situ OAM, and options of IPv4.
func TestOptionsOnTheWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, layouts[0], 1)
	before := l.send(2000)
	after := l.forward(before)
	want := l.judge(before, after).Counts
	for changes, list := range [][]flight{before, after} {
		for i := range list {
			ip, changed := list[i].ip, byte(changes*i)
			if ip[0]>>4 == 4 {
				list[i].ip = slices.Concat(ip[:ipv4Len], []byte{0x44, 8, changed, 0, 0, 0, 0, changed}, ip[ipv4Len:])
				list[i].ip[0], list[i].ip[3] = 0x47, ip[3]+8
				continue
			}
			list[i].ip = slices.Concat(ip[:ipv6Len], []byte{ip[6], 0, 0x31, 4, 0, changed, 0, 0}, ip[ipv6Len:])
			list[i].ip[5], list[i].ip[6] = ip[5]+8, 0
		}
	}
	if r := l.judge(before, after); r.Counts != want || broken(r) != "" {
		t.Errorf("breaks %q: %+v, without options %+v", broken(r), r.Counts, want)
	}
}

// A change of any bit of one tag that a device must not change is found.
func TestEveryBitIsFound(t *testing.T) {
	t.Parallel()
	for _, layout := range layouts {
		for bit := range layout.Format.DataLen() * 8 {
			t.Run(fmt.Sprintf("%s/bit %d", layout, bit), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(3) {
					l := newLab(t, layout, seed)
					before := l.send(600)
					after := l.forward(before)
					l.cfg.Metrics = l.metrics(time.Millisecond)
					at := l.IntN(len(after))
					for !after[at].tagged {
						at = l.IntN(len(after))
					}
					data := after[at].tag.Append(nil)
					data[bit/8] ^= 0x80 >> (bit % 8)
					after[at].tag = csig.Parse(layout, data)
					if r := l.judge(before, after); r.Broken() == 0 {
						t.Errorf("seed %d: nothing is found of %+v instead of its neighbour: %+v", seed, after[at].tag, r.Counts)
					}
				}
			})
		}
	}
}

// Each rule is found broken, and named, for a device that breaks it.
func TestRules(t *testing.T) {
	t.Parallel()
	uec := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	tests := []struct {
		name   string
		set    func(l *lab)
		spoil  func(l *lab, before, after []flight) []flight
		broken string
	}{
		{"looser values", nil, each(func(l *lab, f *flight) {
			if t := l.domain.Table(uec, f.tag.T); f.tagged && !f.tag.D {
				f.tag.S, f.tag.LM = t.Initial(), l.own
			}
		}), "direction locator-alone"},
		{"locator metadata alone", nil, each(func(l *lab, f *flight) { f.tag.LM++ }), "locator-alone trim-frozen"},
		{"locator metadata is left", nil, func(l *lab, before, after []flight) []flight {
			was := byNumber(before)
			return each(func(_ *lab, f *flight) { f.tag.LM = was[f.number].tag.LM })(l, before, after)
		}, "locator-kept"},
		{"another type", nil, each(func(_ *lab, f *flight) { f.tag.T ^= 1 }), "type-changed"},
		{"reserved bits", nil, each(func(_ *lab, f *flight) { f.tag.R ^= 4 }), "reserved-changed"},
		{"another format", nil, each(func(_ *lab, f *flight) { f.tag.Layout.Profile = csig.IETF01 }), "format-changed"},
		{"trimmed tags are updated", nil, each(func(l *lab, f *flight) {
			if f.tag.D {
				f.tag.S, f.tag.LM = f.tag.S/2, l.own
			}
		}), "trim-frozen"},
		{"D is cleared", nil, each(func(_ *lab, f *flight) { f.tag.D = false }), "trim-cleared"},
		{"D is set", nil, each(func(_ *lab, f *flight) { f.tag.D = true }), "trim-invented"},
		{"tags are inserted", nil, each(func(l *lab, f *flight) {
			if !f.tagged {
				f.tagged, f.tag = true, l.tag()
			}
		}), "inserted"},
		{"some tags are stripped", nil, each(func(l *lab, f *flight) { f.tagged = f.tagged && l.Float64() < 0.5 }), "stripped-partly"},
		{"all tags are stripped", nil, each(func(_ *lab, f *flight) { f.tagged = false }), ""},
		{"stripping was denied", func(l *lab) { l.cfg.Strip = StripNever }, each(func(_ *lab, f *flight) { f.tagged = false }), "stripped-partly"},
		{"tags leave", func(l *lab) { l.cfg.Strip = StripAlways }, nil, "not-stripped"},
		{"nothing is scrubbed", func(l *lab) { l.cfg.Role = Ingress }, nil, "not-scrubbed"},
		{"all is scrubbed", func(l *lab) { l.cfg.Role = Ingress }, each(func(l *lab, f *flight) {
			if f.tagged {
				f.tag.S, f.tag.LM, f.tag.D = l.domain.Table(uec, f.tag.T).Initial(), 0, false
			}
		}), ""},
		{"pass-through updates", func(l *lab) { l.cfg.Role = PassThrough }, nil, "transparent"},
		{"a type that is not supported is updated", func(l *lab) { l.cfg.Signals = 0b1011 }, nil, "transparent"},
		{"tagged packets are dropped", func(l *lab) { l.loss = 0 }, func(l *lab, _, after []flight) (left []flight) {
			for _, f := range after {
				if !f.tagged || l.Float64() > 0.05 {
					left = append(left, f)
				}
			}
			return left
		}, "tagged-lost"},
		{"all tagged packets are dropped", nil, func(_ *lab, _, after []flight) []flight {
			return slices.DeleteFunc(after, func(f flight) bool { return f.tagged })
		}, "tagged-lost"},
		{"a queue overflows that flows with most tags pass", crowd, crowded(0), ""},
		{"and drops tagged packets", crowd, crowded(0.3), "tagged-lost"},
		{"the tag chooses the port", twoPorts, each(func(_ *lab, f *flight) {
			if f.port = 0; f.tagged {
				f.port = 1
			}
		}), "path-selection"},
		{"the signal type chooses the port", twoPorts, each(func(_ *lab, f *flight) { f.port = int(f.tag.T & 1) }), "path-selection"},
		{"packets are spread over ports", twoPorts, each(func(l *lab, f *flight) { f.port = l.IntN(2) }), ""},
		{"a port goes down", twoPorts, each(func(_ *lab, f *flight) { f.port = int(f.number / 1500) }), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, uec, 7)
			if test.set != nil {
				test.set(l)
			}
			before := l.send(3000 - 1)
			after := l.forward(before)
			if test.spoil != nil {
				after = test.spoil(l, before, after)
			}
			if r := l.judge(before, after); broken(r) != test.broken {
				t.Errorf("breaks %q, want %q: %+v", broken(r), test.broken, r.Counts)
			}
		})
	}
}

// TestSameEachTime: the same captures give the same report, in whatever order their parts are
// judged. Its examples are the first packets, also of a capture of several files.
func TestSameEachTime(t *testing.T) {
	by := func(port func(*flight) int) func(*lab, []flight, []flight) []flight {
		return each(func(_ *lab, f *flight) { f.port = port(f) })
	}
	for name, spoil := range map[string]func(l *lab, before, after []flight) []flight{
		"the tag's type chooses the port": by(func(f *flight) int { return int(f.tag.T & 1) }),
		"whether it is one chooses the port": by(func(f *flight) int {
			if f.tagged {
				return 1
			}
			return 0
		}),
		"tagged packets are lost": func(_ *lab, _, after []flight) []flight {
			return slices.DeleteFunc(after, func(f flight) bool { return f.tagged })
		},
	} {
		l := newLab(t, layouts[1], 7)
		twoPorts(l)
		before := l.send(3000 - 1)
		after := spoil(l, before, l.forward(before))
		want := l.judge(before, after)
		l.cfg.Files = []string{"1", "2", "3"}
		for range 5 {
			got := l.judge(before, after)
			for i := range got.Findings {
				for k := range got.Findings[i].Examples {
					if e := &got.Findings[i].Examples[k]; e.BeforeFile != "1" {
						t.Errorf("%s: %s is not the first packet", name, e)
					} else {
						e.BeforeFile = ""
					}
				}
			}
			if !reflect.DeepEqual(got.Findings, want.Findings) {
				t.Fatalf("%s: %+v, then %+v", name, want.Findings, got.Findings)
			}
		}
	}
}

func twoPorts(l *lab) { l.cfg.Ports, l.flows = []string{"up1", "up2"}, 4 }

// each modifies every packet.
func each(f func(*lab, *flight)) func(*lab, []flight, []flight) []flight {
	return func(l *lab, _, after []flight) []flight {
		for i := range after {
			f(l, &after[i])
		}
		return after
	}
}

func crowd(l *lab) { l.loss, l.flows, l.untag = 0, 6, 0 }

// crowded leaves tags on 90 % of the packets of half of the flows and on 10 % of the others. The
// queue of the first half loses 30 % of its packets, and more of the tagged ones.
func crowded(more float64) func(*lab, []flight, []flight) []flight {
	meets := func(f *flight) bool {
		if f.ip[0]>>4 == 6 {
			return f.ip[23] < 3
		}
		return f.ip[15] < 3
	}
	return func(l *lab, before, after []flight) (left []flight) {
		for _, list := range [][]flight{before, after} {
			for i := range list {
				list[i].tagged = meets(&list[i]) == (list[i].number%10 > 0)
			}
		}
		for _, f := range after {
			if !(meets(&f) && l.Float64() < 0.3 || f.tagged && l.Float64() < more) {
				left = append(left, f)
			}
		}
		return left
	}
}

func byNumber(list []flight) map[uint64]*flight {
	m := make(map[uint64]*flight, len(list))
	for i := range list {
		m[list[i].number] = &list[i]
	}
	return m
}
