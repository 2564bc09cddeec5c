package aggregate

import (
	"cmp"
	"slices"
)

// Candidate is a port that may be a bottleneck.
type Candidate struct {
	Port        string
	Probability float64 // from 0 to 1
}

// Vote is a location, and how many heavy observations name it.
type Vote struct {
	Location LocationID
	Heavy    uint64
}

// MaxVotes bounds the locations that candidates follow from: those with the most heavy observations.
const MaxVotes = 32

// maxOutcomes bounds the outcomes that Candidates weighs. Sets beyond it, those with the fewest
// observations, count as evenly divided.
const maxOutcomes = 512

// The model of Candidates, measured over the emitter's scenarios and all evidence of paths; the
// accuracy test holds the probabilities that follow to the truth.
const (
	// wholeSet is the probability that one port has all heavy observations of a set.
	wholeSet = 0.8
	// silence is the weight in a set of a port that other observations name alone. Evidence that
	// tells their path, such as a tap, would mostly tell it of those of the set too if they passed there.
	silence = 0.02
)

// Candidates returns the ports that may have the most heavy observations of the cell, the likeliest first
// and by name among equals. Each port of a set competes by itself: it has at least the observations
// that name it alone, and at most those and the ones of all sets that have it. A port whose most is
// less than what some port of a location must have is no candidate, so that a single port is listed
// only where the observations force it. The views of the store list the same ports.
//
// Probabilities come from a model: all observations of a set are one port's, or, less often, they are
// divided evenly. Its ports are alike but for those that other observations name alone, which are less
// likely.
//
// ports returns the first names of a location's ports and how many it has; ports beyond the names are
// not listed, and their probability is missing from the sum. Without votes there are no candidates.
func (c *CellStats) Candidates(ports func(LocationID) (names []string, count int)) []Candidate {
	if len(c.Votes) == 0 {
		return nil
	}
	names, count := ports(c.Votes[0].Location)
	port, sets := uint64(0), uint64(0) // observations that others may have
	for _, v := range c.Votes[1:] {
		if _, count := ports(v.Location); count > 1 {
			sets = AddSat(sets, v.Heavy)
		} else {
			port = max(port, v.Heavy)
		}
	}
	if len(c.Votes) == 1 || count <= 1 && (sets == 0 || AddSat(port, sets) < c.Votes[0].Heavy) {
		return evenly(names, count)
	}
	race := contest{index: make(map[string]int)}
	for _, v := range c.Votes {
		names, count := ports(v.Location)
		race.add(v.Heavy, names, count)
	}
	race.dismiss()
	race.weigh(0, 1, maxOutcomes)
	return race.candidates()
}

func evenly(names []string, count int) []Candidate {
	out := make([]Candidate, len(names))
	for i, name := range names {
		out[i] = Candidate{name, 1 / float64(count)}
	}
	return out
}

// contest is which port has the most of the heavy observations that locations divide among theirs.
type contest struct {
	ports   []Candidate
	index   map[string]int
	most    []uint64  // observations that a port may have
	alone   []bool    // of a port: a location names it alone
	first   []int     // location that names a port, the first one: of equal ports it wins
	votes   []float64 // of a port, in one outcome
	sets    []voters
	least   uint64 // observations that some port must have
	leastOf int    // location that it is of
}

