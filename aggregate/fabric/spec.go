package fabric

import (
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// SpecVersion is the version of the fabric file that this package reads and writes.
const SpecVersion = 1

// Spec is the fabric file as users write it: what the network consists of, how its
// tags are laid out, and where it is tapped. New checks it.
type Spec struct {
	Version int    `yaml:"version"` // SpecVersion
	Name    string `yaml:"name,omitempty"`

	// CSIG overlays csig.DefaultSpec.
	CSIG csig.Spec `yaml:"csig,omitempty"`

	Groups  []GroupSpec  `yaml:"groups,omitempty"` // in the order of matrix axes
	Devices []DeviceSpec `yaml:"devices,omitempty"`
	Hosts   []HostSpec   `yaml:"hosts,omitempty"`
	Taps    []TapSpec    `yaml:"taps,omitempty"`
}

// GroupSpec is a named set of addresses. An address belongs to the group with the
// longest prefix that holds it.
type GroupSpec struct {
	Name     string   `yaml:"name"`
	Level    string   `yaml:"level"`            // host, rack, pod or cluster
	Parent   string   `yaml:"parent,omitempty"` // a group of a higher level
	Prefixes []string `yaml:"prefixes,omitempty"`
}

// DeviceSpec is a switch.
type DeviceSpec struct {
	Name  string     `yaml:"name"`
	Stage string     `yaml:"stage"`        // as the locator's value table has it: leaf, spine, ...
	ID    uint32     `yaml:"id,omitempty"` // device_id of locator metadata; 0: none
	Ports []PortSpec `yaml:"ports"`
}

// PortSpec is an egress port of a switch.
type PortSpec struct {
	Name string `yaml:"name"`
	// ID is the port_id of locator metadata, unique in the fabric; 0: none. It needs
	// to be unique in its device only if every locator with a port_id has a device_id.
	ID          uint32 `yaml:"id,omitempty"`
	Orientation string `yaml:"orientation"`    // up, down or side
	Peer        string `yaml:"peer,omitempty"` // device or host that it faces; empty: not in this file
	Speed       string `yaml:"speed"`          // "100Gbps"
}

// HostSpec is an end system. Ports of devices name it as their peer.
type HostSpec struct {
	Name      string   `yaml:"name"`
	Addresses []string `yaml:"addresses"`
}

// TapSpec is a place where frames are captured.
type TapSpec struct {
	Name   string `yaml:"name"`
	Place  string `yaml:"place"`            // receiver, sender or mid
	Weight uint32 `yaml:"weight,omitempty"` // frames that one captured frame stands for; 0: 1
	// Mirrors are the mirror sessions that frames come in here. A tag in any other is an
	// orphan: anybody can send one.
	Mirrors decode.Mirrors `yaml:"mirrors,omitempty,flow"`
}

// Write writes the specification as YAML that Parse reads back, one line a port.
func (s *Spec) Write(w io.Writer) error {
	var doc yaml.Node
	if err := doc.Encode(s); err != nil {
		return fmt.Errorf("write fabric: %w", err)
	}
	keepEmpty(&doc, &s.CSIG)
	styleSpec(&doc)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return fmt.Errorf("write fabric: %w", err)
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("write fabric: %w", err)
	}
	return nil
}

// keepEmpty writes lists that are empty on purpose: they switch the defaults off,
// which an omitted list does not.
func keepEmpty(doc *yaml.Node, s *csig.Spec) {
	lists := &yaml.Node{Kind: yaml.MappingNode}
	empty := func(key string) {
		lists.Content = append(lists.Content, scalar(key), &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle})
	}
	if s.TPIDs != nil && len(s.TPIDs) == 0 {
		empty("tpids")
	}
	if s.Reflections != nil && len(s.Reflections) == 0 {
		empty("reflections")
	}
	if len(lists.Content) == 0 {
		return
	}
	if section := child(doc, "csig"); section != nil {
		section.Content = append(section.Content, lists.Content...)
		return
	}
	doc.Content = append(doc.Content, scalar("csig"), lists)
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// styleSpec lays the document out for readers: lists of small things on one line
// each, tag protocol identifiers in hexadecimal.
func styleSpec(doc *yaml.Node) {
	for _, d := range items(child(doc, "devices")) {
		flow(child(d, "ports"))
	}
	for _, section := range []string{"groups", "hosts", "taps"} {
		flow(child(doc, section))
	}
	for _, t := range items(child(child(doc, "csig"), "tpids")) {
		id := child(t, "tpid")
		var v uint16
		if id != nil && id.Decode(&v) == nil {
			id.Value = fmt.Sprintf("0x%04x", v)
		}
		t.Style = yaml.FlowStyle
	}
}

func flow(list *yaml.Node) {
	for _, n := range items(list) {
		n.Style = yaml.FlowStyle
	}
}
