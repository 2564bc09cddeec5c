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

// Vote is a location with the number of heavy observations that name it.
type Vote struct {
	Location LocationID
	Heavy    uint64
}

// MaxVotes bounds the locations from which candidates are derived: those with the most heavy
// observations.
const MaxVotes = 32

// maxOutcomes bounds the outcomes that Candidates weighs. The sets beyond it, those with the fewest
// observations, count as evenly divided.
const maxOutcomes = 512

// The model of Candidates, measured over the emitter's scenarios with every kind of path evidence.
// The accuracy test compares the resulting probabilities with the truth.
const (
	// wholeSet is the probability that one port has all heavy observations of a set.
	wholeSet = 0.8
	// silence is the weight in a set of a port that other observations name alone. If the set's
	// observations had passed it, the evidence that located the others, such as a tap, would mostly
	// have located these too.
	silence = 0.02
)

// Candidates returns the ports that may have the most heavy observations of the cell, the likeliest
// first and by name among equals. Each port of a set competes by itself: it has at least the
// observations that name it alone, and at most those and the ones of all sets with it. A port whose
// maximum is below the minimum that some port of a location must have is no candidate, so a single
// port is listed only if the observations force it. The views of the store list the same ports.
//
// Probabilities come from a model: all observations of a set belong to one port or, less often,
// they are divided evenly. The ports of a set are equally likely, except that those which other
// observations name alone are less likely.
//
// ports returns the first names of a location's ports and the number of its ports; ports beyond the
// names are not listed, and their probability is missing from the sum. Without votes there are no
// candidates.
func (c *CellStats) Candidates(ports func(LocationID) (names []string, count int)) []Candidate {
	if len(c.Votes) == 0 {
		return nil
	}
	names, count := ports(c.Votes[0].Location)
	port, sets := uint64(0), uint64(0) // observations that other ports may have
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

// contest finds the port with the most heavy observations when locations divide theirs among their
// ports.
type contest struct {
	ports   []Candidate
	index   map[string]int
	most    []uint64  // upper bound of a port's observations
	alone   []bool    // of a port: some location names it alone
	first   []int     // the first location that names a port: of equal ports it wins
	votes   []float64 // of a port, in one outcome
	sets    []voters
	least   uint64 // observations that some port must have at least
	leastOf int    // location of that port
}

// candidates returns the ports that were not dismissed.
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
	ports  []int   // listed ports that may win
	count  int     // number of all ports
	hidden int     // number of ports that are not listed
	weight float64 // of all ports
	winner int     // the port that has all observations, or divided or others
}

// Outcomes of voters besides a listed port having all observations.
const (
	divided = -1 // each port has as many
	others  = -2 // a port that is not listed, or cannot win, has all of them
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

// dismiss removes the ports that cannot beat the minimum that some port of a location must have.
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

// mayWin reports whether a port may have the most. Between equal ports, the one with the earlier
// location is the more severe, unless other locations name it too.
func (c *contest) mayWin(port int) bool {
	first := c.first[port]
	if c.most[port] != c.least || c.sets[first].heavy != c.least {
		return c.most[port] >= c.least
	}
	return first <= c.leastOf
}

// weightOf returns the relative probability that a port has observations of a set.
func (c *contest) weightOf(port int) float64 {
	if c.alone[port] {
		return silence
	}
	return 1
}

// weigh adds the probability p of the outcomes of the sets from i on to the ports that win in them.
// It distinguishes at most that many outcomes.
func (c *contest) weigh(i int, p float64, outcomes int) {
	if i == len(c.sets) {
		c.award(p)
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

// award adds the probability of an outcome to the port with the most observations in it. Ports of
// one location that tie share it.
func (c *contest) award(p float64) {
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
