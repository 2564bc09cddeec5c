package simulation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// captured is a frame read back with an independent reader.
type captured struct {
	iface      string
	at         time.Time
	wire       int
	data       []byte
	tag        *csig.Tag
	reflection *csig.Tag
	ip         layers.IPv4
	tcp        layers.TCP
}

type packetSource interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// readCapture reads a file whose frames have the given layout.
func readCapture(t *testing.T, path string, l csig.Layout) []captured {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var source packetSource
	name := func(int) string { return strings.TrimSuffix(filepath.Base(path), ".pcap") }
	if strings.HasSuffix(path, ".pcap") {
		source, err = pcapgo.NewReader(f)
	} else {
		var ng *pcapgo.NgReader
		ng, err = pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
		source = ng
		name = func(i int) string {
			iface, err := ng.Interface(i)
			if err != nil {
				t.Fatal(err)
			}
			return iface.Name
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []captured
	for {
		data, info, err := source.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		c := captured{iface: name(info.InterfaceIndex), at: info.Timestamp.UTC(), wire: info.Length, data: data}
		c.parse(t, l)
		out = append(out, c)
	}
}

func (c *captured) parse(t *testing.T, l csig.Layout) {
	t.Helper()
	b := c.data[12:]
	if binary.BigEndian.Uint16(b) == scenario.TPIDOf(l) {
		tag := csig.Parse(l, b[2:])
		c.tag, b = &tag, b[2+l.Format.DataLen():]
	}
	if binary.BigEndian.Uint16(b) != 0x0800 {
		t.Fatalf("EtherType 0x%x, want IPv4", binary.BigEndian.Uint16(b))
	}
	if err := c.ip.DecodeFromBytes(b[2:], gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	if err := c.tcp.DecodeFromBytes(c.ip.Payload, gopacket.NilDecodeFeedback); err != nil {
		t.Fatal(err)
	}
	for _, o := range c.tcp.Options {
		if o.OptionType == 253 && binary.BigEndian.Uint16(o.OptionData) == 0xc516 {
			r := csig.Parse(l, o.OptionData[2:])
			c.reflection = &r
		}
	}
}

// checksums compares the frame's checksums with gopacket's, after filling the payload that the snap
// length cut off with zeros.
func (c *captured) checksums(t *testing.T) {
	t.Helper()
	missing := c.wire - len(c.data)
	ip, tcp := c.ip, c.tcp
	if err := tcp.SetNetworkLayerForChecksum(&ip); err != nil {
		t.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	payload := append(append([]byte{}, tcp.Payload...), make([]byte, missing)...)
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&ip, &tcp, gopacket.Payload(payload))
	if err != nil {
		t.Fatal(err)
	}
	if ip.Checksum != c.ip.Checksum || ip.Length != c.ip.Length {
		t.Errorf("IPv4 checksum %04x, length %d, want %04x, %d", c.ip.Checksum, c.ip.Length, ip.Checksum, ip.Length)
	}
	if tcp.Checksum != c.tcp.Checksum || tcp.DataOffset != c.tcp.DataOffset {
		t.Errorf("TCP checksum %04x, offset %d, want %04x, %d", c.tcp.Checksum, c.tcp.DataOffset, tcp.Checksum, tcp.DataOffset)
	}
}

func TestCapturesAreReadable(t *testing.T) {
	long(t)
	tests := []struct {
		name     string
		change   func(s *scenario.Scenario)
		files    []string
		untagged bool
	}{
		{"a file for each rack", func(*scenario.Scenario) {}, []string{"rack1.pcapng", "rack2.pcapng", "rack3.pcapng"}, false},
		{"one file", func(s *scenario.Scenario) { s.SingleFile = true }, []string{"tiny.pcapng"}, false},
		{"one classic file", func(s *scenario.Scenario) { s.SingleFile, s.Classic = true, true }, []string{"tiny.pcap"}, false},
		{"untagged packets too", func(s *scenario.Scenario) { s.CaptureUntagged = true }, []string{"rack1.pcapng", "rack2.pcapng", "rack3.pcapng"}, true},
		{"tagged acknowledgements", func(s *scenario.Scenario) { s.TagAcks = true }, []string{"rack1.pcapng", "rack2.pcapng", "rack3.pcapng"}, false},
		{"compact tags", func(s *scenario.Scenario) { *s = s.WithLayout(compactIETF) }, []string{"rack1.pcapng", "rack2.pcapng", "rack3.pcapng"}, false},
		{"whole packets", func(s *scenario.Scenario) { s.SnapLen = 9000 }, []string{"rack1.pcapng", "rack2.pcapng", "rack3.pcapng"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tiny()
			tt.change(&s)
			s = s.WithDefaults()
			r, dir := run(t, s)
			packets, untagged := uint64(0), false
			for _, name := range tt.files {
				var last time.Time
				for _, c := range readCapture(t, filepath.Join(dir, name), s.Layout) {
					packets++
					c.checksums(t)
					checkCaptured(t, &s, &c)
					untagged = untagged || (c.tag == nil && c.reflection == nil)
					if c.at.Before(last) || c.at.Before(s.Start) || c.at.After(s.Start.Add(s.Duration)) {
						t.Fatalf("captured at %s, after %s", c.at, last)
					}
					last = c.at
				}
			}
			if packets != r.Captured || packets == 0 || len(r.Captures) != len(tt.files) {
				t.Errorf("%d packets in %v, report %+v", packets, tt.files, r)
			}
			if untagged != tt.untagged {
				t.Errorf("untagged packets captured: %t", untagged)
			}
		})
	}
}

// checkCaptured compares a frame with the scenario: it must be at the tap of its receiver's rack
// and have the length that it has on the wire.
func checkCaptured(t *testing.T, s *scenario.Scenario, c *captured) {
	t.Helper()
	l2 := frames.EthernetLen
	if c.tag != nil {
		l2 += 2 + s.Layout.Format.DataLen()
	}
	if c.wire != l2+int(c.ip.Length) || len(c.data) != min(c.wire, s.SnapLen) {
		t.Errorf("wire length %d, captured %d, IPv4 length %d", c.wire, len(c.data), c.ip.Length)
	}
	to, from := int(c.ip.DstIP.To4()[2]), int(c.ip.SrcIP.To4()[2])
	if s.SingleFile && s.Classic {
		if c.iface != s.Name {
			t.Errorf("interface %q, want %q", c.iface, s.Name)
		}
	} else if c.iface != fmt.Sprintf("rack%d", to) {
		t.Errorf("a packet to rack %d at tap %q", to, c.iface)
	}
	hops := uint8(3)
	if to == from {
		hops = 1
	}
	if c.ip.TTL != 64-hops {
		t.Errorf("time to live %d after %d hops", c.ip.TTL, hops)
	}
}

// Sequence numbers must be contiguous, and acknowledgements must name bytes that were sent.
func TestStreamsMakeSense(t *testing.T) {
	s := tiny()
	s.CaptureUntagged, s.SingleFile = true, true
	s.BufferBytes = 64 << 20
	_, dir := run(t, s)
	next := map[string]uint32{}
	acks := 0
	for _, c := range readCapture(t, filepath.Join(dir, "tiny.pcapng"), wideUEC) {
		key := func(src, dst []byte, from, to layers.TCPPort) string {
			return string(src) + string(dst) + from.String() + to.String()
		}
		if payload := c.wire - len(c.data) + len(c.tcp.Payload); payload > 0 {
			k := key(c.ip.SrcIP, c.ip.DstIP, c.tcp.SrcPort, c.tcp.DstPort)
			if want, seen := next[k]; seen && want != c.tcp.Seq {
				t.Fatalf("sequence number %d, want %d", c.tcp.Seq, want)
			}
			next[k] = c.tcp.Seq + uint32(payload)
			continue
		}
		acks++
		sent := next[key(c.ip.DstIP, c.ip.SrcIP, c.tcp.DstPort, c.tcp.SrcPort)]
		if behind := sent - c.tcp.Ack; behind > 64<<20 {
			t.Fatalf("acknowledges %d, but %d was sent", c.tcp.Ack, sent)
		}
	}
	if acks == 0 {
		t.Error("no acknowledgements")
	}
}
