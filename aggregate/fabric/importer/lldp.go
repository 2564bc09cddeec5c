package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lldpctl prints one tree in two shapes. In json0 each element is a list of objects, and texts are
// {"value": …}. In json, a list of one element is replaced by the element, an object with only a
// value by the value, and an object with a name is {name: object}. All readers here accept both.

// lldpText is a text in either shape.
type lldpText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *lldpText) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
			return err
		}
		return t.UnmarshalJSON(bytes.TrimSpace(list[0]))
	case '{':
		var o struct {
			Value text `json:"value"`
		}
		err := json.Unmarshal(raw, &o)
		*t = lldpText(o.Value)
		return err
	}
	return (*text)(t).UnmarshalJSON(raw)
}

// lldpInterface is a port's data about one neighbor.
type lldpInterface struct {
	Via     lldpText                         `json:"via"`
	Chassis many[map[string]json.RawMessage] `json:"chassis"`
	Port    many[lldpPort]                   `json:"port"`
}

type lldpChassis struct {
	ID           many[lldpID]         `json:"id"`
	Name         lldpText             `json:"name"`
	Management   many[lldpText]       `json:"mgmt-ip"`
	Capabilities many[lldpCapability] `json:"capability"`
}

type lldpID struct {
	Type  text `json:"type"` // mac, ifname, local, ...
	Value text `json:"value"`
}

type lldpCapability struct {
	Type    text `json:"type"`
	Enabled bool `json:"enabled"`
}

type lldpPort struct {
	ID          many[lldpID] `json:"id"`
	Description lldpText     `json:"descr"`
	Negotiation many[struct {
		Current lldpText `json:"current"`
	}] `json:"auto-negotiation"`
}

// parseLLDP reads the neighbors of one node. The output does not name the node: local does.
func parseLLDP(raw json.RawMessage, local string) (*document, error) {
	if local == "" {
		return nil, fmt.Errorf("lldpctl does not name the device that it runs on: name the file as the device, such as leaf1.json")
	}
	var tree many[struct {
		Interfaces many[map[string]json.RawMessage] `json:"interface"`
	}]
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, plainJSON(err)
	}
	out := &document{kind: kindLLDP, nodes: []node{{name: local}}}
	for _, top := range tree {
		for _, element := range top.Interfaces {
			if err := out.addHeard(local, element); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// addHeard adds the neighbors of an element of "interface": one with a name in json0, else one or
// several by name.
func (d *document) addHeard(local string, element map[string]json.RawMessage) error {
	if raw, ok := element["name"]; ok && element["chassis"] != nil {
		var name lldpText
		if err := json.Unmarshal(raw, &name); err != nil {
			return plainJSON(err)
		}
		whole, err := json.Marshal(element)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		return d.addNeighbour(local, string(name), whole)
	}
	for _, name := range slices.Sorted(maps.Keys(element)) {
		if err := d.addNeighbour(local, name, element[name]); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) addNeighbour(local, name string, raw json.RawMessage) error {
	var heard many[lldpInterface]
	if err := json.Unmarshal(raw, &heard); err != nil {
		return fmt.Errorf("interface %s: %w", name, plainJSON(err))
	}
	for _, h := range heard {
		if !strings.Contains(string(h.Via), "LLDP") && h.Via != "" {
			continue // CDP and others name devices in other ways
		}
		remote, peer, err := h.neighbour()
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if remote.node == "" && remote.mac == "" {
			continue
		}
		d.nodes = append(d.nodes, peer)
		d.links = append(d.links, link{a: end{node: local, port: name, speed: remote.speed}, b: remote, by: byLLDP})
	}
	return nil
}

// neighbour returns the far end of a link, and its data about itself.
func (h *lldpInterface) neighbour() (end, node, error) {
	var remote end
	var peer node
	for _, element := range h.Chassis {
		c, err := chassisOf(element)
		if err != nil {
			return remote, peer, err
		}
		remote.node = string(c.Name)
		for _, id := range c.ID {
			if id.Type == "mac" {
				remote.mac = strings.ToLower(string(id.Value))
			}
		}
		peer = node{name: remote.node, mac: remote.mac, kind: c.kind()}
		for _, m := range c.Management {
			if a, ok := parseAddress(string(m)); ok {
				peer.perhaps = append(peer.perhaps, a)
			}
		}
	}
	for _, p := range h.Port {
		remote.label, remote.local = string(p.Description), true
		for _, id := range p.ID {
			if id.Type != "mac" && id.Type != "ip" {
				remote.port, remote.local = string(id.Value), id.Type != "ifname"
			}
		}
		if remote.port == "" { // hosts name their cards in the description
			remote.port, remote.label = remote.label, ""
		}
		for _, n := range p.Negotiation {
			remote.speed = speedOfMedium(string(n.Current))
		}
	}
	if peer.kind == switchKind && !looksLikeSwitchPort(remote.port) && !looksLikeSwitchPort(remote.label) {
		peer.kind = unknownKind // a forwarding host, such as one with containers
	}
	return remote, peer, nil
}

// chassisOf reads a chassis: with a name in json0, by its name in json, or without one.
func chassisOf(element map[string]json.RawMessage) (c lldpChassis, err error) {
	if len(element) == 1 && element["id"] == nil && element["name"] == nil {
		for name, raw := range element {
			if err = json.Unmarshal(raw, &c); err != nil {
				return c, fmt.Errorf("chassis %s: %w", name, plainJSON(err))
			}
			c.Name = lldpText(name)
		}
		return c, nil
	}
	whole, err := json.Marshal(element)
	if err == nil {
		err = json.Unmarshal(whole, &c)
	}
	if err != nil {
		return c, fmt.Errorf("chassis: %w", plainJSON(err))
	}
	return c, nil
}

// kind returns the kind of node by its capabilities. Stations are hosts; a node that routes or
// bridges may be a host too.
func (c *lldpChassis) kind() nodeKind {
	var forwards, station bool
	for _, x := range c.Capabilities {
		switch {
		case !x.Enabled:
		case x.Type == "Router" || x.Type == "Bridge":
			forwards = true
		case x.Type == "Station":
			station = true
		}
	}
	switch {
	case forwards:
		return switchKind
	case station:
		return hostKind
	}
	return unknownKind
}

// medium finds the speed in names such as 100GbaseSR4, 2.5GBASE-T and 400gbase-x-qsfpdd.
var medium = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?)([GM]?)base`)

// speedOfMedium returns the speed in kbit/s in the name of a medium; 0: none.
func speedOfMedium(name string) uint64 {
	m := medium.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil || v > 1e5 {
		return 0
	}
	if strings.EqualFold(m[2], "G") {
		v *= 1000
	}
	return uint64(v * 1000)
}
