package emitter

import (
	"errors"
	"fmt"
	"path/filepath"
)

// taps are the capture files, one for each rack or one for all.
type taps struct {
	files  []*captureFile
	single bool
	names  []string
}

func createTaps(s *Scenario, dir string) (*taps, error) {
	t := &taps{single: s.SingleFile, names: tapNames(s)}
	comment := fmt.Sprintf("simulated: scenario %s, seed %d, %s", s.Name, s.Seed, s.Layout)
	extension := ".pcapng"
	if s.Classic {
		extension = ".pcap"
	}
	create := func(base string, names ...string) error {
		c, err := createCapture(filepath.Join(dir, base+extension), s.Classic, s.SnapLen, comment, names)
		if err == nil {
			t.files = append(t.files, c)
		}
		return err
	}
	if t.single {
		if err := create(s.Name, t.names...); err != nil {
			return nil, err
		}
		return t, nil
	}
	for _, name := range t.names {
		if err := create(name, name); err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

// packet writes what the tap of a rack sees.
func (t *taps) packet(f *framer, s *segment, ns int64) error {
	if t.single {
		return t.files[0].packet(f, s, ns, uint32(s.rack))
	}
	return t.files[s.rack].packet(f, s, ns, 0)
}

func (t *taps) paths() []string {
	paths := make([]string, len(t.files))
	for i, c := range t.files {
		paths[i] = c.path
	}
	return paths
}

func (t *taps) close() error {
	var errs []error
	for _, c := range t.files {
		errs = append(errs, c.close())
	}
	t.files = nil
	return errors.Join(errs...)
}
