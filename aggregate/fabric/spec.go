package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// SpecVersion is the version of the fabric file that this package reads and writes.
const SpecVersion = 1

// Spec is the fabric file as users write it: the parts of the network, the layouts of its tags, and
// the places of its taps. New checks it.
type Spec struct {
	Version int    `yaml:"version"` // SpecVersion
	Name    string `yaml:"name,omitempty"`

	// CSIG overlays csig.DefaultSpec.
	CSIG csig.Spec `yaml:"csig,omitempty"`

	Groups  []GroupSpec  `yaml:"groups,omitempty"` // in the order of matrix axes
	Devices []DeviceSpec `yaml:"devices,omitempty"`
	Hosts   []HostSpec   `yaml:"hosts,omitempty"`
	Taps    []TapSpec    `yaml:"taps,omitempty"`

	// Evidence of the paths of flows, beyond the topology.
	Paths []PathSpec `yaml:"paths,omitempty"`
	ECMP  []ECMPSpec `yaml:"ecmp,omitempty"`
}

// GroupSpec is a named set of addresses. An address belongs to the group with the longest prefix
// that holds it.
type GroupSpec struct {
	Name     string   `yaml:"name"`
	Level    string   `yaml:"level"`            // host, rack, pod or cluster
	Parent   string   `yaml:"parent,omitempty"` // a group of a higher level
	Prefixes []string `yaml:"prefixes,omitempty"`
}

// DeviceSpec is a switch.
type DeviceSpec struct {
	Name  string `yaml:"name"`
	Stage string `yaml:"stage"`        // as in the locator's value table: leaf, spine, ...
	ID    uint32 `yaml:"id,omitempty"` // device_id of locator metadata; 0: none
	// HashSeed is the device's seed for the hash of Spec.ECMP.
	HashSeed uint32 `yaml:"hash_seed,omitempty"`

	Ports []PortSpec `yaml:"ports"`
}

// PortSpec is an egress port of a switch.
type PortSpec struct {
	Name string `yaml:"name"`
	// ID is the port_id of locator metadata; 0: none. It is unique in the fabric if a locator has a
	// port_id without a device_id, else in its device.
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

// TapSpec describes a point where frames are captured.
type TapSpec struct {
	Name   string `yaml:"name"`
	Place  string `yaml:"place"`            // receiver, sender or mid
	Weight uint32 `yaml:"weight,omitempty"` // frames that one captured frame stands for; 0: 1
	// At are devices ("spine1") and ports ("leaf1:up2") of a tap in the middle of the fabric: each
	// frame passes one of them, which is evidence of the path of its flow.
	At []string `yaml:"at,omitempty,flow"`
	// Mirrors are the mirror sessions in which frames come here. A tag in any other session is an
	// orphan: anybody can send one.
	Mirrors decode.Mirrors `yaml:"mirrors,omitempty,flow"`
}

// Write writes the specification as YAML that Parse can read, with one line for each port.
func (s *Spec) Write(w io.Writer) error { return s.WriteCommented(w, "", nil) }

// WriteCommented is Write with a comment at the head of the file, and comments before the values
// at paths such as devices[3].ports[1].
func (s *Spec) WriteCommented(w io.Writer, head string, comments map[string]string) error {
	return s.encode(&boundedWriter{w, maxFile}, head, comments)
}

// boundedWriter fails for a fabric file that Parse would refuse.
type boundedWriter struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("larger than %d MiB", maxFile>>20)
	}
	return b.w.Write(p)
}

// partLen is the number of elements of a list that are made into a tree of YAML nodes at once. A tree takes
// 200 times as much memory as its text.
const partLen = 16

