package finding

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

var (
	ietf = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	uec  = csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
	wide = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
)

// ports is a fabric in which locator metadata 10 to 29 are ports of 1 Gbit/s, and all others are
// unknown.
type ports struct{}

func (ports) Locate(l csig.Layout, _ uint8, lm uint16, _, _ netip.Addr) (aggregate.LocationID, uint64) {
	if lm >= 10 && lm < 30 {
		return aggregate.LocationID(lm), 1_000_000
	}
	return aggregate.LocationID(1000 + uint64(l.Index())<<16 + uint64(lm)), 0
}

func (ports) Location(id aggregate.LocationID) (fabric.Location, bool) {
	if id < 1000 {
		return fabric.Location{ID: id, Name: fmt.Sprintf("leaf1:up%d", id), Kind: fabric.KindPort, Device: "leaf1", Capacity: 1_000_000}, true
	}
	return fabric.Location{ID: id, Name: fmt.Sprintf("unknown lm %d", (uint64(id)-1000)&0xffff), Kind: fabric.KindUnknown}, true
}

// shown is a detector with a test's observations.
type shown struct {
	*Detector
	tap     Tap
	n       uint64
	untimed func(n uint64) bool // packets without a time, nil for none
}

// configured returns a configuration with the built-in signals.
func configured(t testing.TB, l Locator, change func(*Config)) Config {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Domain: domain, Locator: l}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func newShown(t testing.TB, change func(*Config)) *shown {
	t.Helper()
	d, err := New(configured(t, ports{}, change))
	if err != nil {
		t.Fatal(err)
	}
	return &shown{Detector: d, tap: Tap{Name: "tap1", File: "a.pcap"}}
}

// see gives the detector a tag of a host, one each millisecond.
func (s *shown) see(host byte, tag csig.Tag) {
	s.n++
	o := decode.Observation{TimeNS: int64(s.n) * int64(time.Millisecond), Packet: s.n, Kind: decode.Tag, Flags: decode.HasAddrs, Tag: tag}
	if s.untimed != nil && s.untimed(s.n) {
		o.TimeNS, o.Flags = 0, o.Flags|decode.NoTime
	}
	o.Src, o.Dst = netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", host)).As16(), netip.MustParseAddr("10.9.9.9").As16()
	s.Observe(&s.tap, &o)
}

// kinds returns the findings, with subjects.
func (s *shown) kinds() string {
	var out []string
	for _, f := range s.Findings() {
		out = append(out, f.Kind.String()+" "+f.Subject)
	}
	return strings.Join(out, ", ")
}

