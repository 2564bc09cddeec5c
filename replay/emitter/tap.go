package emitter

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

// Tap is a place where frames are captured, and how badly. It stands on links: on
// those behind Ports, on those into what Before names, and on those out of what After
// names. Names are patterns of path.Match: "leaf1:up*" of ports, "spine*" of switches
// and "host3-1" of hosts, whose port is "host3-1:nic". A packet is captured once it has
// crossed the link.
//
// A tap on links into hosts alone stands at the receiver, one on links out of hosts
// alone at the sender, any other one in the middle; the fabric file says so.
type Tap struct {
	// Name is that of the capture interface, and of the file. With Racks it is empty.
	Name string `yaml:"name,omitempty"`
	// Racks stands for a tap for each rack, on the links into its hosts and named
	// after it: what a scenario without taps has.
	Racks  bool     `yaml:"racks,omitempty"`
	Ports  []string `yaml:"ports,omitempty,flow"`
	Before []string `yaml:"before,omitempty,flow"`
	After  []string `yaml:"after,omitempty,flow"`

	// The tap's clock is ahead by Offset at the start, gains Drift nanoseconds in each
	// second, and is off by up to Jitter in either direction for each frame.
	Offset time.Duration `yaml:"offset,omitempty"`
	Drift  int64         `yaml:"drift_ppb,omitempty"`
	Jitter time.Duration `yaml:"jitter,omitempty"`

	Loss      Share `yaml:"loss,omitempty"`      // of frames
	Duplicate Share `yaml:"duplicate,omitempty"` // of the captured ones
	// Reorder is the share of frames that are written after up to 8 later ones, with
	// the times that they had.
	Reorder Share `yaml:"reorder,omitempty"`
	SnapLen int   `yaml:"snap_len,omitempty"` // overrides Scenario.SnapLen unless 0

	// ERSPAN of type 2 or 3 makes the tap the far end of a mirror session, which each
	// frame comes in (draft-foschiano-erspan-03). 0: frames come as they are.
	ERSPAN  int    `yaml:"erspan,omitempty"`
	Session uint16 `yaml:"session,omitempty"` // of ERSPAN: 0 to 1023
}

// Share is a share of frames in parts per million. In scenario files it is written
// "0.5%".
type Share uint32

const wholeShare Share = 1e6

// String is the share as scenario files have it.
func (s Share) String() string {
	return strconv.FormatFloat(float64(s)/1e4, 'f', -1, 64) + "%"
}

// UnmarshalYAML reads a share such as "0.5%" or 0.005.
func (s *Share) UnmarshalYAML(n *yaml.Node) error {
	v, err := csig.ParseQuantity(csig.Ratio, n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	if v > uint64(wholeShare) {
		return fmt.Errorf("line %d: share %s: expected 0%% to 100%%", n.Line, n.Value)
	}
	*s = Share(v)
	return nil
}

// MarshalYAML writes the share as String has it.
func (s Share) MarshalYAML() (any, error) { return s.String(), nil }

// Places of taps, as the fabric file has them.
const (
	placeReceiver = "receiver"
	placeSender   = "sender"
	placeMid      = "mid"
)

// Bounds of a tap.
const (
	maxTaps       = 1024
	maxClockError = time.Hour
	maxDrift      = 1e6 // ppb
	maxJitter     = time.Second
	maxSession    = 1023
	maxPatterns   = 256 // of all taps: each is held against each link
	maxPattern    = 128 // bytes
)

func (t *Tap) check() error {
	switch {
	case t.Racks && (t.Name != "" || len(t.Ports)+len(t.Before)+len(t.After) > 0):
		return errors.New("racks: stands alone: names and places are those of the racks")
	case !t.Racks && t.Name == "":
		return errors.New("name: expected one")
	case !t.Racks && !plainName(t.Name):
		return fmt.Errorf("name %q: names a file: expected letters, digits, '-', '_' and '.'", t.Name)
	case !t.Racks && len(t.Ports)+len(t.Before)+len(t.After) == 0:
		return errors.New("expected ports, before or after")
	case t.Offset.Abs() > maxClockError:
		return fmt.Errorf("offset %s: expected at most %s", t.Offset, maxClockError)
	case t.Drift > maxDrift || t.Drift < -maxDrift:
		return fmt.Errorf("drift_ppb %d: expected at most %d", t.Drift, int64(maxDrift))
	case t.Jitter < 0 || t.Jitter > maxJitter:
		return fmt.Errorf("jitter %s: expected 0 to %s", t.Jitter, maxJitter)
	case t.SnapLen != 0 && (t.SnapLen < minSnapLen || t.SnapLen > maxSnapLen):
		return fmt.Errorf("snap_len %d: expected %d to %d", t.SnapLen, minSnapLen, maxSnapLen)
	case t.ERSPAN != 0 && t.ERSPAN != 2 && t.ERSPAN != 3:
		return fmt.Errorf("erspan %d: expected 2 or 3", t.ERSPAN)
	case t.Session > maxSession:
		return fmt.Errorf("session %d: expected 0 to %d", t.Session, maxSession)
	}
	for _, list := range [][]string{t.Ports, t.Before, t.After} {
		if err := checkPatterns(list); err != nil {
			return err
		}
	}
	return nil
}

func checkPatterns(list []string) error {
	for _, pattern := range list {
		if len(pattern) > maxPattern {
			return fmt.Errorf("pattern of %d bytes: expected at most %d", len(pattern), maxPattern)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// plainName tells whether a name is the same in every file system.
func plainName(name string) bool {
	for i, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
		default:
			return false
		}
	}
	return len(name) <= 64
}

// on tells whether the tap stands on the link behind a port.
func (t *Tap) on(e *point) bool {
	return matches(t.Ports, e.from+":"+e.port) || matches(t.Before, e.to) || matches(t.After, e.from)
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}
