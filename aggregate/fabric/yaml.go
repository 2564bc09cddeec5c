package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	yamlLine      = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownKey    = regexp.MustCompile(`^field (.+) not found in type (\S+)$`)
	yamlWrongType = regexp.MustCompile("cannot unmarshal !!(\\w+)( `.*`)? into (\\S+)")
	yamlTime      = regexp.MustCompile(`parsing time ("[^"]*")( as .*|: .*)`)
)

// YAMLTab is the parser's error for a tab where text may begin.
const YAMLTab = "found character that cannot start any token"

// exampleTime is the form of times in a fabric file.
const exampleTime = "a time such as 2026-01-05T12:00:00Z"

// yamlKinds are plain names for YAML's kinds of values.
var yamlKinds = map[string]string{"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "timestamp": "a time", "seq": "a list", "map": "keys with values"}

// DecodeYAML decodes a text into v, a pointer to a struct, and returns its tree as well, even if it
// has invalid values. Unknown keys, a second document, and numbers with a fraction where whole ones belong are
// errors: the YAML decoder would cut the fraction off. Without a document the error is io.EOF.
func DecodeYAML(text []byte, v any) (tree *yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	c := checked{v: v}
	if err := d.Decode(&c); err != nil {
		return &c.tree.Node, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return &c.tree.Node, errDocuments
	}
	return &c.tree.Node, nil
}

var errDocuments = errors.New("more than one YAML document: expected one")

// checked keeps the tree of a value that is decoded.
type checked struct {
	v    any
	tree node
}

// node is a yaml.Node that decode of checked can set.
type node struct{ yaml.Node }

// UnmarshalYAML implements yaml.Unmarshaler.
func (n *node) UnmarshalYAML(tree *yaml.Node) error {
	n.Node = *tree
	return nil
}

// UnmarshalYAML has this form because yaml.Node.Decode would allow unknown keys.
func (c *checked) UnmarshalYAML(decode func(any) error) error {
	if err := decode(&c.tree); err != nil {
		return err
	}
	err := decode(c.v)
	wrong := &yaml.TypeError{}
	if err != nil && !errors.As(err, &wrong) {
		return err
	}
	if wrong.Errors = append(wrong.Errors, fractions(&c.tree.Node, reflect.TypeOf(c.v))...); len(wrong.Errors) > 0 {
		return wrong
	}
	return nil
}

// fractions returns the errors of numbers with a fraction where a type has whole ones, in the form of
// the YAML decoder. Types that decode themselves are left to do so.
func fractions(n *yaml.Node, t reflect.Type) (wrong []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	n = content(n)
	whole := reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
	case n.Kind == yaml.ScalarNode && whole && n.ShortTag() == "!!float":
		if f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64); err != nil || f != math.Trunc(f) {
			return []string{fmt.Sprintf("line %d: cannot unmarshal !!float `%s` into %s", n.Line, n.Value, t)}
		}
	case n.Kind == yaml.SequenceNode && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		for _, c := range n.Content {
			wrong = append(wrong, fractions(c, t.Elem())...)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 1; i < len(n.Content); i += 2 {
			wrong = append(wrong, fractions(n.Content[i-1], t.Key())...)
			wrong = append(wrong, fractions(n.Content[i], t.Elem())...)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if strings.Contains(options, "inline") {
				wrong = append(wrong, fractions(n, f.Type)...)
			}
			if c := child(n, key); c != nil {
				wrong = append(wrong, fractions(c, f.Type)...)
			}
		}
	}
	return wrong
}

// yamlError turns the errors of DecodeYAML about a tree into SpecErrors.
func yamlError(err error, tree *yaml.Node, name string) error {
	texts := []string{err.Error()}
	if t := (*yaml.TypeError)(nil); errors.As(err, &t) {
		texts = t.Errors
	}
	var p problems
	for _, text := range texts {
		e := &SpecError{File: name, Text: strings.TrimPrefix(text, "yaml: ")}
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			e.Line, _ = strconv.Atoi(m[1])
			e.Text = m[2]
		}
		if m := unknownKey.FindStringSubmatch(e.Text); m != nil {
			e.Text = fmt.Sprintf("unknown key %q: %s", m[1], ExpectedKeys(reflect.TypeFor[Spec](), m[2]))
		} else if plain := PlainTypes(e.Text); plain != e.Text {
			keys := KeysAt(tree, e.Line, plain)
			if e.Line == 0 {
				keys, e.Line = wrongTime(tree, nil)
			}
			e.Path, e.Text = strings.Join(keys, "."), plain
		}
		if e.Text == YAMLTab {
			e.Line = max(e.Line, 1) // the parser counts from 0, and omits that
			e.Text += ": YAML is indented by spaces, not by tabs"
		}
		if len(p.errs) < maxProblems {
			p.errs = append(p.errs, e)
		} else {
			p.more++
		}
	}
	return p.err()
}

