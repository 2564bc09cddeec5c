package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
)

const (
	descriptionVersion = 1
	// maxDescriptions, maxDescribed bytes and maxRuns bound what waits on disk: what is
	// older is left out.
	maxDescriptions = 63
	maxDescribed    = 128 << 20
	maxRuns         = 1 << 14

	runsSection    = "runs"
	networkSection = "network " // and its epoch
)

// description is what the numbers of rows under one configuration mean, as of one moment.
type description struct {
	Version   int
	Epoch     uint64
	Text      string
	Groups    []fabric.Group
	Met       uint64 // how many groups have been met until then
	Locations []fabric.Location
}

// describe leaves out the first groups that were met.
func describe(net Network, first uint64) *description {
	groups, met := net.Fabric.GroupsSince(first)
	return &description{descriptionVersion, net.Epoch, net.Text, groups, met, net.Fabric.Locations()}
}

// waiting is what the store has not been told, the oldest first.
type waiting struct {
	networks []*description
	runs     []store.Run
}

// identity differs for what differs: what was met of a configuration only grows.
func (w *waiting) identity() string {
	if len(w.networks)+len(w.runs) == 0 {
		return ""
	}
	var b strings.Builder
	for _, d := range w.networks {
		fmt.Fprintf(&b, "%x %d %d,", d.Epoch, d.Met, len(d.Locations))
	}
	fmt.Fprint(&b, w.runs)
	return b.String()
}

// descriptions keeps on disk what waits for the store, so that rows which outlive a process
// keep their meaning. The zero one keeps nothing. Safe for concurrent use.
type descriptions struct {
	file   *checkpoint.File // nil for none
	logger *slog.Logger

	mu      sync.Mutex // held while the file is replaced
	holds   string     // the identity of what is in it
	failing bool
	bytes   int // of descriptions that it may hold
}

// load is what an earlier process has left. What cannot be read is in the log, and in the
// way of nothing.
func (d *descriptions) load() (w waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	saved, err := d.file.Load()
	if saved == nil && err == nil {
		return w
	}
	d.holds = "what was there" // and is replaced, or removed once it is written
	if err != nil {
		d.unreadable(err)
		return w
	}
	for _, s := range saved.Sections {
		if s.Name == runsSection {
			if err := json.Unmarshal(s.Data, &w.runs); err != nil {
				w.runs = nil // some may have been read
				d.unreadable(fmt.Errorf("read runs: %w", err))
			}
			continue
		}
		one := new(description)
		err := json.Unmarshal(s.Data, one)
		switch {
		case err != nil:
			d.unreadable(fmt.Errorf("read %s: %w", s.Name, err))
		case one.Version != descriptionVersion:
			d.unreadable(fmt.Errorf("read %s: version %d, expected %d", s.Name, one.Version, descriptionVersion))
		default:
			w.networks = append(w.networks, one)
		}
	}
	return w
}

func (d *descriptions) unreadable(err error) {
	d.logger.Error("names that an earlier process left cannot be read: its rows may have none", slog.String("dir", d.file.Dir()), slog.String("error", err.Error()))
}

// empty is true when nothing is on disk.
func (d *descriptions) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holds == ""
}

// keep has on disk what waits at this moment, and no more. It touches the disk when that
// is not what is there; after a failure it does so again at the next call.
func (d *descriptions) keep(waits func() waiting) {
	if d.file == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := waits()
	is := w.identity()
	if is == d.holds {
		return
	}
	var err error
	if is == "" {
		err = d.file.Remove()
	} else {
		err = d.save(&w)
	}
	if err == nil {
		d.holds = is
	} else if !d.failing {
		d.logger.Error("names that wait for the store are not on disk: they are lost if this process ends before it is back", slog.String("error", err.Error()))
	}
	d.failing = err != nil
}

func (d *descriptions) save(w *waiting) error {
	var sections []checkpoint.Section
	room := d.bytes
	for i, one := range slices.Backward(w.networks) {
		text, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("encode names: %w", err)
		}
		if room -= len(text); room < 0 || len(sections) == maxDescriptions {
			d.logger.Error("names of older configurations are not kept on disk: too many wait for the store", slog.Int("configurations", i+1))
			break
		}
		sections = append(sections, checkpoint.Section{Name: fmt.Sprintf("%s%016x", networkSection, one.Epoch), Data: text})
	}
	slices.Reverse(sections)
	runs := w.runs[max(0, len(w.runs)-maxRuns):]
	if left := len(w.runs) - len(runs); left > 0 {
		d.logger.Error("older runs are not kept on disk: too many wait for the store", slog.Int("runs", left))
	}
	text, err := json.Marshal(runs)
	if err != nil {
		return fmt.Errorf("encode runs: %w", err)
	}
	return d.file.Save(append(sections, checkpoint.Section{Name: runsSection, Data: text}))
}

// compareRuns orders runs by age.
func compareRuns(x, y store.Run) int {
	return cmp.Or(cmp.Compare(x.Incarnation, y.Incarnation), cmp.Compare(x.Producer, y.Producer), cmp.Compare(x.Epoch, y.Epoch))
}