func TestDetector(t *testing.T) {
	t.Parallel()
	delay := func(s uint32, lm uint16) csig.Tag { return csig.Tag{Layout: wide, T: 2, S: s, LM: lm} }
	tests := []struct {
		name string
		cfg  func(*Config)
		show func(*shown)
		want string
	}{
		{"initial values", nil, func(s *shown) {
			for range 1000 {
				s.see(1, delay(0, 0))
			}
		}, ""},
		{"ports that write", nil, func(s *shown) {
			for i := range 1000 {
				s.see(byte(i%5), delay(uint32(1+i%50), uint16(10+i%20)))
			}
		}, ""},
		{"trimmed", nil, func(s *shown) {
			for range 100 {
				tag := delay(7, 99)
				tag.D = true
				s.see(1, tag)
			}
		}, ""},
		{"a sender that writes", nil, func(s *shown) {
			s.tap.Place = Sender
			s.see(1, delay(0, 0))
			s.see(2, delay(5, 0))
		}, "forged-value 10.0.0.2"},
		{"a mid tap that sees part of a path", nil, func(s *shown) {
			s.tap.Place = Mid
			s.see(1, delay(5, 12))
		}, ""},
		{"reserved bits", nil, func(s *shown) {
			s.see(1, csig.Tag{Layout: wide, T: 2, R: 1})
		}, "reserved-bits wide/uec050"},
		{"above capacity", nil, func(s *shown) {
			s.see(1, csig.Tag{Layout: wide, T: 0, S: 1000, LM: 10}) // 8 Gbit/s of 1
			s.see(1, csig.Tag{Layout: wide, T: 0, S: 100, LM: 11})
		}, "above-capacity leaf1:up10"},
		{"an unknown signal", nil, func(s *shown) { s.see(1, csig.Tag{Layout: wide, T: 9, S: 5, LM: 99}) }, ""},
		{"a default that is not 0", nil, func(s *shown) {
			for range 100 {
				s.see(1, delay(0, 15))
			}
		}, ""},
		{"locator metadata alone", nil, func(s *shown) {
			for range 100 {
				s.see(1, delay(0, 0))
			}
			s.see(1, delay(0, 15))
		}, "locator-alone leaf1:up15"},
		{"first hops that write initial values", func(c *Config) { c.Uninitialized = true }, func(s *shown) {
			s.see(1, delay(0, 0))
			s.see(1, delay(0, 0))
			s.see(1, delay(0, 15))
		}, ""},
		{"one forger", nil, func(s *shown) {
			for i := range 1000 {
				s.see(byte(i%10), delay(uint32(1+i%50), 12))
				if i%20 == 3 {
					s.see(3, delay(700, 0))
				}
			}
		}, "forged-value 10.0.0.3, scrub-failure edge of 10.0.0.3"},
		{"all sources", nil, func(s *shown) {
			for i := range 1000 {
				s.see(byte(i%10), delay(uint32(1+i%50), uint16(12+i%2*50)))
			}
		}, "unknown-locator unknown lm 62"},
		{"the other profile", nil, func(s *shown) {
			for i := range 1000 {
				// LM 10 to 29 in 6 bits, D clear: 20 to 58 in 7 bits, most of which are no ports.
				tag := csig.Parse(ietf, csig.Tag{Layout: uec, T: 2, S: uint32(1 + i%20), LM: uint16(15 + i%15)}.Append(nil))
				s.see(byte(i%10), tag)
			}
		}, "wrong-profile compact/ietf01"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShown(t, test.cfg)
			test.show(s)
			got := s.kinds()
			if test.name == "the other profile" {
				if !strings.Contains(got, test.want) {
					t.Errorf("found %q, want %q", got, test.want)
				}
				return
			}
			if got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// TestTimes: the time of a finding is that of its packets with a time, and it has none without any.
func TestTimes(t *testing.T) {
	t.Parallel()
	delay := func(s uint32, lm uint16) csig.Tag { return csig.Tag{Layout: wide, T: 2, S: s, LM: lm} }
	forgers := func(s *shown) { // 3 behind the edge, 7 at its own tap, too
		for i := range 1000 {
			s.see(byte(i%10), delay(uint32(1+i%50), 12))
			if i%20 == 3 {
				s.see(3, delay(700, 0))
				s.tap.Place = Sender
				s.see(7, delay(900, 14))
				s.tap.Place = Receiver
				s.see(7, delay(900, 14))
			}
		}
	}
	profile := func(s *shown) {
		for i := range 1000 {
			s.see(byte(i%10), csig.Parse(ietf, csig.Tag{Layout: uec, T: 2, S: uint32(1 + i%20), LM: uint16(15 + i%15)}.Append(nil)))
		}
	}
	inserted := func(s *shown) {
		at := s.tap
		at.Place = Sender
		for range 100 {
			o := decode.Observation{Src: netip.MustParseAddr("10.0.0.5").As16(), Dst: netip.MustParseAddr("10.9.9.9").As16()}
			s.ObserveUntagged(&at, &o, true)
			s.see(5, delay(1, 12))
		}
	}
	for kind, show := range map[string]func(*shown){"forged-value": forgers, "scrub-failure": forgers, "wrong-profile": profile, "rogue-insertion": inserted} {
		for name, test := range map[string]struct {
			untimed func(uint64) bool
			timed   bool
		}{
			"some": {func(n uint64) bool { return n < 40 || n%3 == 0 }, true},
			"all":  {func(uint64) bool { return true }, false},
		} {
			s := newShown(t, nil)
			s.untimed = test.untimed
			show(s)
			if !strings.Contains(s.kinds(), kind) {
				t.Errorf("%s are untimed: found %s, want %s", name, s.kinds(), kind)
			}
			for _, f := range s.Findings() {
				if timed := f.From >= 40*int64(time.Millisecond) && f.To > f.From && f.To <= int64(s.n)*int64(time.Millisecond); timed != test.timed || !timed && f.From|f.To != 0 {
					t.Errorf("%s are untimed: %s of %s is from %d to %d", name, f.Kind, f.Subject, f.From, f.To)
				}
			}
		}
	}
}

// TestForgerAmongUnknownSources: the values of sources beyond the bound on subjects have a time, though a forger uses
// their locator too.
func TestForgerAmongUnknownSources(t *testing.T) {
	t.Parallel()
	s := newShown(t, func(c *Config) { c.MaxSubjects = 2 })
	for i := range 1000 {
		tag := csig.Tag{Layout: wide, T: 2, S: uint32(1 + i%50), LM: 12}
		s.see(byte(1+i%10), tag)
		switch tag.LM = 0; {
		case i%20 == 3:
			s.see(1, tag)
		case i%100 == 4:
			s.see(5, tag)
		}
	}
	found := s.Findings()
	at := slices.IndexFunc(found, func(f Finding) bool { return f.Kind == UnknownLocator })
	if at < 0 || found[at].Count != 10 || found[at].From == 0 || len(found[at].Packets) == 0 {
		t.Errorf("found %+v", found)
	}
}

// For any input, memory is bounded and counts are exact.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newShown(t, func(c *Config) {
		c.MaxSubjects = 8
		c.Senders = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 5000
	for range n {
		s.see(byte(rng.Uint32()), csig.Tag{Layout: csig.LayoutAt(rng.IntN(csig.NumLayouts)), T: uint8(rng.IntN(8)), S: rng.Uint32N(32), LM: uint16(rng.Uint32N(64))})
	}
	var senders uint64
	subjects := map[Kind]int{}
	for _, f := range s.Findings() {
		subjects[f.Kind]++
		if f.Kind == UnauthorisedSender {
			senders += f.Count
		}
		if len(f.Packets) > maxPackets || f.From > f.To || f.Kind.Otherwise() == "" || f.Evidence == "" {
			t.Errorf("%+v", f)
		}
	}
	if senders != n || subjects[UnauthorisedSender] != 9 || subjects[UnknownLocator] > 9*csig.NumLayouts {
		t.Errorf("%d observations of %d, subjects %v", senders, n, subjects)
	}
}

func TestNewDetector(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("a detector without a domain is made")
	}
	for _, text := range []string{"", "receiver", "mid", "sender", "outside"} {
		if _, err := ParsePlace(text); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParsePlace("inside"); err == nil {
		t.Error("inside is a place")
	}
}

// TestFindingsStay: a returned list does not change with further observations.
func TestFindingsStay(t *testing.T) {
	t.Parallel()
	s := newShown(t, func(c *Config) { c.Senders = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	delay := func(v uint32, lm uint16) csig.Tag { return csig.Tag{Layout: wide, T: 2, S: v, LM: lm} }
	var given, copies [][]Finding
	for step := range 4 {
		for range 400 + 100*step {
			s.see(byte(step), delay(uint32(5000+step), 12))
			s.see(byte(100+step), delay(0, uint16(10+step)))
		}
		list := s.Findings()
		given = append(given, list)
		copies = append(copies, slices.Clone(list))
		for i := range list {
			copies[step][i].Packets = slices.Clone(list[i].Packets)
		}
	}
	if text := s.kinds(); !strings.Contains(text, "unauthorised-sender") {
		t.Errorf("found %s", text)
	}
	if !reflect.DeepEqual(given, copies) {
		t.Error("findings have changed")
	}
}
