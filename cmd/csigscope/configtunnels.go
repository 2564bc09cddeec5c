package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode"
)

// udpTunnels are the tunnels over UDP by destination port. Nil leaves them to the
// defaults; an empty mapping means that there are none.
type udpTunnels map[uint16]decode.Encap

// tunnelNames are the tunnels that a port can be configured for.
var tunnelNames = map[string]decode.Encap{
	decode.VXLAN.String(): decode.VXLAN, decode.VXLANGPE.String(): decode.VXLANGPE, decode.Geneve.String(): decode.Geneve,
	decode.GTPU.String(): decode.GTPU, decode.PSP.String(): decode.PSP,
}

// UnmarshalYAML implements yaml.Unmarshaler, strictly: each mistake is told with its
// line.
func (u *udpTunnels) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected a mapping of UDP ports to tunnels such as {4789: vxlan}", n.Line)
	}
	*u = make(udpTunnels, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		port, err := strconv.ParseUint(key.Value, 10, 16)
		if err != nil || port == 0 || key.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: port %q: expected 1 to 65535", key.Line, key.Value)
		}
		if _, twice := (*u)[uint16(port)]; twice {
			return fmt.Errorf("line %d: port %d is already defined", key.Line, port)
		}
		kind, ok := tunnelNames[value.Value]
		if !ok || value.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: tunnel %q: expected one of %v",
				value.Line, value.Value, slices.Sorted(maps.Keys(tunnelNames)))
		}
		(*u)[uint16(port)] = kind
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (u udpTunnels) MarshalYAML() (any, error) { //nolint:unparam // the interface has an error
	names := make(map[uint16]string, len(u))
	for port, kind := range u {
		names[port] = kind.String()
	}
	return names, nil
}

// String lists the tunnels in the order of their ports.
func (u udpTunnels) String() string {
	text := ""
	for _, port := range slices.Sorted(maps.Keys(u)) {
		text += fmt.Sprintf(" %d:%s", port, u[port])
	}
	return text
}
