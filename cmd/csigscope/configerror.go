package main

import (
	"regexp"
	"strings"
)

var (
	yamlTypeName   = regexp.MustCompile(` in type [\w.]+`)
	yamlUnknownKey = regexp.MustCompile(`field (\S+) not found`)
	yamlLine       = regexp.MustCompile(`line \d+: `)
	yamlWrongType  = regexp.MustCompile("cannot unmarshal !!(\\w+)( `.*`)? into (\\S+)")
)

// yamlTab is what the parser says of a tab where text may begin.
const yamlTab = "found character that cannot start any token"

// yamlKinds are the kinds of values as YAML names them.
var yamlKinds = map[string]string{"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "seq": "a list", "map": "keys with values"}

// plainYAMLError says a YAML mistake without the names of Go types. known is the command
// that prints the keys that there are.
func plainYAMLError(err error, known string) string {
	text := strings.Replace(err.Error(), "yaml: ", "", 1)
	text = strings.Replace(text, "unmarshal errors:\n", "", 1)
	text = yamlTypeName.ReplaceAllString(text, "")
	text = yamlUnknownKey.ReplaceAllString(text, `unknown key "$1" (see csigscope `+known+` for the known ones)`)
	text = yamlWrongType.ReplaceAllStringFunc(text, plainYAMLType)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	text = strings.Join(lines, "; ")
	switch {
	case strings.Contains(text, yamlTab):
		if !yamlLine.MatchString(text) {
			text = strings.Replace(text, yamlTab, "line 1: "+yamlTab, 1) // the parser counts from 0, and leaves that out
		}
		text += ": YAML is indented by spaces, not by tabs"
	case strings.Contains(text, `unknown key "devices"`), strings.Contains(text, `unknown key "groups"`):
		text += "; a fabric file goes behind --fabric"
	}
	return text
}

// plainYAMLType says that a value is of another type than its key has.
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
