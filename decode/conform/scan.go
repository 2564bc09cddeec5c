package conform

import (
	"fmt"

	"github.com/csigscope/csigscope/decode"
)

// Scan looks at captures before they are judged: at how many packets there are, and how
// much of them. It is not safe for concurrent use.
type Scan struct {
	decoder *decode.Decoder
	id      identifier
	n       int
	cut     uint64
	least   int // bytes behind the IP header of the shortest packet that was cut
}

// NewScan makes a Scan for a Judge's configuration.
func NewScan(cfg *Config) (*Scan, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("make scan: %w", err)
	}
	return &Scan{decoder: d, id: identifier{seed: newSeed(), match: cfg.Match}}, nil
}

// Add takes a packet of either side.
func (s *Scan) Add(p *Packet) {
	s.n++
	etherType, packet, ok := s.decoder.Network(p.Data)
	if !ok {
		return
	}
	parts, ok := s.id.split(etherType, packet)
	if !ok || len(parts.rest) >= parts.claimed {
		return
	}
	n := len(parts.rest)
	if s.id.match == MatchPayload {
		n = len(transportPayload(parts))
	}
	if s.cut++; s.cut == 1 || n < s.least {
		s.least = n
	}
}

// Packets is how many packets were looked at.
func (s *Scan) Packets() int { return s.n }

// Cut is how many packets the captures do not hold whole, and the fewest bytes that any of
// them has behind its IP header (or in its payload): Config.Prefix, if it is above 0.
func (s *Scan) Cut() (packets uint64, prefix int) { return s.cut, s.least }
