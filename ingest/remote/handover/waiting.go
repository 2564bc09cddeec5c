package handover

import "github.com/csigscope/csigscope/aggregate/store/checkpoint"

// Waiting keeps in a place on disk what the store has not been told of exporters' names and
// runs. It implements remote.Keeper. The place stays its owner's.
type Waiting struct{ File *checkpoint.File }

const waitingSection = "exporters"

// Load implements remote.Keeper.
func (w Waiting) Load() ([]byte, error) {
	saved, err := w.File.Load()
	if saved == nil || err != nil {
		return nil, err
	}
	return saved.Section(waitingSection), nil
}

// Save implements remote.Keeper.
func (w Waiting) Save(text []byte) error {
	if len(text) == 0 {
		return w.File.Remove()
	}
	return w.File.Save([]checkpoint.Section{{Name: waitingSection, Data: text}})
}
