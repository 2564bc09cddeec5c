package scenario

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
)

// Rate is a speed in kbit/s, written as "100Gbps" in scenario files.
type Rate uint64

// Link speeds.
const (
	Mbps Rate = 1e3
	Gbps Rate = 1e6
)

// String returns the rate as in scenario and fabric files: "2500Mbps".
func (r Rate) String() string {
	switch {
	case r > 0 && r%Gbps == 0:
		return fmt.Sprintf("%dGbps", uint64(r/Gbps))
	case r > 0 && r%Mbps == 0:
		return fmt.Sprintf("%dMbps", uint64(r/Mbps))
	}
	return fmt.Sprintf("%dkbps", uint64(r))
}

// UnmarshalYAML reads a quantity such as "25Gbps".
func (r *Rate) UnmarshalYAML(n *yaml.Node) error {
	v, err := csig.ParseQuantity(csig.BitPerSecond, n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*r = Rate(v)
	return nil
}

// MarshalYAML writes the rate in the form of String.
func (r Rate) MarshalYAML() (any, error) { return r.String(), nil }

// Ratio is the ratio of the speed below a switch to the speed above it, written as "3:1" in
// scenario files. The zero value means not set.
type Ratio struct{ Down, Up uint64 }

// maxRatio bounds both sides.
const maxRatio = 1000

// UnmarshalYAML reads "3:1".
func (r *Ratio) UnmarshalYAML(n *yaml.Node) error {
	var v Ratio
	var rest string
	if k, _ := fmt.Sscanf(n.Value+" ", "%d:%d%s", &v.Down, &v.Up, &rest); k != 2 ||
		v.Down < 1 || v.Down > maxRatio || v.Up < 1 || v.Up > maxRatio {
		return fmt.Errorf("line %d: ratio %q: expected such as 3:1, of numbers from 1 to %d", n.Line, n.Value, maxRatio)
	}
	*r = v
	return nil
}

// MarshalYAML writes the form that UnmarshalYAML reads.
func (r Ratio) MarshalYAML() (any, error) { return fmt.Sprintf("%d:%d", r.Down, r.Up), nil }

// IsZero reports whether the ratio is not set.
func (r Ratio) IsZero() bool { return r == Ratio{} }

// uplink returns the speed of each of n uplinks above hosts of a given speed, or otherwise if the
// ratio is not set.
func (r Ratio) uplink(otherwise, speed Rate, hosts, n int) Rate {
	if r.IsZero() || n < 1 {
		return otherwise
	}
	// Bounded, since scenarios are sized before they are checked.
	below := uint64(min(speed, maxSpeed)) * uint64(min(max(hosts, 0), maxHostsPerLeaf))
	return max(Rate(exact.MulDiv(below, r.Up, r.Down*uint64(n))), 1)
}

// Share is a share of frames in parts per million, written as "0.5%" in scenario files.
type Share uint32

// WholeShare means all frames.
const WholeShare Share = 1e6

// String returns the share as in scenario files.
func (s Share) String() string {
	return strconv.FormatFloat(float64(s)/1e4, 'f', -1, 64) + "%"
}

// UnmarshalYAML reads a share such as "0.5%" or 0.005.
func (s *Share) UnmarshalYAML(n *yaml.Node) error {
	v, err := csig.ParseQuantity(csig.Ratio, n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	if v > uint64(WholeShare) {
		return fmt.Errorf("line %d: share %s: expected 0%% to 100%%", n.Line, n.Value)
	}
	*s = Share(v)
	return nil
}

// MarshalYAML writes the share in the form of String.
func (s Share) MarshalYAML() (any, error) { return s.String(), nil }
