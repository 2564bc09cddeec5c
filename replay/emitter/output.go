package emitter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
)

// checkOutput checks how packets travel and where they are captured, as far as the
// scenario alone tells.
func (s *Scenario) checkOutput() error {
	if _, _, err := s.styles(); err != nil {
		return err
	}
	if s.Compress != "" && s.Compress != compressGzip && s.Compress != compressZstd {
		return fmt.Errorf("compress %q: expected %s, %s or nothing", s.Compress, compressGzip, compressZstd)
	}
	patterns := len(s.Counters)
	if err := checkPatterns(s.Counters); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	for i := range s.Taps {
		t := &s.Taps[i]
		if err := t.check(); err != nil {
			return fmt.Errorf("taps[%d]: %w", i, err)
		}
		patterns += len(t.Ports) + len(t.Before) + len(t.After)
	}
	if patterns > maxPatterns {
		return fmt.Errorf("taps and counters: %d patterns: expected at most %d", patterns, maxPatterns)
	}
	return nil
}

// versions are the IP versions that hosts have addresses of, and whether what is
// inside of tunnels between them has addresses of its own.
func (s *Scenario) versions() (list []uint8, tenants bool) {
	styles, _, err := s.styles()
	if err != nil {
		return []uint8{4}, false // the check has failed before
	}
	for _, st := range styles {
		list = append(list, st.ip)
		if st.encap.outerIP() {
			list = append(list, st.underlay)
		}
		tenants = tenants || st.tenants()
	}
	slices.Sort(list)
	return slices.Compact(list), tenants
}

// addresses are those by which a host is known.
func (s *Scenario) addresses(a uint32) []string {
	return s.known(a, func(version uint8, a uint32) string { return addressOf(version, a).String() })
}

// prefixes are those of a rack.
func (s *Scenario) prefixes(a uint32) []string { return s.known(a, prefixOf) }

func (s *Scenario) known(a uint32, name func(version uint8, a uint32) string) (list []string) {
	versions, tenants := s.versions()
	for _, v := range versions {
		list = append(list, name(v, a))
		if tenants {
			list = append(list, name(v, a^tenantBit))
		}
	}
	return list
}

// tapSpecs are the taps as the fabric file names them. Classic pcap has no names of
// interfaces: there the file's name stands for the tap.
func tapSpecs(s *Scenario, t *topology) ([]fabric.TapSpec, error) {
	places, err := placeTaps(s, t.points())
	if err != nil {
		return nil, err
	}
	var list []fabric.TapSpec
	for i := range places {
		list = append(list, fabric.TapSpec{Name: places[i].Name, Place: places[i].place, Mirrors: decode.Mirrors{ERSPAN: places[i].ERSPAN != 0}})
	}
	if !s.SingleFile || !s.Classic {
		return list, nil
	}
	all := fabric.TapSpec{Name: s.Name, Place: list[0].Place}
	for i := range list {
		if list[i].Place != all.Place {
			return nil, errors.New("classic and single_file: taps at different places need files of their own")
		}
		all.Mirrors.ERSPAN = all.Mirrors.ERSPAN || list[i].Mirrors.ERSPAN
	}
	return []fabric.TapSpec{all}, nil
}
