package fabric

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SpecError is one thing that is wrong with a fabric: where it is, what was
// expected, and what to do about it.
type SpecError struct {
	File string // empty when the specification was not read from a file
	Line int    // from 1; 0 when it is not known
	Path string // "devices[3].ports[1].peer", empty when only the line is known
	Text string
}

// Error is "fabric.yaml:12: devices[3].ports[1].peer: text".
func (e *SpecError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
		if e.Line > 0 {
			b.WriteString(strconv.Itoa(e.Line) + ":")
		}
		b.WriteByte(' ')
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	return b.String() + e.Text
}

// maxProblems bounds how many errors and warnings one check reports.
const maxProblems = 20

// problems collects what a check finds, so that a user sees more than the first
// mistake at once.
type problems struct {
	errs     []error
	more     int
	warnings []string
	muted    int
}

func (p *problems) errorf(path, format string, args ...any) {
	if len(p.errs) == maxProblems {
		p.more++
		return
	}
	p.errs = append(p.errs, &SpecError{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (p *problems) warnf(format string, args ...any) {
	if len(p.warnings) == maxProblems {
		p.muted++
		return
	}
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// err joins the errors, one a line; nil without any.
func (p *problems) err() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, fmt.Errorf("and %d more errors", p.more))...)
	}
	return errors.Join(p.errs...)
}

func (p *problems) warningList() []string {
	if p.muted > 0 {
		return append(p.warnings, fmt.Sprintf("and %d more warnings", p.muted))
	}
	return p.warnings
}

// addLines tells the errors of a check the file and, from its text, their lines.
func addLines(err error, text []byte, name string) error {
	var doc yaml.Node
	if e := yaml.Unmarshal(text, &doc); e != nil {
		return fmt.Errorf("parse %s: %w", name, e)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, e := range joined.Unwrap() {
		if s := (*SpecError)(nil); errors.As(e, &s) {
			s.File, s.Line = name, lineOf(&doc, s.Path)
		}
	}
	return err
}

// lineOf is the line of the deepest node on a path like "devices[3].ports[1].peer"
// that the document has: a missing key is reported where it is missed.
func lineOf(doc *yaml.Node, path string) int {
	n := doc
	for step := range strings.SplitSeq(path, ".") {
		key, rest, _ := strings.Cut(step, "[")
		next := child(n, key)
		if next == nil {
			break
		}
		n = next
		index, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
		if list := items(n); err == nil && index < len(list) {
			n = list[index]
		}
	}
	return n.Line
}

// child is the value of a key of a mapping, nil without it.
func child(n *yaml.Node, key string) *yaml.Node {
	n = content(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return content(n.Content[i+1])
		}
	}
	return nil
}

// items are the elements of a sequence, without the null ones, which the decoder
// leaves out too.
func items(n *yaml.Node) []*yaml.Node {
	n = content(n)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	list := make([]*yaml.Node, 0, len(n.Content))
	for _, e := range n.Content {
		if e = content(e); e != nil && e.ShortTag() != "!!null" {
			list = append(list, e)
		}
	}
	return list
}

// content looks through documents and aliases.
func content(n *yaml.Node) *yaml.Node {
	for n != nil {
		switch {
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
			n = n.Content[0]
		default:
			return n
		}
	}
	return nil
}

var (
	yamlLine   = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownKey = regexp.MustCompile(`^field (.+) not found in type (\S+)$`)
)

// yamlTab is what the parser says of a tab where text may begin.
const yamlTab = "found character that cannot start any token"

// yamlError turns the errors of the YAML decoder into SpecErrors.
func yamlError(err error, name string) error {
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
			e.Text = fmt.Sprintf("unknown key %q: %s", m[1], expectedKeys(m[2]))
		}
		if e.Text == yamlTab {
			e.Line = max(e.Line, 1) // the parser counts from 0, and leaves that out
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

// expectedKeys lists the keys of a mapping whose Go type the YAML decoder named.
func expectedKeys(typeName string) string {
	t := findType(reflect.TypeFor[Spec](), typeName)
	if t == nil {
		return "remove it"
	}
	var keys []string
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		keys = append(keys, key)
	}
	return "expected one of " + strings.Join(keys, ", ")
}

func findType(t reflect.Type, name string) reflect.Type {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.String() == name {
		if t.String() != name {
			return nil
		}
		return t
	}
	for f := range t.Fields() {
		if found := findType(f.Type, name); found != nil {
			return found
		}
	}
	return nil
}