// candidates returns the ports that are not dismissed.
func (c *contest) candidates() []Candidate {
	out := c.ports[:0]
	for i, p := range c.ports {
		if c.mayWin(i) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// voters are the heavy observations that name one location.
type voters struct {
	heavy  uint64
	ports  []int   // listed ones that may win
	count  int     // all
	hidden int     // ports that are not listed
	weight float64 // of all ports
	winner int     // the port that has all of them, divided or others
}

// Outcomes of voters beside those in which a listed port has all observations.
const (
	divided = -1 // each port has as many
	others  = -2 // a port that is not among the listed ones, or cannot win, has all of them
)

func (c *contest) add(heavy uint64, names []string, count int) {
	s := voters{heavy: heavy, count: max(count, 1), hidden: max(count, 1) - len(names)}
	for _, name := range names {
		i, known := c.index[name]
		if !known {
			i = len(c.ports)
			c.index[name] = i
			c.ports, c.most = append(c.ports, Candidate{Port: name}), append(c.most, 0)
			c.alone, c.first, c.votes = append(c.alone, false), append(c.first, len(c.sets)), append(c.votes, 0)
		}
		c.alone[i] = c.alone[i] || s.count == 1
		c.most[i] = AddSat(c.most[i], heavy)
		s.ports = append(s.ports, i)
	}
	c.sets = append(c.sets, s)
}

// dismiss takes out the ports that cannot win against the port that a location must have.
func (c *contest) dismiss() {
	for i, s := range c.sets {
		if least := s.heavy/uint64(s.count) + min(s.heavy%uint64(s.count), 1); least > c.least {
			c.least, c.leastOf = least, i
		}
	}
	for i := range c.sets {
		s := &c.sets[i]
		s.weight = float64(s.hidden)
		for _, port := range s.ports {
			s.weight += c.weightOf(port)
		}
		s.ports = slices.DeleteFunc(s.ports, func(p int) bool { return !c.mayWin(p) })
	}
}

// mayWin reports whether a port may have the most. Of ports with as many, a location that comes before
// another is the more severe one, as far as no others name its port.
func (c *contest) mayWin(port int) bool {
	first := c.first[port]
	if c.most[port] != c.least || c.sets[first].heavy != c.least {
		return c.most[port] >= c.least
	}
	return first <= c.leastOf
}

// weightOf returns how likely a port has observations of a set, against others of the set.
func (c *contest) weightOf(port int) float64 {
	if c.alone[port] {
		return silence
	}
	return 1
}

// weigh adds the probability p of the outcomes of the sets from i on to the ports that win in them.
// At most so many are told apart.
func (c *contest) weigh(i int, p float64, outcomes int) {
	if i == len(c.sets) {
		c.settle(p)
		return
	}
	s := &c.sets[i]
	choices := len(s.ports) + 2
	if s.count == 1 || len(s.ports) == 0 && s.hidden == 0 || choices > outcomes {
		choices = 1
	}
	rest := p
	if choices > 1 {
		elsewhere := p * wholeSet
		for _, s.winner = range s.ports {
			one := p * wholeSet * c.weightOf(s.winner) / s.weight
			c.weigh(i+1, one, outcomes/choices)
			elsewhere -= one
		}
		if len(s.ports) < s.count {
			s.winner = others
			c.weigh(i+1, elsewhere, outcomes/choices)
		}
		rest -= p * wholeSet
	}
	s.winner = divided
	c.weigh(i+1, rest, outcomes/choices)
}

// settle adds the probability of an outcome to the port that has the most observations in it. Ports
// of one location that tie share it.
func (c *contest) settle(p float64) {
	clear(c.votes)
	hidden := 0.0
	for i := range c.sets {
		s := &c.sets[i]
		heavy := float64(s.heavy)
		switch s.winner {
		case divided:
			for _, port := range s.ports {
				c.votes[port] += heavy * c.weightOf(port) / s.weight
			}
			heavy /= s.weight
			fallthrough
		case others:
			if s.hidden > 0 {
				hidden = max(hidden, heavy)
			}
		default:
			c.votes[s.winner] += heavy
		}
	}
	most, first, winners := hidden, len(c.sets), 0
	for port, v := range c.votes {
		switch {
		case v > most, v == most && v > 0 && c.first[port] < first:
			most, first, winners = v, c.first[port], 1
		case v == most && c.first[port] == first:
			winners++
		}
	}
	for port, v := range c.votes {
		if v == most && c.first[port] == first {
			c.ports[port].Probability += p / float64(winners)
		}
	}
}
