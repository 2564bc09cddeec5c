package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// collectConfig is what collect does beside what the other sections say. The flags of the
// command, and their environment variables, come before it.
type collectConfig struct {
	// Instance names this process among others that store in the same place. Rows are
	// identified by it: it has to stay the same.
	Instance   word             `yaml:"instance,omitempty"`
	Taps       []collectTap     `yaml:"taps,omitempty"`
	Mirrors    []collectMirror  `yaml:"mirrors,omitempty"`
	Checkpoint checkpointConfig `yaml:"checkpoint,omitempty"`
	Ingest     ingestConfig     `yaml:"ingest,omitempty"`
}

// collectTap is one interface to capture from.
type collectTap struct {
	Interface   word               `yaml:"interface"`
	Name        word               `yaml:"name,omitempty"`  // default that of the interface
	Place       place              `yaml:"place,omitempty"` // default as the fabric file says
	Weight      quantity           `yaml:"weight,omitempty"`
	Rings       quantity           `yaml:"rings,omitempty"`  // cores that share the frames
	Blocks      quantity           `yaml:"blocks,omitempty"` // of 256 KiB, in each ring
	Promiscuous bool               `yaml:"promiscuous,omitempty"`
	Direction   choice[directions] `yaml:"direction,omitempty"`
	Snap        quantity           `yaml:"snap,omitempty"` // bytes of a frame to keep
	Timestamps  choice[stamps]     `yaml:"timestamps,omitempty"`
	// Unfiltered takes in frames without CSIG as well, which the kernel drops otherwise:
	// they are counted, at their price.
	Unfiltered bool `yaml:"unfiltered,omitempty"`
	// Mirrors are the mirror sessions that frames come in, such as [erspan]; default as the
	// fabric file says. Tags in others are orphans: anybody can send them.
	Mirrors decode.Mirrors `yaml:"mirrors,omitempty,flow"`
}

// checkpointConfig says when closed windows are made durable, and where marks of how far
// they go are kept.
type checkpointConfig struct {
	Dir   string   `yaml:"dir,omitempty"`
	Every interval `yaml:"every,omitempty"` // 0 is never
}

// defaultCollectConfig is what an empty section means.
func defaultCollectConfig() collectConfig {
	return collectConfig{Checkpoint: checkpointConfig{Every: intervalOf(local.DefaultInterval)}}
}

// merge returns c with the defaults for what it leaves out.
func (c collectConfig) merge() collectConfig {
	d := defaultCollectConfig()
	c.Checkpoint.Every = cmp.Or(c.Checkpoint.Every, d.Checkpoint.Every)
	return c
}

// instance is the name of this process.
func (c *collectConfig) instance() (string, error) {
	if c.Instance.text != "" {
		return c.Instance.text, nil
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "", usageError{fmt.Errorf("name this instance after its host: %w: name it with --instance", err)}
	}
	return name, nil
}

// Bounds of the section.
const (
	maxCollectTaps  = 256
	minCheckpoint   = 10 * time.Millisecond
	maxCheckpoint   = time.Hour
	maxInstanceName = 200
)

// check finds values out of bounds.
func (c *collectConfig) check() error {
	return errors.Join(c.checkCheckpoint("collect"), c.checkTaps("collect"), c.Ingest.check())
}

// checkCheckpoint and checkTaps check what both collect and export have, for the section
// of that name.
func (c *collectConfig) checkCheckpoint(section string) error {
	if i := c.Checkpoint.Every; i.d != 0 && (i.d < minCheckpoint || i.d > maxCheckpoint) {
		return fmt.Errorf("%s%s: checkpoint: every: %s: expected %s to %s, or 0 for never", atLine(i.line), section, i.d, minCheckpoint, maxCheckpoint)
	}
	return nil
}

func (c *collectConfig) checkTaps(section string) error {
	if len(c.Instance.text) > maxInstanceName {
		return fmt.Errorf("%s%s: instance: expected at most %d bytes", atLine(c.Instance.line), section, maxInstanceName)
	}
	if n := len(c.Taps) + len(c.Mirrors); n > maxCollectTaps {
		return fmt.Errorf("%s: %d taps and mirrors: expected at most %d", section, n, maxCollectTaps)
	}
	names := make(map[string]bool)
	for i := range len(c.Taps) + len(c.Mirrors) {
		var name string
		var line int
		var err error
		key := "taps"
		if i < len(c.Taps) {
			t := &c.Taps[i]
			name, line, err = t.name(), t.Interface.line, t.check()
		} else {
			m := &c.Mirrors[i-len(c.Taps)]
			key, name, line, err = "mirrors", m.name(), m.Listen.line, m.check()
		}
		if err != nil {
			return fmt.Errorf("%s%s: %s: %w", atLine(line), section, key, err)
		}
		if names[name] {
			return fmt.Errorf("%s%s: %s: %q is there twice: give the second one a name of its own", atLine(line), section, key, name)
		}
		names[name] = true
	}
	return nil
}

// atLine begins an error about a line, if it is known.
func atLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n)
}

func (t *collectTap) name() string { return cmp.Or(t.Name.text, t.Interface.text) }

func (t *collectTap) check() error {
	if t.Interface.text == "" {
		return fmt.Errorf("tap %q: expected the name of an interface", t.Name.text)
	}
	if err := checkTap(t.name(), t.Weight); err != nil {
		return err
	}
	_, err := capture.NewTap(t.capture())
	return err
}

// checkTap checks what interfaces, mirrors and their sessions have as the taps of a fabric
// file have.
func checkTap(name string, weight quantity) error {
	err := fabric.CheckTaps([]fabric.TapSpec{{Name: name, Place: places[0], Weight: uint32(min(weight.n, math.MaxUint32))}})
	if wrong, ok := errors.AsType[*fabric.SpecError](err); ok {
		return fmt.Errorf("%q: %s", name, wrong.Text)
	}
	return nil
}

var places = fabric.TapPlaces

// place is where a tap stands; the others are words that there are some of as well.
type (
	place      = choice[tapPlaces]
	tapPlaces  struct{}
	directions struct{}
	stamps     struct{}
)

func (tapPlaces) words() []string  { return places }
func (directions) words() []string { return []string{"in", "both"} }
func (stamps) words() []string     { return []string{"auto", "software", "hardware"} }

// choice is one of the words of W.
type choice[W interface{ words() []string }] struct{ word }

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *choice[W]) UnmarshalYAML(n *yaml.Node) error {
	var of W
	if n.Kind != yaml.ScalarNode || !slices.Contains(of.words(), n.Value) {
		return fmt.Errorf("line %d: %q: expected one of %v", n.Line, n.Value, of.words())
	}
	c.word = word{n.Value, n.Line}
	return nil
}

// capture is how the tap's frames are taken in.
func (t *collectTap) capture() capture.TapConfig {
	stamp, _ := capture.ParseStamp(t.Timestamps.text) // has been checked
	return capture.TapConfig{
		Interface: t.Interface.text, Rings: int(t.Rings.n), Blocks: int(t.Blocks.n), SnapLen: uint32(min(t.Snap.n, 1<<20)),
		Outgoing: t.Direction.text == "both", Promiscuous: t.Promiscuous, Stamp: stamp,
	}
}

// word is a text that knows its line.
type word struct {
	text string
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (w *word) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return fmt.Errorf("line %d: expected a text", n.Line)
	}
	*w = word{n.Value, n.Line}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (w word) MarshalYAML() (any, error) { return w.text, nil } //nolint:unparam // the interface has an error

// IsZero implements yaml.IsZeroer.
func (w word) IsZero() bool { return w.text == "" }
