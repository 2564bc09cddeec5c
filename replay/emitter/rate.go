package emitter

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

// Rate is a speed in kbit/s. In scenario files it is written "100Gbps".
type Rate uint64

// Speeds of links.
const (
	Mbps Rate = 1e3
	Gbps Rate = 1e6
)

// String is the rate as scenario and fabric files have it: "2500Mbps".
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

// MarshalYAML writes the rate as String has it.
func (r Rate) MarshalYAML() (any, error) { return r.String(), nil }
