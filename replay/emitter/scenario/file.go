package scenario

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxScenarioFile is the maximum size of a scenario file in bytes.
const maxScenarioFile = 1 << 20

// scenarioFile is the form of a scenario in files.
type scenarioFile struct {
	// Base names a built-in scenario that the file changes. Lists replace the base's;
	// rack_uplink_speed adds to it.
	Base     string   `yaml:"base,omitempty"`
	Format   string   `yaml:"format,omitempty"`
	Profile  string   `yaml:"profile,omitempty"`
	Signals  []string `yaml:"signals,omitempty,flow"`
	Scenario `yaml:",inline"`
}

// FileType is the type whose fields are the keys of scenario files, for messages about unknown keys.
func FileType() reflect.Type { return reflect.TypeFor[scenarioFile]() }

// Load reads a scenario file: the fields of Scenario in YAML, with speeds as "100Gbps" and times as
// "10ms". A comment in the first line becomes Summary unless the file has that key. Unknown keys
// are errors with line numbers.
func Load(path string) (Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario: %w", err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads a scenario file from r. Errors call it name; a relative fabric file is relative to
// name's folder.
func Parse(r io.Reader, name string) (Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxScenarioFile+1))
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario %q: %w", name, err)
	}
	if len(text) > maxScenarioFile {
		return Scenario{}, fmt.Errorf("load scenario %q: is larger than %d bytes", name, maxScenarioFile)
	}
	s, err := parse(text)
	if err == nil {
		if s.FabricFile != "" && !filepath.IsAbs(s.FabricFile) {
			s.FabricFile = filepath.Join(filepath.Dir(name), s.FabricFile)
		}
		s = s.WithDefaults()
		err = s.Check()
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("load scenario %q: %w", name, err)
	}
	return s, nil
}

func parse(text []byte) (Scenario, error) {
	type onlyBase struct { // errors name the type
		Base string `yaml:"base"`
	}
	var base onlyBase
	if err := yaml.Unmarshal(text, &base); err != nil {
		return Scenario{}, err
	}
	var f scenarioFile
	if base.Base != "" {
		s, err := Named(base.Base)
		if err != nil {
			return Scenario{}, fmt.Errorf("base: %w", err)
		}
		f.Scenario = s
	}
	f.Summary = cmp.Or(description(text), f.Summary)
	f.Locator = ""
	if _, err := fabric.DecodeYAML(text, &f); err != nil && !errors.Is(err, io.EOF) {
		return Scenario{}, err
	}
	return f.scenario()
}

// description returns the comment in a file's first line, a one-line summary of the file.
func description(text []byte) string {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	comment, ok := bytes.CutPrefix(line, []byte("#"))
	if !ok {
		return ""
	}
	return string(bytes.TrimSpace(comment))
}

// scenario parses the fields that have names in the file and numbers in Scenario.
func (f *scenarioFile) scenario() (Scenario, error) {
	s := f.Scenario
	layout := s.WithDefaults().Layout
	var err error
	if f.Format != "" {
		if layout.Format, err = csig.ParseFormat(f.Format); err != nil {
			return s, fmt.Errorf("format: %w", err)
		}
	}
	if f.Profile != "" {
		if layout.Profile, err = csig.ParseProfile(f.Profile); err != nil {
			return s, fmt.Errorf("profile: %w", err)
		}
	}
	if f.Signals != nil {
		s.Signals = nil
	}
	if f.Format != "" || f.Profile != "" {
		s = s.WithLayout(layout)
	}
	if f.Locator != "" {
		s.Locator = f.Locator
	}
	for _, name := range f.Signals {
		signal, err := csig.ParseSignal(name)
		if err != nil {
			return s, fmt.Errorf("signals: %w", err)
		}
		s.Signals = append(s.Signals, signal)
	}
	return s, nil
}

// file returns the scenario in file form, complete and without a base.
func (s Scenario) file() *scenarioFile {
	f := &scenarioFile{Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String(), Scenario: s}
	for _, signal := range s.Signals {
		f.Signals = append(f.Signals, signal.String())
	}
	return f
}

// Dump writes a scenario as a file that Parse can read, complete and without a base.
func Dump(w io.Writer, s Scenario) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(s.WithDefaults().file()), e.Close()); err != nil {
		return fmt.Errorf("dump scenario %q: %w", s.Name, err)
	}
	return nil
}

// ID identifies the output of a scenario: equal IDs give equal bytes. It is a hash of the
// scenario's file, and of the fabric file if the scenario names one.
func (s Scenario) ID() (uint64, error) {
	h := xxhash.New()
	if err := Dump(h, s); err != nil {
		return 0, err
	}
	if s.FabricFile != "" {
		text, err := os.ReadFile(s.FabricFile)
		if err != nil {
			return 0, fmt.Errorf("identify scenario %q: %w", s.Name, err)
		}
		_, _ = h.Write(text)
	}
	return h.Sum64(), nil
}

// library holds the built-in scenarios and the kinds of devices and faults. The first line of each
// file describes it. The scenarios use a scaled model, with scaled speeds and a scaled delay
// threshold, so that seconds of a whole fabric fit files of some megabytes.
//
//go:embed builtin devices faults
var library embed.FS

const extension = ".yaml"

// Names lists the built-in scenarios in alphabetical order.
func Names() []string { return fileNames("builtin") }

func fileNames(folder string) []string {
	files, err := fs.Glob(library, folder+"/*"+extension)
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), extension)
	}
	slices.Sort(files) // by name, since "a-b.yaml" sorts before "a.yaml"
	return files
}

// Named returns a copy of a built-in scenario. The caller may change it.
func Named(name string) (Scenario, error) {
	if names := Names(); !slices.Contains(names, name) {
		return Scenario{}, fmt.Errorf("find scenario %q: expected one of %s", name, strings.Join(names, ", "))
	}
	text, err := library.ReadFile("builtin/" + name + extension)
	if err != nil {
		return Scenario{}, fmt.Errorf("find scenario %q: %w", name, err)
	}
	return Parse(bytes.NewReader(text), name+extension)
}

// List writes one line about each built-in scenario.
func List(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range Names() {
		s, err := Named(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(tw, "%s\t%s\n", name, s.Summary)
	}
	return tw.Flush()
}

// Kind describes a kind of Behavior in one line, with an example entry.
type Kind struct {
	Description string
	Example     Behavior
}

// DeviceKinds lists the kinds of Scenario.Devices in alphabetical order.
func DeviceKinds() []Kind { return kindsIn("devices") }

// FaultKinds lists the kinds of Scenario.Faults in alphabetical order.
func FaultKinds() []Kind { return kindsIn("faults") }

// ListKinds returns an indented line for each kind.
func ListKinds(kinds []Kind) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		fmt.Fprintf(w, "    %s\t%s\n", k.Example.Kind, k.Description)
	}
	_ = w.Flush() // a builder never fails
	return strings.TrimSuffix(b.String(), "\n")
}

// kindsIn lists the kinds in a folder. It panics if a file has an error, since the files are part
// of the binary.
func kindsIn(folder string) []Kind {
	var list []Kind
	for _, name := range fileNames(folder) {
		path := folder + "/" + name + extension
		text, err := library.ReadFile(path)
		if err != nil {
			panic(err) // the file is part of the binary
		}
		k := Kind{Description: description(text)}
		if _, err := fabric.DecodeYAML(text, &k.Example); err != nil {
			panic(fmt.Errorf("%s: %w", path, err)) // a bug in this package
		}
		list = append(list, k)
	}
	return list
}
