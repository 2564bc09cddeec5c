package capture

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// packetSource is the common interface of pcapgo's readers.
type packetSource interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// sample returns one packet for pcapgo's writers.
func sample(rng *rand.Rand, interfaces int) (gopacket.CaptureInfo, []byte) {
	data := make([]byte, rng.IntN(1600))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return gopacket.CaptureInfo{
		Timestamp:      time.Unix(rng.Int64N(1<<32), rng.Int64N(1e9)).UTC(),
		CaptureLength:  len(data),
		Length:         len(data) + rng.IntN(100),
		InterfaceIndex: rng.IntN(interfaces),
	}, data
}

// compare reads a file with both readers and expects equal packets.
func compare(t *testing.T, file []byte, oracle packetSource, count int) {
	t.Helper()
	_, got, err := readAll(t, file, Options{})
	if len(got) != count {
		t.Fatalf("%d packets, want %d: %v", len(got), count, err)
	}
	for i, p := range got {
		data, ci, err := oracle.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		if p.Data != string(data) || p.TimeNS != ci.Timestamp.UnixNano() || int(p.WireLen) != ci.Length || int(p.Interface) != ci.InterfaceIndex {
			t.Fatalf("packet %d: time %d, length %d, wire %d, interface %d; the oracle has %+v",
				i+1, p.TimeNS, len(p.Data), p.WireLen, p.Interface, ci)
		}
	}
}

func TestClassicAgainstPcapgo(t *testing.T) {
	for name, writer := range map[string]func(*bytes.Buffer) *pcapgo.Writer{
		"micros": func(b *bytes.Buffer) *pcapgo.Writer { return pcapgo.NewWriter(b) },
		"nanos":  func(b *bytes.Buffer) *pcapgo.Writer { return pcapgo.NewWriterNanos(b) },
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			var file bytes.Buffer
			w := writer(&file)
			if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
				t.Fatal(err)
			}
			for range 1000 {
				if err := w.WritePacket(sample(rng, 1)); err != nil {
					t.Fatal(err)
				}
			}
			oracle, err := pcapgo.NewReader(bytes.NewReader(file.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, file.Bytes(), oracle, 1000)
		})
	}
}

func TestPcapngAgainstPcapgo(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var file bytes.Buffer
	names := []string{"eth0", "eth1", "eth2"}
	in := pcapgo.NgInterface{
		Description: "a tap", OS: "Linux", LinkType: layers.LinkTypeEthernet, SnapLength: 9000,
		TimestampResolution: 9,
	}
	in.Name = names[0]
	w, err := pcapgo.NewNgWriterInterface(&file, in, pcapgo.DefaultNgWriterOptions)
	if err != nil {
		t.Fatal(err)
	}
	for _, in.Name = range names[1:] {
		if _, err = w.AddInterface(in); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if err = w.WritePacket(sample(rng, len(names))); err != nil {
			t.Fatal(err)
		}
	}
	if err = w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: 7}); err != nil {
		t.Fatal(err)
	}
	if err = w.Flush(); err != nil {
		t.Fatal(err)
	}
	options := pcapgo.DefaultNgReaderOptions
	options.WantMixedLinkType = true
	oracle, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), options)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, file.Bytes(), oracle, 1000)

	r, _, _ := readAll(t, file.Bytes(), Options{})
	var got []string
	for _, i := range r.Interfaces() {
		got = append(got, i.Name)
		if i.Description != "a tap" || i.SnapLen != 9000 || i.Link != LinkEthernet || i.NanosPerTick != 1 {
			t.Errorf("interface %+v", i)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("interfaces %v, want %v", got, names)
	}
}
