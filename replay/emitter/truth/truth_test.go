package truth

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

func TestTiesGoToTheMoreSevereThenTheLower(t *testing.T) {
	s, err := scenario.Named("quickstart")
	if err != nil {
		t.Fatal(err)
	}
	top, err := scenario.NewTopology(&s)
	if err != nil {
		t.Fatal(err)
	}
	tr := New(&s, top, nil, nil)
	low, high := int32(0), int32(1)
	if tr.location[low] > tr.location[high] {
		low, high = high, low
	}
	tests := []struct {
		name      string
		x, y      portTally
		direction csig.Direction
	}{
		{"more observations", portTally{port: high, heavy: 3, sumOfHeavy: 1}, portTally{port: low, heavy: 2, sumOfHeavy: 99}, csig.Max},
		{"lower mean of a min signal", portTally{port: high, heavy: 2, sumOfHeavy: 5}, portTally{port: low, heavy: 2, sumOfHeavy: 6}, csig.Min},
		{"higher mean of a max signal", portTally{port: high, heavy: 2, sumOfHeavy: 6}, portTally{port: low, heavy: 2, sumOfHeavy: 5}, csig.Max},
		{"lower location", portTally{port: low, heavy: 2, sumOfHeavy: 6}, portTally{port: high, heavy: 2, sumOfHeavy: 6}, csig.Max},
	}
	for _, tt := range tests {
		if tr.compare(tt.x, tt.y, tt.direction) >= 0 || tr.compare(tt.y, tt.x, tt.direction) <= 0 {
			t.Errorf("%s does not decide", tt.name)
		}
	}
}
