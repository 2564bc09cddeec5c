package decode

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MirrorKind is a way to carry mirrored frames in IP.
type MirrorKind uint8

// The kinds.
const (
	MirrorERSPAN MirrorKind = iota // types I to III, in GRE
	MirrorGRETAP                   // Ethernet in GRE; its key is the session
	MirrorVXLAN                    // its network identifier is the session
	MirrorTZSP                     // TaZmen Sniffer Protocol, over UDP; without sessions
)

// String is "erspan", "gretap", "vxlan" or "tzsp".
func (k MirrorKind) String() string {
	switch k {
	case MirrorERSPAN:
		return "erspan"
	case MirrorGRETAP:
		return "gretap"
	case MirrorVXLAN:
		return "vxlan"
	case MirrorTZSP:
		return "tzsp"
	}
	return "unknown"
}

// UDP ports of mirror sessions.
const (
	DefaultVXLANPort = 4789
	DefaultTZSPPort  = TZSPPort
)

// ParseMirrorKind reads what MirrorKind.String writes.
func ParseMirrorKind(text string) (MirrorKind, error) {
	for k := range MirrorTZSP + 1 {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, fmt.Errorf("mirror kind %q: expected erspan, gretap, vxlan or tzsp", text)
}

// Mirrors says which mirror sessions a tap holds. The zero Mirrors is none. GRE-TAP and
// VXLAN are tunnels, too: they are mirror sessions only where a tap is said to hold them.
//
// In flags and as text it is a list of kinds such as "erspan,vxlan", in YAML one such as
// [erspan, vxlan]; both mean sessions over UDP on their default ports.
type Mirrors struct {
	ERSPAN bool
	GRETAP bool
	VXLAN  uint16 // UDP port; 0 is none
	TZSP   uint16 // UDP port; 0 is none
}

// parseMirrors reads the names of kinds.
func parseMirrors(kinds []string) (m Mirrors, err error) {
	for _, text := range kinds {
		kind, err := ParseMirrorKind(strings.TrimSpace(text))
		if err != nil {
			return Mirrors{}, err
		}
		switch kind {
		case MirrorERSPAN:
			m.ERSPAN = true
		case MirrorGRETAP:
			m.GRETAP = true
		case MirrorVXLAN:
			m.VXLAN = DefaultVXLANPort
		case MirrorTZSP:
			m.TZSP = DefaultTZSPPort
		}
	}
	return m, nil
}

// kinds are the names of the kinds.
func (m Mirrors) kinds() []string {
	list := []string{}
	for k, has := range [...]bool{MirrorERSPAN: m.ERSPAN, MirrorGRETAP: m.GRETAP, MirrorVXLAN: m.VXLAN != 0, MirrorTZSP: m.TZSP != 0} {
		if has {
			list = append(list, MirrorKind(k).String())
		}
	}
	return list
}

// String lists the kinds, such as "erspan,vxlan".
func (m Mirrors) String() string { return strings.Join(m.kinds(), ",") }

// MarshalText implements encoding.TextMarshaler.
func (m Mirrors) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; an empty text is none.
func (m *Mirrors) UnmarshalText(text []byte) (err error) {
	*m, err = parseMirrors(slices.DeleteFunc(strings.Split(string(text), ","), func(kind string) bool { return kind == "" }))
	return err
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *Mirrors) UnmarshalYAML(n *yaml.Node) error {
	var kinds []string
	err := n.Decode(&kinds)
	if err != nil {
		return fmt.Errorf("line %d: expected a list of mirror kinds such as [erspan, vxlan]", n.Line)
	}
	if *m, err = parseMirrors(kinds); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (m Mirrors) MarshalYAML() (any, error) { return m.kinds(), nil }
