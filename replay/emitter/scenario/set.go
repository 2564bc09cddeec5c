package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Set returns the scenario with some keys set, checked like a file. An assignment is "key=value".
// The key is a path in the YAML that Dump writes, such as uplink_speed, swift.target,
// rack_uplink_speed.5 or workloads[0].rate; the value is YAML. A list of one entry may be given as
// the entry alone, and an index past the end of a list appends to it. Later assignments override
// earlier ones.
//
// The keys leaves, spines and hosts_per_leaf resize the fabric first, like WithSize: racks that the
// scenario names move in proportion.
//
// Errors begin with "set" and the key, if one is wrong by itself; for an unknown key, the error
// suggests the nearest ones.
func (s Scenario) Set(assignments ...string) (Scenario, error) {
	size := map[string]int{"leaves": 0, "spines": 0, "hosts_per_leaf": 0}
	var rest []assignment
	for _, text := range assignments {
		a, err := parseAssignment(text)
		if err != nil {
			return s, err
		}
		if _, sized := size[a.key]; !sized {
			rest = append(rest, a)
			continue
		}
		if size[a.key], err = strconv.Atoi(a.value.Value); err != nil || size[a.key] < 1 {
			return s, fmt.Errorf("set %s: %q: expected a whole number of at least 1", a.key, a.value.Value)
		}
	}
	s = s.WithSize(size["leaves"], size["spines"], size["hosts_per_leaf"])
	for i := range rest {
		var err error
		if s, err = s.set(&rest[i]); err != nil {
			return s, fmt.Errorf("set %s: %w", rest[i].key, err)
		}
	}
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		return s, fmt.Errorf("set: %w", err)
	}
	return s, nil
}

// assignment is a key with its new value.
type assignment struct {
	key   string
	steps []string // parts of the key: names, and indexes such as [0]
	value *yaml.Node
}

var keyParts = regexp.MustCompile(`\[\d+\]|[^.\[\]]+`)

func parseAssignment(text string) (a assignment, err error) {
	key, value, found := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !found || key == "" {
		return a, fmt.Errorf("set %q: expected KEY=VALUE, such as duration=5s", text)
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(value), &document); err != nil {
		return a, fmt.Errorf("set %s: %q: %w", key, value, withoutLines(err))
	}
	if len(document.Content) != 1 || document.Content[0].Tag == "!!null" {
		return a, fmt.Errorf("set %s: expected a value behind the =", key)
	}
	a = assignment{key: key, steps: keyParts.FindAllString(key, -1), value: document.Content[0]}
	kind, err := typeOf(a.steps)
	if err != nil {
		return a, fmt.Errorf("set %s: %w", key, err)
	}
	if kind.Kind() == reflect.Slice && a.value.Kind != yaml.SequenceNode {
		a.value = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{a.value}}
	}
	return a, nil
}

// typeOf returns the type of the value at a key.
func typeOf(steps []string) (reflect.Type, error) {
	at := reflect.TypeFor[scenarioFile]()
	for i, step := range steps {
		if at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		_, indexed := indexOf(step)
		switch {
		case at.Kind() == reflect.Slice && indexed, at.Kind() == reflect.Map && !indexed:
			at = at.Elem()
			continue
		case at.Kind() == reflect.Slice:
			return nil, fmt.Errorf("%q is a list: expected the number of an entry, such as [0]", joined(steps[:i]))
		case indexed:
			return nil, fmt.Errorf("%q is no list", joined(steps[:i]))
		}
		known := keysOf(at)
		if len(known) == 0 {
			return nil, fmt.Errorf("%q has no keys below it", joined(steps[:i]))
		}
		if known[step] == nil || i == 0 && step == "base" {
			return nil, fmt.Errorf("unknown key %q: did you mean %s?", step, strings.Join(nearest(step, joined(steps[:i]), known), " or "))
		}
		at = known[step]
	}
	return at, nil
}

// indexOf parses the number in a step such as [3].
func indexOf(step string) (n int, indexed bool) {
	digits, indexed := strings.CutPrefix(step, "[")
	if indexed {
		n, _ = strconv.Atoi(strings.TrimSuffix(digits, "]")) // on overflow, the largest int
	}
	return n, indexed
}

// joined returns the key made of steps.
func joined(steps []string) string {
	return strings.ReplaceAll(strings.Join(steps, "."), ".[", "[")
}

// keysOf returns the keys of a type with the types of their values, none for a type without keys.
func keysOf(t reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return keys
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			maps.Copy(keys, keysOf(f.Type))
		case name != "" && name != "-":
			keys[name] = f.Type
		}
	}
	return keys
}

