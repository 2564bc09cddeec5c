package emitter

import (
	"errors"
	"fmt"
)

// Distributions of transfer sizes.
const (
	FixedSize  = "fixed"     // all of MinBytes
	Pareto     = "pareto"    // bounded Pareto of shape 1 from MinBytes to MaxBytes
	WebSearch  = "websearch" // the query and background mix of "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4
	TableSizes = "table"     // straight lines between Points
	maxSize    = 1 << 40     // bytes
	sizeScale  = 1_000_000   // of cumulative shares
	maxPoints  = 1024        // of a table
	storageMin = 4 << 10     // bytes of the smallest and
	storageMax = 16 << 20    // the largest transfer of storage workloads
)

// Sizes is a distribution of transfer sizes in bytes.
type Sizes struct {
	Distribution string      `yaml:"distribution,omitempty"`
	MinBytes     uint64      `yaml:"min_bytes,omitempty"`
	MaxBytes     uint64      `yaml:"max_bytes,omitempty"`
	Points       []SizePoint `yaml:"points,omitempty,flow"`
}

// SizePoint says that a share of all transfers, in parts per million, has at most so
// many bytes.
type SizePoint struct {
	Bytes uint64 `yaml:"bytes"`
	Share uint64 `yaml:"share_ppm"`
}

// sizes draws from a distribution. Everything is an integer, so that the same seed
// draws the same sizes on every machine.
type sizes struct {
	low, high uint64 // of a bounded Pareto distribution, unless points
	points    []SizePoint
}

// webSearch is the distribution of DCTCP's figure 4 as the public simulators that
// followed it tabulate it.
var webSearch = []SizePoint{
	{1, 0},
	{10_000, 150_000},
	{20_000, 200_000},
	{30_000, 300_000},
	{50_000, 400_000},
	{80_000, 530_000},
	{200_000, 600_000},
	{1_000_000, 700_000},
	{2_000_000, 800_000},
	{5_000_000, 900_000},
	{10_000_000, 970_000},
	{30_000_000, 1_000_000},
}

func (s *Sizes) compile() (sizes, error) {
	switch s.Distribution {
	case FixedSize:
		if s.MinBytes < 1 || s.MinBytes > maxSize || len(s.Points) > 0 || (s.MaxBytes != 0 && s.MaxBytes != s.MinBytes) {
			return sizes{}, fmt.Errorf("sizes: fixed: expected min_bytes of 1 to %d and nothing else", uint64(maxSize))
		}
		return sizes{low: s.MinBytes, high: s.MinBytes}, nil
	case Pareto:
		if s.MinBytes < 1 || s.MaxBytes <= s.MinBytes || s.MaxBytes > maxSize || len(s.Points) > 0 {
			return sizes{}, fmt.Errorf("sizes: pareto: expected 1 <= min_bytes < max_bytes <= %d", uint64(maxSize))
		}
		return sizes{low: s.MinBytes, high: s.MaxBytes}, nil
	case WebSearch:
		if s.MinBytes != 0 || s.MaxBytes != 0 || len(s.Points) > 0 {
			return sizes{}, errors.New("sizes: websearch: takes no parameters")
		}
		return sizes{points: webSearch}, nil
	case TableSizes:
		return sizes{points: s.Points}, s.checkPoints()
	}
	return sizes{}, fmt.Errorf("sizes: distribution %q: expected %s, %s, %s or %s", s.Distribution, FixedSize, Pareto, WebSearch, TableSizes)
}

func (s *Sizes) checkPoints() error {
	n := len(s.Points)
	if n < 2 || n > maxPoints || s.Points[0].Share != 0 || s.Points[n-1].Share != sizeScale || s.MinBytes != 0 || s.MaxBytes != 0 {
		return fmt.Errorf("sizes: table: expected 2 to %d points, the first with share_ppm 0, the last with %d", maxPoints, sizeScale)
	}
	for i, p := range s.Points {
		if p.Bytes < 1 || p.Bytes > maxSize || (i > 0 && (p.Bytes < s.Points[i-1].Bytes || p.Share <= s.Points[i-1].Share)) {
			return fmt.Errorf("sizes: table: points[%d]: expected 1 to %d bytes, in ascending order", i, uint64(maxSize))
		}
	}
	return nil
}

// draw is the size of a transfer.
func (s *sizes) draw(rng *random) uint64 {
	if len(s.points) > 0 {
		return s.between(rng.below(sizeScale))
	}
	if s.low == s.high {
		return s.low
	}
	return s.pareto(rng.below(1 << 32))
}

// pareto inverts the cumulative share F(x) = (1 - low/x) / (1 - low/high) at u/2^32:
// x = low / (1 - F (1 - low/high)).
func (s *sizes) pareto(u uint64) uint64 {
	// All terms times high: the denominator runs from high down to low.
	denominator := s.high - mulDiv(s.high-s.low, u, 1<<32)
	return mulDiv(s.low, s.high, denominator)
}

// between inverts the table at a share.
func (s *sizes) between(share uint64) uint64 {
	i := 1
	for s.points[i].Share <= share {
		i++
	}
	a, b := s.points[i-1], s.points[i]
	return a.Bytes + mulDiv(b.Bytes-a.Bytes, share-a.Share, b.Share-a.Share)
}
