package aggregate

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// locations are locations by number: the listed ports, and their number if not all are listed.
var locations = map[LocationID]struct {
	ports []string
	count int
}{
	10: {[]string{"p"}, 1}, 11: {[]string{"q"}, 1}, 12: {[]string{"r"}, 1},
	20: {[]string{"p", "q"}, 2}, 21: {[]string{"q", "r"}, 2}, 22: {[]string{"r", "s"}, 2},
	30: {[]string{"p", "q", "r", "s"}, 4},
	40: {[]string{"p", "q"}, 100}, // the first two of a hundred
	50: {nil, 0},                  // a raw locator
}

func portsOf(id LocationID) ([]string, int) { return locations[id].ports, locations[id].count }

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		name  string
		votes []Vote
		want  []Candidate
	}{
		{"nothing", nil, nil},
		{"a port", []Vote{{10, 7}}, []Candidate{{"p", 1}}},
		{"a set", []Vote{{20, 7}}, []Candidate{{"p", 0.5}, {"q", 0.5}}},
		{"a raw locator", []Vote{{50, 7}}, []Candidate{}},
		{"ports", []Vote{{10, 7}, {11, 6}}, []Candidate{{"p", 1}}},
		{"ports that tie", []Vote{{10, 7}, {11, 7}}, []Candidate{{"p", 1}}},
		{"a port that no set can beat", []Vote{{10, 7}, {21, 6}}, []Candidate{{"p", 1}}},
		{"a set that beats a port unless it is divided", []Vote{{21, 12}, {10, 7}}, []Candidate{{"q", wholeSet / 2}, {"r", wholeSet / 2}, {"p", 1 - wholeSet}}},
		{"a set whose half beats a port", []Vote{{21, 16}, {10, 7}}, []Candidate{{"q", 0.5}, {"r", 0.5}}},
		{"sets that beat a port together", []Vote{{10, 10}, {21, 6}, {22, 6}}, []Candidate{{"p", 1 - wholeSet*wholeSet/4}, {"r", wholeSet * wholeSet / 4}}},
		{"a set whose port is known of others", []Vote{{20, 6}, {10, 5}}, []Candidate{{"q", wholeSet/(1+silence) + 1 - wholeSet}, {"p", wholeSet * silence / (1 + silence)}}},
		{"ports that are not listed", []Vote{{40, 90}}, []Candidate{{"p", 0.01}, {"q", 0.01}}},
		{"ports that are not listed win", []Vote{{40, 90}, {10, 7}}, []Candidate{{"p", 1 - wholeSet + wholeSet*silence/(99+silence)}, {"q", wholeSet / (99 + silence)}}},
		{"a raw locator wins", []Vote{{50, 9}, {20, 7}}, []Candidate{}},
		{"a raw locator loses", []Vote{{20, 9}, {50, 7}}, []Candidate{{"p", wholeSet / 2}, {"q", wholeSet / 2}}},
	} {
		c := CellStats{Votes: tt.votes}
		if diff := cmp.Diff(tt.want, c.Candidates(portsOf), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestCandidatesCoverDivisions divides the observations of sets among their ports in all ways: the
// port with more than all others is a candidate.
func TestCandidatesCoverDivisions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		c := CellStats{}
		for _, id := range []LocationID{10, 11, 12, 20, 21, 22, 30} {
			if heavy := rng.Uint64N(9); rng.IntN(2) == 0 && heavy > 0 {
				c.Votes = append(c.Votes, Vote{id, heavy})
			}
		}
		slices.SortStableFunc(c.Votes, func(a, b Vote) int { return int(b.Heavy) - int(a.Heavy) })
		list := c.Candidates(portsOf)
		sum := 0.0
		for _, one := range list {
			sum += one.Probability
		}
		if len(c.Votes) > 1 && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("%v: probabilities come to %g: %v", c.Votes, sum, list)
		}
		if len(c.Votes) < 2 {
			continue
		}
		for range 50 {
			had := map[string]uint64{}
			for _, v := range c.Votes {
				for range v.Heavy {
					had[locations[v.Location].ports[rng.IntN(locations[v.Location].count)]]++
				}
			}
			for port, n := range had {
				most := !slices.ContainsFunc([]string{"p", "q", "r", "s"}, func(o string) bool { return o != port && had[o] >= n })
				if most && !slices.ContainsFunc(list, func(c Candidate) bool { return c.Port == port }) {
					t.Fatalf("%v: %s has more than all others of %v, and is none of %v", c.Votes, port, had, list)
				}
			}
		}
	}
}

// TestCandidatesAreBounded has the maximum number of sets, each with the maximum number of listed
// ports.
func TestCandidatesAreBounded(t *testing.T) {
	names := make([]string, 64)
	for i := range names {
		names[i] = "port" + strconv.Itoa(i)
	}
	c := CellStats{}
	for i := range LocationID(MaxVotes) {
		c.Votes = append(c.Votes, Vote{i + 2, 1000})
	}
	list := c.Candidates(func(id LocationID) ([]string, int) {
		return names[id%8 : 56+id%8], 56
	})
	sum := 0.0
	for _, one := range list {
		sum += one.Probability
	}
	if len(list) < 50 || math.Abs(sum-1) > 1e-9 {
		t.Errorf("%d candidates with a probability of %g", len(list), sum)
	}
}

func TestCellStatsEqual(t *testing.T) {
	for i := range reflect.TypeFor[CellStats]().NumField() {
		var a, b CellStats
		switch v := reflect.ValueOf(&b).Elem().Field(i); v.Kind() {
		case reflect.Struct:
			v.Field(0).SetInt(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			v.SetUint(1)
		}
		if a.Equal(&b) || !b.Equal(&b) {
			t.Errorf("Equal does not compare %s", reflect.TypeFor[CellStats]().Field(i).Name)
		}
	}
}
