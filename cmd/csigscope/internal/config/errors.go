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
		if keys := fabric.KeysAt(tree, line, rest); len(keys) > 0 {
			parts[i] = at + strings.Join(keys, ": ") + ": " + rest
		}
	}
	return strings.Join(parts, "; ")
}

var (
	yamlTypeName   = regexp.MustCompile(` in type [\w.]+`)
	yamlUnknownKey = regexp.MustCompile(`field (.+) not found in type (.+)`)
	yamlLine       = regexp.MustCompile(`line \d+: `)
)

// PlainYAMLError returns the text of a YAML error without the names of Go types. file is the type
// that the YAML was decoded into: for the first unknown key of each section, the text lists the
// keys that the section has.
func PlainYAMLError(err error, file reflect.Type) string {
	// A file name may end in "yaml: " too.
	text := strings.TrimPrefix(strings.Replace(err.Error(), ": yaml: ", ": ", 1), "yaml: ")
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
	text = fabric.PlainTypes(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	text = strings.Join(lines, "; ")
	switch {
	case strings.Contains(text, fabric.YAMLTab):
		if !yamlLine.MatchString(text) {
			text = strings.Replace(text, fabric.YAMLTab, "line 1: "+fabric.YAMLTab, 1) // the parser counts from 0 and omits line 0
		}
		text += ": YAML is indented by spaces, not by tabs"
	case strings.Contains(text, `unknown key "devices"`), strings.Contains(text, `unknown key "groups"`):
		text += "; a fabric file goes behind --fabric"
	}
	return text
}

// atLine returns the prefix of an error for a line, empty if it is unknown.
func atLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n)
}
