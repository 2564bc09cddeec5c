package conform

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// network returns a domain with a TPID for every layout.
func network(t testing.TB) *csig.Domain {
	t.Helper()
	return networkWith(t, csig.DefaultSpec())
}

func networkWith(t testing.TB, spec csig.Spec) *csig.Domain {
	t.Helper()
	spec.TPIDs = append(spec.TPIDs, csig.TPIDSpec{TPID: 0x88b7, Format: "wide", Profile: "ietf01"})
	domain, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return domain
}

// flight is a packet on its way: its bytes above L2, and its tag.
type flight struct {
	ip     []byte
	tag    csig.Tag
	tagged bool
	port   int
	number uint64 // before the device
	time   int64
}

// lab makes packets, sends them through a device that keeps all rules, and lets a test modify the
// output.
type lab struct {
	testing.TB
	*rand.Rand
	domain *csig.Domain
	layout csig.Layout
	own    uint16 // the device's locator metadata
	cfg    Config
	flows  int
	loss   float64
	untag  float64 // share of packets without a tag
	value  func(signal csig.Signal, at int64) uint64
}

func newLab(t testing.TB, layout csig.Layout, seed uint64) *lab {
	domain := network(t)
	l := &lab{TB: t, Rand: rand.New(rand.NewPCG(seed, 1)), domain: domain, layout: layout, own: 9, flows: 20, loss: 0.01, untag: 0.3}
	l.cfg = Config{Decode: decode.Config{Domain: domain}, Ports: []string{"eth0"}}
	l.value = func(s csig.Signal, at int64) uint64 {
		n := uint64(at / int64(time.Millisecond) % 7)
		switch s {
		case csig.MinABW:
			return n * 40_000_000
		case csig.MinABWRatio, csig.MaxNQD:
			return n * 130_000
		}
		return n * 9_000
	}
	return l
}

// send makes n packets, 1 us apart.
func (l *lab) send(n int) (before []flight) {
	for i := range n {
		f := flight{number: uint64(i + 1), time: int64(i) * int64(time.Microsecond)}
		f.ip = l.packet()
		if i > 0 && l.Float64() < 0.01 {
			f.ip = append([]byte(nil), before[i-1].ip...) // a retransmission
		}
		if f.tagged = l.Float64() >= l.untag; f.tagged {
			f.tag = l.tag()
		}
		before = append(before, f)
	}
	return before
}

// packet returns IPv4 or IPv6 with UDP or TCP of random content.
func (l *lab) packet() []byte {
	flow := l.IntN(l.flows)
	payload := make([]byte, 20+l.IntN(60))
	for i := range payload {
		payload[i] = byte(l.Uint32())
	}
	binary.BigEndian.PutUint32(payload, uint32(1000+flow)<<16|4791)
	proto := byte(protoUDP)
	if flow%2 == 0 {
		proto = protoTCP
		payload[12] = 5 << 4
	} else {
		binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
		clear(payload[udpLen+5 : udpLen+8]) // the queue pair of RoCEv2
	}
	if flow%3 == 0 {
		b := make([]byte, ipv6Len, ipv6Len+len(payload))
		b[0], b[6], b[7], b[23], b[39] = 0x60, proto, 64, byte(flow), 200
		binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
		return append(b, payload...)
	}
	b := make([]byte, ipv4Len, ipv4Len+len(payload))
	b[0], b[8], b[9], b[12], b[15], b[16], b[19] = 0x45, 64, proto, 10, byte(flow), 10, 200
	binary.BigEndian.PutUint16(b[2:], uint16(ipv4Len+len(payload)))
	binary.BigEndian.PutUint16(b[4:], uint16(l.Uint32()))
	return append(b, payload...)
}

// tag returns the tag of earlier hops: the initial value, or a code with their locator metadata.
func (l *lab) tag() csig.Tag {
	types := 3
	if l.layout.Profile == csig.UEC050 {
		types = 4
	}
	tag := csig.Tag{Layout: l.layout, T: uint8(l.IntN(types)), LM: 20 + uint16(l.IntN(30))}
	table := l.domain.Table(l.layout, tag.T)
	tag.S = table.Initial()
	if l.Float64() < 0.8 {
		tag.S = table.Raw(uint32(l.IntN(int(table.Codes()))))
	}
	if l.layout.Profile == csig.UEC050 {
		tag.D = l.Float64() < 0.05
	}
	if l.layout.Format == csig.Wide {
		tag.R = uint8(l.Uint32())
	}
	return tag
}

