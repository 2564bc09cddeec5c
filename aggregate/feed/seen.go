package feed

import (
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// Seen is what one lane has taken in. The zero value is ready.
type Seen struct {
	Packets, WireBytes uint64
	First, Last        int64                     // times of the earliest and latest packet, Unix ns; 0 without any
	Frames             [decode.NumReasons]uint64 // by what decoding them came to
	Kinds              [2]uint64                 // observations: tags, reflections
}

// count takes a packet in.
func (s *Seen) count(f *capture.Frame) {
	s.Packets++
	s.WireBytes += uint64(f.WireLen)
	if f.NoTime {
		return
	}
	if s.Last == 0 {
		s.First = f.TimeNS
	}
	s.First, s.Last = min(s.First, f.TimeNS), max(s.Last, f.TimeNS)
}
