package local

import (
	"context"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// steady is a source whose frames belong to four sessions in turn.
type steady struct {
	frame []byte
	at    int64
}

func (s *steady) ReadBatch(b *capture.Batch) error {
	for i := range b.Frames {
		b.Frames[i] = capture.Frame{Data: s.frame, TimeNS: s.at, WireLen: 60, Interface: uint32(i % 4)}
	}
	b.N = len(b.Frames)
	return nil
}

func (s *steady) Interfaces() []capture.Interface { return make([]capture.Interface, 4) }
func (s *steady) Received() int64                 { return s.at }
func (s *steady) LowWatermark() int64             { return 0 }
func (s *steady) Ahead() int64                    { return 0 }
func (s *steady) Close() error                    { return nil }

type nowhere struct{}

func (nowhere) WriteBlock(context.Context, *aggregate.Block) error { return io.ErrClosedPipe }
func (nowhere) Commit(context.Context, []Mark) error               { return io.ErrClosedPipe }

// TestNoAllocations: a worker processes a batch without allocating, with and without sessions,
// even if each packet is a finding.
func TestNoAllocations(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	source := &steady{frame: make([]byte, 60), at: time.Now().UnixNano() >> 29 << 29} // a multiple of 2^29 ns: frames of one such interval are compared with each other
	copy(source.frame[12:], []byte{0x99, 0x00, 0x2b, 0x85, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1})
	senders := &finding.Config{Domain: domain, Locator: fabric.None(domain), Senders: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	for _, sessions := range []func(string) SessionTap{nil, func(string) SessionTap { return SessionTap{Name: "a", Tap: window.Tap{Tags: true}} }} {
		tap := Ring{Name: "tap", Tap: window.Tap{Tags: true}, Source: source, Sessions: sessions}
		p, err := New(Config{Instance: "test", Journal: nowhere{}}, Plan{
			Settings: window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain), Finding: senders}, Rings: []Ring{tap},
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.newWorker(&tap, 1)
		if err != nil {
			t.Fatal(err)
		}
		batch := new(capture.Batch)
		run := func() {
			if err := w.take(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		for range 8 {
			run()
		}
		if n := testing.AllocsPerRun(20, run); n > 0 {
			t.Errorf("sessions %t: %v allocations a batch", sessions != nil, n)
		}
		packets, found := uint64(0), uint64(0)
		for _, l := range w.lanes {
			if err := l.stream.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			packets += l.stream.Tally().Packets
			for _, f := range l.stream.Findings() {
				if f.Kind == finding.UnauthorisedSender { // the packets are also found to be duplicates
					found += f.Count
				}
			}
		}
		if want := 29 * uint64(capture.BatchSize); packets != want || found != want {
			t.Errorf("%d packets counted, %d found, want %d", packets, found, want)
		}
	}
}