// forward is the device: it compares and replaces tags, decrements TTLs and loses packets.
func (l *lab) forward(before []flight) (after []flight) {
	for _, f := range before {
		if l.Float64() < l.loss {
			continue
		}
		f.ip = append([]byte(nil), f.ip...)
		if f.ip[0]>>4 == 4 {
			f.ip[8]--
			f.ip[1] = 0x02 // ECN
		} else {
			f.ip[7]--
		}
		if f.tagged && !f.tag.D {
			table := l.domain.Table(l.layout, f.tag.T)
			own := table.Quantize(l.value(table.Signal(), f.time))
			if table.Aggregation().Direction().Tighter(own, table.Code(f.tag.S)) {
				f.tag.S, f.tag.LM = table.Raw(own), l.own
			}
		}
		after = append(after, f)
	}
	return after
}

// metrics returns the counters of the device's port.
func (l *lab) metrics(length time.Duration) *Metrics {
	var csv strings.Builder
	csv.WriteString("time,port,signal,value\n")
	for at := time.Duration(0); at < length; at += time.Millisecond {
		for _, s := range []csig.Signal{csig.MinABW, csig.MinABWRatio, csig.MaxDelay, csig.MaxNQD} {
			v := l.value(s, int64(at))
			text := strconv.FormatUint(v, 10) + "ns"
			switch s.Unit() {
			case csig.BitPerSecond:
				text = strconv.FormatUint(v, 10) + "kbps"
			case csig.Ratio:
				text = strconv.FormatFloat(float64(v)/1e6, 'f', -1, 64)
			}
			csv.WriteString(strconv.FormatInt(int64(at), 10) + ",eth0," + s.String() + "," + text + "\n")
		}
	}
	m, err := ReadMetrics(strings.NewReader(csv.String()), time.Nanosecond)
	if err != nil {
		l.Fatal(err)
	}
	return m
}

// frame returns a packet as captured.
func (l *lab) frame(f *flight, mac byte) []byte {
	b := make([]byte, 12, 22+len(f.ip))
	b[5], b[11] = mac, mac+1
	if f.tagged {
		tpid, _ := l.domain.TPID(f.tag.Layout)
		b = f.tag.Append(binary.BigEndian.AppendUint16(b, tpid))
	}
	etherType := uint16(etherIPv4)
	if f.ip[0]>>4 == 6 {
		etherType = etherIPv6
	}
	return append(binary.BigEndian.AppendUint16(b, etherType), f.ip...)
}

// judge gives both sides to a Judge.
func (l *lab) judge(before, after []flight) *Report {
	l.Helper()
	var in, out [][]byte
	for i := range before {
		in = append(in, l.frame(&before[i], 1))
	}
	for i := range after {
		out = append(out, l.frame(&after[i], 7))
	}
	return l.judgeFrames(before, after, in, out)
}

func (l *lab) judgeFrames(before, after []flight, in, out [][]byte) *Report {
	l.Helper()
	j, err := New(l.cfg)
	if err != nil {
		l.Fatal(err)
	}
	const parts = 3
	perFile := len(in)/max(len(l.cfg.Files), 1) + 1
	for part := range parts {
		j.StartPart(part, parts)
		for i, b := range in {
			p := Packet{Data: b, Number: uint64(i%perFile + 1), File: i / perFile, TimeNS: before[i].time, WireLen: uint32(len(b))}
			if err := j.Before(&p); err != nil {
				l.Fatal(err)
			}
		}
		for i, b := range out {
			j.After(after[i].port, &Packet{Data: b, Number: uint64(i + 1), TimeNS: after[i].time, WireLen: uint32(len(b))})
		}
		j.EndPart()
	}
	return j.Report()
}

// broken returns the names of the rules that a report lists as broken.
func broken(r *Report) string {
	var names []string
	for i := range r.Findings {
		if r.Findings[i].Severity != Note {
			names = append(names, r.Findings[i].Rule)
		}
	}
	return strings.Join(names, " ")
}

var layouts = []csig.Layout{
	{Format: csig.Compact, Profile: csig.IETF01},
	{Format: csig.Compact, Profile: csig.UEC050},
	{Format: csig.Wide, Profile: csig.IETF01},
	{Format: csig.Wide, Profile: csig.UEC050},
}
