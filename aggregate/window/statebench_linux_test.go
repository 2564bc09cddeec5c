package window_test

import (
	"context"
	"testing"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode/csig"
)

// BenchmarkState is what a checkpoint of one shard costs, between packets: a fabric's
// traffic, and more series than most fabrics have.
func BenchmarkState(b *testing.B) {
	for name, tr := range map[string]*traffic{
		"fabric": fabricTraffic(1<<18, csig.Wide),
		"random": randomTraffic(1 << 18),
	} {
		cfg := window.Config{Tap: window.Tap{Tags: true, Reflections: true}, Domain: defaultDomain(b), Resolver: fakeResolver{}}
		s := newShard(b, cfg, &discard{})
		for at := 0; at < len(tr.obs); at += 256 {
			if err := s.Add(context.Background(), tr.next(at)); err != nil {
				b.Fatal(err)
			}
		}
		var state []byte
		b.Run(name+"/append", func(b *testing.B) {
			for b.Loop() {
				var err error
				if state, err = s.AppendState(state[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(state)))
		})
		b.Run(name+"/restore", func(b *testing.B) {
			b.SetBytes(int64(len(state)))
			for b.Loop() {
				if _, err := window.RestoreShard(cfg, &discard{}, state); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
