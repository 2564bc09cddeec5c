package replay

import (
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
)

// TestSettingsID changes each field of the settings that changes rows: without another identity,
// the rows of one replay would replace the other's.
func TestSettingsID(t *testing.T) {
	changes := map[string]func(*window.Settings){
		"Decode": nil, "Resolver": nil, "Epoch": nil, // a source has the epoch
		"Lateness":        nil, // moves observations between blocks of a window, but changes no sum
		"Resolutions":     func(s *window.Settings) { s.Resolutions = []time.Duration{time.Second} },
		"FineHeavyOnly":   func(s *window.Settings) { s.FineHeavyOnly = true },
		"MaxSeries":       func(s *window.Settings) { s.MaxSeries = 1 },
		"Flows":           func(s *window.Settings) { s.Flows.Budget = 1 }, // printed with all its fields
		"LocateUntouched": func(s *window.Settings) { s.LocateUntouched = true },
		"UDPRepeat":       func(s *window.Settings) { s.UDPRepeat = 1 },
		"Finding":         func(s *window.Settings) { s.Finding = &finding.Config{} },
	}
	of := reflect.TypeFor[window.Settings]()
	for i := range of.NumField() {
		name := of.Field(i).Name
		change, known := changes[name]
		if !known {
			t.Errorf("does %s change rows? If so, settingsID and this test need it", name)
		}
		if change == nil {
			continue
		}
		var a, b Config
		if change(&b.Settings); settingsID(&a, 0, "") == settingsID(&b, 0, "") {
			t.Errorf("settings with another %s have the same identity", name)
		}
	}
}
