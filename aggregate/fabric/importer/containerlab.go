package importer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

type clabFile struct {
	Name     string `yaml:"name"`
	Topology struct {
		Defaults clabNode            `yaml:"defaults"`
		Kinds    map[string]clabNode `yaml:"kinds"`
		Groups   map[string]clabNode `yaml:"groups"`
		Nodes    map[string]clabNode `yaml:"nodes"`
		Links    []clabLink          `yaml:"links"`
	} `yaml:"topology"`
}

type clabNode struct {
	Kind   string            `yaml:"kind"`
	Group  string            `yaml:"group"`
	Exec   []string          `yaml:"exec"`
	Labels map[string]string `yaml:"labels"`
}

// clabLink has endpoints in two forms: "leaf1:e1-1", and {node: leaf1, interface: e1-1}.
type clabLink struct {
	Type      string      `yaml:"type"`
	Endpoints []yaml.Node `yaml:"endpoints"`
	IPv4      []string    `yaml:"ipv4"`
	IPv6      []string    `yaml:"ipv6"`
}

type clabEnd struct {
	Node      string `yaml:"node"`
	Interface string `yaml:"interface"`
	IPv4      string `yaml:"ipv4"`
	IPv6      string `yaml:"ipv6"`
}

// parseContainerlab reads a topology. It ignores other keys than those above.
func parseContainerlab(r io.Reader) (*document, error) {
	var f clabFile
	if err := yaml.NewDecoder(r).Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("is empty")
		}
		return nil, fmt.Errorf("%s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "))
	}
	if len(f.Topology.Nodes) == 0 {
		return nil, errors.New("topology: has no nodes")
	}
	out := &document{kind: kindContainerlab}
	at := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(f.Topology.Nodes)) {
		at[name] = len(out.nodes)
		out.nodes = append(out.nodes, f.node(name))
	}
	for i := range f.Topology.Links {
		if err := out.addClabLink(&f.Topology.Links[i], at); err != nil {
			return nil, fmt.Errorf("topology.links[%d]: %w", i, err)
		}
	}
	return out, nil
}

// node returns the file's data about a node, from itself, its group, its kind or the defaults.
func (f *clabFile) node(name string) node {
	c := f.Topology.Nodes[name]
	group := f.Topology.Groups[c.Group]
	kind := cmp.Or(c.Kind, group.Kind, f.Topology.Defaults.Kind)
	n := node{name: name, kind: clabKind(kind), positional: strings.HasPrefix(kind, "sonic-")}
	roles := []string{c.Group}
	for _, from := range []clabNode{c, group, f.Topology.Kinds[kind], f.Topology.Defaults} {
		roles = append(roles, from.Labels["role"], from.Labels["graph-group"])
	}
	for _, role := range roles {
		if _, _, known := roleOfText(role); n.role == "" && known != unknownKind {
			n.role = role
		}
	}
	commands := slices.Concat(f.Topology.Defaults.Exec, f.Topology.Kinds[kind].Exec, group.Exec, c.Exec)
	for _, command := range commands {
		addClabAddresses(&n, command)
	}
	return n
}

// clabKind distinguishes network operating systems, which have their own kinds, from the rest. A
// Linux container may be a router: its name or group shows it.
func clabKind(kind string) nodeKind {
	switch kind {
	case "linux", "ext-container", "k8s-kind", "generic_vm", "":
		return unknownKind
	case "host", "bridge", "ovs-bridge":
		return otherKind
	}
	return switchKind
}

// addClabAddresses reads "ip addr add 10.0.1.11/24 dev eth1", also as one of several commands.
func addClabAddresses(n *node, command string) {
	words := strings.Fields(strings.NewReplacer(`"`, " ", `'`, " ", ";", " ", "&&", " ").Replace(command))
	for i := 0; i+4 < len(words); i++ {
		switch words[i] {
		case "a", "addr", "address":
			if p, ok := parsePrefix(words[i+2]); ok && words[i+1] == "add" && words[i+3] == "dev" {
				n.addPortAddress(words[i+4], p)
			}
		}
	}
}

// addPortAddress adds an address of a port, or of the node's loopback.
func (n *node) addPortAddress(name string, p netip.Prefix) {
	if name == "lo" {
		n.addresses = append(n.addresses, p.Addr())
		return
	}
	n.ports = append(n.ports, port{name: name, addresses: []netip.Prefix{p}, up: true})
}

// clabOutside are nodes that stand for the machine on which the topology runs.
var clabOutside = []string{"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy"}

func (d *document) addClabLink(l *clabLink, at map[string]int) error {
	if l.Type != "" && l.Type != "veth" || len(l.Endpoints) == 0 && l.Type != "" {
		return nil // to the machine on which the topology runs
	}
	if len(l.Endpoints) != 2 {
		return fmt.Errorf("%d endpoints: expected 2", len(l.Endpoints))
	}
	var ends [2]end
	for i := range l.Endpoints {
		e, err := decodeClabEnd(&l.Endpoints[i])
		if err != nil {
			return err
		}
		if slices.Contains(clabOutside, e.Node) {
			return nil
		}
		n, ok := at[e.Node]
		if !ok {
			return fmt.Errorf("%q: no node has that name", e.Node)
		}
		addresses := []string{e.IPv4, e.IPv6}
		if i < len(l.IPv4) {
			addresses = append(addresses, l.IPv4[i])
		}
		if i < len(l.IPv6) {
			addresses = append(addresses, l.IPv6[i])
		}
		for _, a := range addresses {
			if p, ok := parsePrefix(a); ok {
				d.nodes[n].addPortAddress(e.Interface, p)
			}
		}
		ends[i] = end{node: e.Node, port: e.Interface}
	}
	d.links = append(d.links, link{a: ends[0], b: ends[1], by: byPlan})
	return nil
}

func decodeClabEnd(n *yaml.Node) (e clabEnd, err error) {
	if n.Kind == yaml.MappingNode {
		err = n.Decode(&e)
	} else {
		e.Node, e.Interface, _ = strings.Cut(n.Value, ":")
	}
	if err != nil || e.Node == "" || e.Interface == "" {
		return e, fmt.Errorf("line %d: expected an endpoint such as leaf1:e1-1", n.Line)
	}
	return e, nil
}
