package replay

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// followers go on, from chunk to chunk of a file in their order, with the ports that seem
// stuck: chunks may be shorter than it takes to tell.
type followers struct {
	cfg *Config
	of  map[uint32]*finding.Watcher // by interface
}

func newFollowers(cfg *Config) followers {
	return followers{cfg, make(map[uint32]*finding.Watcher)}
}

// next adds what the taps of a chunk show together with those before it to what they found.
// passages are those of the taps, nil where nothing is looked for; none of a file's only chunk.
func (f *followers) next(taps []TapCounts, passages []*finding.Passage) error {
	for i, passage := range passages {
		if passage == nil {
			continue
		}
		t := &taps[i]
		w, err := f.watcher(uint32(t.Seq >> seqInterfaceShift & (maxTaps - 1)))
		if err != nil {
			return err
		}
		t.Findings = w.Follow(passage, t.Findings)
	}
	return nil
}

func (f *followers) watcher(index uint32) (*finding.Watcher, error) {
	w := f.of[index]
	if w == nil {
		var err error
		if w, err = finding.NewWatcher(*f.cfg.Finding, ""); err != nil {
			return nil, fmt.Errorf("follow tap: %w", err)
		}
		f.of[index] = w
	}
	return w, nil
}

// runs are what next goes on with, by interface.
func (f *followers) runs() map[uint32][]finding.Run {
	list := make(map[uint32][]finding.Run, len(f.of))
	for index, w := range f.of {
		list[index] = w.Runs()
	}
	return list
}

// resume goes on with what runs gave.
func (f *followers) resume(runs map[uint32][]finding.Run) error {
	if f.cfg.Finding == nil {
		return nil
	}
	for index, list := range runs {
		w, err := f.watcher(index)
		if err != nil {
			return err
		}
		w.ResumeRuns(list)
	}
	return nil
}
