package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
)

// TestCandidates: the candidates of a mode are the same in the text of a cell, in its message and
// in history, at most 16, and only for resolved locations.
func TestCandidates(t *testing.T) {
	var ports []string
	for i := range 20 {
		ports = append(ports, fmt.Sprintf("leaf1:up%02d", i))
	}
	odd := []string{"leaf\"1:\u00fcp1", "leaf1:up2"}
	n := newNames(1, nil, []fabric.Location{
		{ID: 10, Name: "leaf1:up01", Kind: fabric.KindPort, Candidates: ports[1:2], CandidateCount: 1},
		{ID: 11, Name: "leaf1 up (2 ports)", Kind: fabric.KindSet, Candidates: odd, CandidateCount: 2},
		{ID: 12, Name: "leaf1 up", Kind: fabric.KindSet, Candidates: ports, CandidateCount: 20},
	})
	for _, tt := range []struct {
		votes []aggregate.Vote
		want  []string
	}{
		{nil, nil},
		{[]aggregate.Vote{{Location: 9, Heavy: 3}}, nil},
		{[]aggregate.Vote{{Location: 10, Heavy: 3}}, ports[1:2]},
		{[]aggregate.Vote{{Location: 11, Heavy: 3}}, odd},
		{[]aggregate.Vote{{Location: 11, Heavy: 5}, {Location: 10, Heavy: 4}}, []string{odd[0], odd[1], ports[1]}},
		{[]aggregate.Vote{{Location: 12, Heavy: 3}}, ports[:maxCandidates]},
	} {
		c := aggregate.CellStats{Kind: 1, Observations: 3, Samples: 3, Heavy: 3, Votes: tt.votes}
		if len(tt.votes) > 0 {
			c.Mode, c.ModeCount = tt.votes[0].Location, tt.votes[0].Heavy
		}
		var written struct {
			Candidates    []string
			Probabilities []float64
		}
		if err := json.Unmarshal(n.appendCell(nil, &c, &table.CellCoverage{}), &written); err != nil {
			t.Fatal(err)
		}
		for _, got := range []*wire.Cell{n.cell(&c, &table.CellCoverage{}), n.pastCell(&c), {Candidates: written.Candidates, Probabilities: written.Probabilities}} {
			if strings.Join(got.Candidates, " ") != strings.Join(tt.want, " ") || len(got.Probabilities) != len(tt.want) {
				t.Errorf("%v: candidates %s, want %v", tt.votes, protojson.Format(got), tt.want)
			}
		}
	}
}