// wrongTime returns the path of keys and the line of the first time of a fabric file that is none: the
// decoder stops there, and its error has no line.
func wrongTime(n *yaml.Node, above []string) (keys []string, line int) {
	for i, c := range n.Content {
		path := above
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			path = slices.Concat(above, []string{n.Content[i-1].Value})
		}
		if c.Kind != yaml.ScalarNode {
			if keys, line = wrongTime(c, path); line > 0 {
				return keys, line
			}
			continue
		}
		var t time.Time
		if n.Kind == yaml.MappingNode && slices.Contains([]string{"from", "until"}, n.Content[i-1].Value) && c.Decode(&t) != nil {
			return path, c.Line
		}
	}
	return nil, 0
}

// KeysAt returns the path of keys, outermost first, of the value on a line that the text of an error
// quotes, or else the common path of all values on it.
func KeysAt(tree *yaml.Node, line int, text string) (keys []string) {
	var all, quoted [][]string
	kind := yaml.ScalarNode
	switch {
	case strings.HasPrefix(text, "is a list"):
		kind = yaml.SequenceNode
	case strings.HasPrefix(text, "is keys"):
		kind = yaml.MappingNode
	}
	var walk func(n *yaml.Node, above []string)
	walk = func(n *yaml.Node, above []string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], append(above[:len(above):len(above)], n.Content[i].Value))
			}
		case yaml.DocumentNode, yaml.SequenceNode:
			for _, c := range n.Content {
				walk(c, above)
			}
		}
		if n.Line != line || n.Kind != kind {
			return
		}
		all = append(all, above)
		if kind == yaml.ScalarNode && (strings.Contains(text, strconv.Quote(n.Value)) || strings.Contains(text, "`"+n.Value+"`")) {
			quoted = append(quoted, above)
		}
	}
	walk(tree, nil)
	if len(quoted) > 0 {
		all = quoted
	}
	for i, path := range all {
		if i == 0 {
			keys = path
		}
		for j := range keys {
			if j >= len(path) || path[j] != keys[j] {
				keys = keys[:j]
				break
			}
		}
	}
	return keys
}

// PlainTypes rewords the errors of the YAML decoder for values of the wrong type: they have no names of
// Go types.
func PlainTypes(text string) string {
	text = yamlTime.ReplaceAllString(text, "$1: expected "+exampleTime)
	return yamlWrongType.ReplaceAllStringFunc(text, plainType)
}

func plainType(text string) string {
	parts := yamlWrongType.FindStringSubmatch(text)
	kind, value, into := parts[1], strings.TrimSpace(parts[2]), parts[3]
	if is, ok := yamlKinds[kind]; ok {
		kind = is
	}
	expected := "keys with values"
	switch {
	case strings.HasPrefix(into, "[]"):
		expected = "a list"
	case into == "time.Time":
		expected = exampleTime
	case into == "time.Duration":
		expected = "a time with a unit, such as 10ms"
	case strings.HasPrefix(into, "int"), strings.HasPrefix(into, "uint"):
		expected = "a whole number of the key's range"
	case strings.HasPrefix(into, "float"):
		expected = "a number"
	case into == "bool":
		expected = "true or false"
	case into == "string":
		expected = "text"
	}
	return strings.TrimSpace(value+" is "+kind) + ", expected " + expected
}

// ExpectedKeys says which keys a section of a YAML file has, for the error about an unknown one. file
// is the type of the whole file, section the name that the YAML decoder gives to the section's type.
func ExpectedKeys(file reflect.Type, section string) string {
	keys := keysOf(findType(file, section, make(map[reflect.Type]bool)))
	if len(keys) == 0 {
		return "remove it"
	}
	return "expected one of " + strings.Join(keys, ", ")
}

// findType returns the struct of that name in values of a type, nil if there is none.
func findType(t reflect.Type, name string, seen map[reflect.Type]bool) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	if t.String() == name {
		return t
	}
	for f := range t.Fields() {
		if found := findType(f.Type, name, seen); found != nil {
			return found
		}
	}
	return nil
}

// keysOf returns the keys of a struct in YAML; none of nil.
func keysOf(t reflect.Type) (keys []string) {
	if t == nil {
		return nil
	}
	for f := range t.Fields() {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			keys = append(keys, keysOf(f.Type)...)
		case key != "" && key != "-":
			keys = append(keys, key)
		}
	}
	return keys
}
