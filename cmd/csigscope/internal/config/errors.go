package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// lineOf returns the line of the value that an error is about, 0 for none. The error begins
// with the path of keys, as in "api: limits: clients 0: " or "taps[1].weight: ". If the file
// lacks a key, it returns the line of the innermost parent in the file.
func lineOf(tree *yaml.Node, text string) (line int) {
	if tree.Kind == yaml.DocumentNode && len(tree.Content) > 0 {
		tree = tree.Content[0]
	}
	for part := range strings.SplitSeq(text, ": ") {
		keys, _, _ := strings.Cut(part, " ")
		for key := range strings.SplitSeq(strings.ReplaceAll(keys, "[", ".["), ".") {
			if tree = below(tree, key); tree == nil {
				return line
			}
			line = tree.Line
		}
	}
	return line
}

// below returns the value of a key such as limits, or the element of an index such as [1].
func below(n *yaml.Node, key string) *yaml.Node {
	index, list := strings.CutPrefix(strings.TrimSuffix(key, "]"), "[")
	if i, err := strconv.Atoi(index); err == nil && list && n.Kind == yaml.SequenceNode && i < len(n.Content) {
		return n.Content[i]
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// nameKeys adds the key to each line of an error, unless the line is about the key itself.
func nameKeys(text string, tree *yaml.Node) string {
	parts := strings.Split(text, "; ")
	for i, part := range parts {
		at := yamlLine.FindString(part)
		line, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(at, "line "), ": "))
		rest := strings.TrimPrefix(part, at)
		if err != nil || strings.HasPrefix(rest, "unknown key") {
			continue
		}
		if keys := keysAt(tree, line, rest); len(keys) > 0 {
			parts[i] = at + strings.Join(keys, ": ") + ": " + rest
		}
	}
	return strings.Join(parts, "; ")
}

// keysAt returns the path of keys, outermost first, of the value on a line that a text quotes,
// or else the common path of all values on it.
func keysAt(tree *yaml.Node, line int, text string) (keys []string) {
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

var (
	yamlTypeName   = regexp.MustCompile(` in type [\w.]+`)
	yamlUnknownKey = regexp.MustCompile(`field (.+) not found in type (.+)`)
	yamlLine       = regexp.MustCompile(`line \d+: `)
	yamlWrongType  = regexp.MustCompile("cannot unmarshal !!(\\w+)( `.*`)? into (\\S+)")
)

// yamlTab is the parser's message for a tab in the indentation.
const yamlTab = "found character that cannot start any token"

// yamlKinds are plain names for YAML's kinds of values.
var yamlKinds = map[string]string{"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "seq": "a list", "map": "keys with values"}

// PlainYAMLError returns the text of a YAML error without the names of Go types. file is the type
// that the YAML was decoded into: for the first unknown key of each section, the text lists the
// keys that the section has.
func PlainYAMLError(err error, file reflect.Type) string {
	text := strings.Replace(err.Error(), "yaml: ", "", 1)
	text = strings.Replace(text, "unmarshal errors:\n", "", 1)
	listed := make(map[string]bool)
	text = yamlUnknownKey.ReplaceAllStringFunc(text, func(match string) string {
		parts := yamlUnknownKey.FindStringSubmatch(match)
		unknown, section := fmt.Sprintf("unknown key %q", parts[1]), parts[2]
		if !listed[section] {
			listed[section] = true
			unknown += ": " + fabric.ExpectedKeys(file, section)
		}
		return unknown
	})
	text = yamlTypeName.ReplaceAllString(text, "")
	text = yamlWrongType.ReplaceAllStringFunc(text, plainYAMLType)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	text = strings.Join(lines, "; ")
	switch {
	case strings.Contains(text, yamlTab):
		if !yamlLine.MatchString(text) {
			text = strings.Replace(text, yamlTab, "line 1: "+yamlTab, 1) // the parser counts from 0 and omits line 0
		}
		text += ": YAML is indented by spaces, not by tabs"
	case strings.Contains(text, `unknown key "devices"`), strings.Contains(text, `unknown key "groups"`):
		text += "; a fabric file goes behind --fabric"
	}
	return text
}

// plainYAMLType rewords the error for a value of the wrong type.
func plainYAMLType(text string) string {
	parts := yamlWrongType.FindStringSubmatch(text)
	kind, value, into := parts[1], strings.TrimSpace(parts[2]), parts[3]
	if is, ok := yamlKinds[kind]; ok {
		kind = is
	}
	expected := "keys with values"
	switch {
	case strings.HasPrefix(into, "[]"):
		expected = "a list"
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

// atLine returns the prefix of an error for a line, empty if it is unknown.
func atLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n)
}
