package emitter

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Ratio is the speed of what is below a switch to that of what is above it. In
// scenario files it is written "3:1". The zero value means nothing.
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

// MarshalYAML writes what UnmarshalYAML reads.
func (r Ratio) MarshalYAML() (any, error) { return fmt.Sprintf("%d:%d", r.Down, r.Up), nil }

// IsZero tells whether the ratio was not given.
func (r Ratio) IsZero() bool { return r == Ratio{} }

// uplink is the speed of each of n uplinks above hosts of a speed, or otherwise if no
// ratio was given.
func (r Ratio) uplink(otherwise, speed Rate, hosts, n int) Rate {
	if r.IsZero() || n < 1 {
		return otherwise
	}
	// Bounded, since scenarios are sized before they are checked.
	below := uint64(min(speed, maxSpeed)) * uint64(min(max(hosts, 0), maxHostsPerLeaf))
	return max(Rate(mulDiv(below, r.Up, r.Down*uint64(n))), 1)
}
