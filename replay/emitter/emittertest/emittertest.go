// Package emittertest provides scenarios, emitted captures and their networks for tests of packages
// that read them. It knows scenarios of the emitter. It must never know what the tests check.
package emittertest

import (
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// Named returns a built-in scenario.
func Named(t testing.TB, name string) scenario.Scenario {
	t.Helper()
	s, err := scenario.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Run emits a scenario into a folder.
func Run(t testing.TB, s scenario.Scenario, dir string) simulation.Report {
	t.Helper()
	report, err := simulation.Run(t.Context(), s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Network returns the fabric of a fabric file, and the CSIG domain that the file describes.
func Network(t testing.TB, file string) (*fabric.Fabric, *csig.Domain) {
	t.Helper()
	spec, err := fabric.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f, domain
}