func (s *Spec) encode(w io.Writer, head string, comments map[string]string) error {
	if err := encodePart(w, &Spec{Version: s.Version, Name: s.Name, CSIG: s.CSIG}, func(doc *yaml.Node) {
		doc.HeadComment = head
		annotate(doc, "", comments)
	}); err != nil {
		return err
	}
	for _, list := range []struct {
		key  string
		len  int
		part func(from, to int) *Spec
	}{
		{"groups", len(s.Groups), func(from, to int) *Spec { return &Spec{Groups: s.Groups[from:to]} }},
		{"devices", len(s.Devices), func(from, to int) *Spec { return &Spec{Devices: s.Devices[from:to]} }},
		{"hosts", len(s.Hosts), func(from, to int) *Spec { return &Spec{Hosts: s.Hosts[from:to]} }},
		{"taps", len(s.Taps), func(from, to int) *Spec { return &Spec{Taps: s.Taps[from:to]} }},
		{"paths", len(s.Paths), func(from, to int) *Spec { return &Spec{Paths: s.Paths[from:to]} }},
		{"ecmp", len(s.ECMP), func(from, to int) *Spec { return &Spec{ECMP: s.ECMP[from:to]} }},
	} {
		for from := 0; from < list.len; from += partLen {
			var text bytes.Buffer
			if err := encodePart(&text, list.part(from, min(from+partLen, list.len)), func(doc *yaml.Node) {
				doc.Content = doc.Content[2:] // without the version
				for i, n := range child(doc, list.key).Content {
					annotate(n, fmt.Sprintf("%s[%d]", list.key, from+i), comments)
				}
			}); err != nil {
				return err
			}
			if from > 0 {
				_, _ = text.ReadBytes('\n') // the key
			}
			if _, err := text.WriteTo(w); err != nil {
				return fmt.Errorf("write fabric: %w", err)
			}
		}
	}
	return nil
}

// encodePart writes a part of a fabric as YAML, after edit has changed its tree.
func encodePart(w io.Writer, part *Spec, edit func(*yaml.Node)) error {
	var doc yaml.Node
	if err := doc.Encode(part); err != nil {
		return fmt.Errorf("write fabric: %w", err)
	}
	styleSpec(&doc)
	edit(&doc)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&doc), e.Close()); err != nil {
		return fmt.Errorf("write fabric: %w", err)
	}
	return nil
}

// annotate sets the comments of the values at and below a path.
func annotate(n *yaml.Node, path string, comments map[string]string) {
	if comment, ok := comments[path]; ok {
		n.HeadComment = comment
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			annotate(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."), comments)
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			annotate(e, fmt.Sprintf("%s[%d]", path, i), comments)
		}
	}
}

// styleSpec formats the document for readers: lists of small things on one line each, tag protocol
// identifiers in hexadecimal.
func styleSpec(doc *yaml.Node) {
	for _, d := range items(child(doc, "devices")) {
		oneLine(child(d, "ports"))
	}
	for _, section := range []string{"groups", "hosts", "taps", "paths", "ecmp"} {
		oneLine(child(doc, section))
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

func oneLine(list *yaml.Node) {
	for _, n := range items(list) {
		n.Style = yaml.FlowStyle
	}
}

// maxFile bounds a fabric file in bytes, so that the store's outbox has room for its text. One of
// 19 MB, with 10,000 switches and 207,000 ports, takes 4 s of one core and 0.7 GB to read.
const maxFile = 32 << 20

// Load reads and checks the fabric file at path.
func Load(path string) (*Spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load fabric: %w", err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads and checks a fabric file of at most 32 MiB. Unknown keys are errors. name is the
// file's name in errors; those about the content are SpecErrors and have line numbers.
func Parse(r io.Reader, name string) (*Spec, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("read %s: larger than %d MiB", name, maxFile>>20)
	}
	s := new(Spec)
	tree, err := DecodeYAML(text, s)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("parse %s: is empty: expected a fabric with version: %d", name, SpecVersion)
	case errors.Is(err, errDocuments):
		return nil, fmt.Errorf("parse %s: %w", name, err)
	case err != nil:
		return nil, yamlError(err, tree, name)
	}
	if err := s.check(); err != nil {
		return nil, addLines(err, tree, name)
	}
	return s, nil
}

// SpecError is one error in a fabric: its position in the file, the expectation, and the remedy.
type SpecError struct {
	File string // empty if the specification was not read from a file
	Line int    // from 1; 0 if unknown
	Path string // "devices[3].ports[1].peer", empty if only the line is known
	Text string
}

// Error returns "fabric.yaml:12: devices[3].ports[1].peer: text".
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

// problems collects the results of a check, so that a user sees more than the first mistake at
// once.
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

// err joins the errors, one on each line; nil if there are none.
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

// addLines adds the file and, from its tree, the lines to the errors of a check.
func addLines(err error, tree *yaml.Node, name string) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, e := range joined.Unwrap() {
		if s := (*SpecError)(nil); errors.As(e, &s) {
			s.File, s.Line = name, lineOf(tree, s.Path)
		}
	}
	return err
}

// lineOf returns the line of the deepest existing node on a path like "devices[3].ports[1].peer": a
// missing key is reported where it should be.
func lineOf(n *yaml.Node, path string) int {
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

// child returns the value of a key of a mapping, nil if it is missing.
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

// items returns the elements of a sequence without null ones, which the decoder also omits.
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

// content resolves documents and aliases.
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