// maxNearest is the number of suggestions for an unknown key.
const maxNearest = 3

// nearest returns the keys most similar to a wrong one, among its siblings and one level below
// them, such as workloads[0].rate.
func nearest(wrong, above string, beside map[string]reflect.Type) []string {
	type candidate struct {
		key  string
		like float64
	}
	var list []candidate
	add := func(name, key string) {
		if above != "" {
			key = above + "." + key
		}
		list = append(list, candidate{key, likeness(wrong, name)})
	}
	for name, t := range beside {
		if name == "base" && above == "" {
			continue // assignments change a scenario whose base is resolved already
		}
		add(name, name)
		prefix := name + "."
		if t.Kind() == reflect.Slice {
			t, prefix = t.Elem(), name+"[0]."
		}
		for below := range keysOf(t) {
			add(below, prefix+below)
		}
	}
	slices.SortFunc(list, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.like, x.like), cmp.Compare(len(x.key), len(y.key)), cmp.Compare(x.key, y.key))
	})
	var keys []string
	for _, c := range list[:min(len(list), maxNearest)] {
		keys = append(keys, c.key)
	}
	return keys
}

// likeness returns the share of letter pairs that two words have in common, 0 to 1.
func likeness(a, b string) float64 {
	pairs := map[string]int{}
	for i := range len(a) - 1 {
		pairs[a[i:i+2]]++
	}
	common := 0
	for i := range len(b) - 1 {
		if pair := b[i : i+2]; pairs[pair] > 0 {
			pairs[pair]--
			common++
		}
	}
	return 2 * float64(common) / float64(max(len(a)+len(b)-2, 1))
}

// set applies one assignment, like a file that is based on the scenario and has only this key.
func (s Scenario) set(a *assignment) (Scenario, error) {
	var tree yaml.Node
	if err := tree.Encode(s.file()); err != nil {
		return s, err
	}
	name := a.steps[0]
	value, err := replaced(child(&tree, name), a.steps[1:], a.value)
	if err != nil {
		return s, err
	}
	text, err := yaml.Marshal(mapping(name, value))
	if err != nil {
		return s, err
	}
	f := scenarioFile{Scenario: s}
	f.RackUplinkSpeed = maps.Clone(s.RackUplinkSpeed) // the decoder adds to maps
	if name == "format" || name == "profile" {
		f.Locator = "" // the layout chooses
	}
	if _, err := fabric.DecodeYAML(text, &f); err != nil {
		return s, withoutLines(err)
	}
	next, err := f.scenario()
	next.Locator = cmp.Or(next.Locator, s.Locator)
	return next, err
}

// replaced returns node with another value at the key below it. node is nil if it does not exist
// yet.
func replaced(node *yaml.Node, below []string, value *yaml.Node) (*yaml.Node, error) {
	if len(below) == 0 {
		return value, nil
	}
	index, indexed := indexOf(below[0])
	if !indexed {
		if node == nil || node.Kind != yaml.MappingNode {
			node = &yaml.Node{Kind: yaml.MappingNode}
		}
		next, err := replaced(child(node, below[0]), below[1:], value)
		if err != nil {
			return nil, err
		}
		if at := slices.IndexFunc(node.Content, func(n *yaml.Node) bool { return n.Value == below[0] }); at >= 0 && at%2 == 0 {
			node.Content[at+1] = next
		} else {
			node.Content = append(node.Content, mapping(below[0], next).Content...)
		}
		return node, nil
	}
	if node == nil || node.Kind != yaml.SequenceNode {
		node = &yaml.Node{Kind: yaml.SequenceNode}
	}
	if index > len(node.Content) {
		return nil, fmt.Errorf("the list has %d entries: expected an index of at most %d", len(node.Content), len(node.Content))
	}
	if index == len(node.Content) {
		node.Content = append(node.Content, nil)
	}
	next, err := replaced(node.Content[index], below[1:], value)
	node.Content[index] = next
	return node, err
}

// child returns the value of a mapping's key, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func mapping(key string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, value}}
}

var lineNumber = regexp.MustCompile(`line \d+: `)

// withoutLines removes line numbers from a decoder error, since an assignment has no lines.
func withoutLines(err error) error {
	text := err.Error()
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		text = strings.Join(wrong.Errors, "; ")
	}
	return errors.New(lineNumber.ReplaceAllString(strings.TrimPrefix(text, "yaml: "), ""))
}
