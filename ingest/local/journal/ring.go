package journal

import (
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
)

// linkName is the link type of live taps.
const linkName = "Ethernet"

// ringRecord accumulates the counts of a ring since its last row.
type ringRecord struct {
	Name string
	Ring int
	Next uint64 // number of the next row
	Row  store.TapRow
	// Findings were made since the last row and have no numbers yet.
	Findings []store.FindingRow
	// Tags and Reflections are in open windows.
	Tags, Reflections uint64
	Drops             missing // dropped by the kernel
	Mirror            missing // lost on the way to a mirror session

	seen  local.RingStats
	taken capture.TapCounters
	lost  uint64
}

// since returns the increase of a counter; a counter that restarted counts from 0.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// frames adds the ring's frames. Kernel counters are per tap, and go to its first ring.
func (g *ringRecord) frames(s *local.RingStats, t Tap, before, now time.Time) {
	row := &g.Row
	row.Name, row.Link, row.TickNS = g.Name, linkName, 1
	row.Frames = addCounts(row.Frames, len(s.Frames), func(i int) (string, uint64) {
		return decode.Reason(i).String(), since(s.Frames[i], g.seen.Frames[i])
	})
	if n := since(s.Packets, g.seen.Packets); n > 0 {
		row.Packets += n
		row.Bytes += since(s.WireBytes, g.seen.WireBytes)
		last := s.LastFrame.UnixNano()
		row.SkewNS = max(row.SkewNS, last-now.UnixNano(), 0)
		last = min(last, now.UnixNano()) // a clock may be ahead: collectors refuse rows from the future
		if row.From == 0 {
			row.From = min(before.UnixNano(), last)
			if at := g.seen.LastFrame; !at.IsZero() {
				row.From = min(at.UnixNano(), last)
			}
		}
		row.From = min(row.From, last) // later if the clock was set back
		row.To = max(row.To, last)
	}
	if t == nil {
		g.taken, g.lost = capture.TapCounters{}, 0 // if the tap comes back, it counts from 0
		return
	}
	if s.Session != "" {
		g.session(s, t, before, now)
		return
	}
	taken := t.Counters()
	at, from := t.At("")
	row.Place, row.Interface, row.Timestamps = at.Place, from, "software"
	if 2*taken.HardwareStamps > taken.Frames {
		row.Timestamps = "hardware"
	}
	if g.Ring == 0 {
		drops := since(taken.Dropped, g.taken.Dropped)
		from := before
		if last := g.seen.Cut; !last.IsZero() && last.Before(from) {
			from = last // the ring hung: nobody read the kernel's counters
		}
		g.Drops.add(drops*max(at.Weight, 1), from.Add(-statisticsAge), now)
		row.KernelDrops += drops
		row.Freezes += since(taken.Freezes, g.taken.Freezes)
		row.SuperFrames += since(taken.SuperFrames, g.taken.SuperFrames)
		g.taken = taken
	}
}

// session adds the counts that only mirror sessions have.
func (g *ringRecord) session(s *local.RingStats, t Tap, before, now time.Time) {
	row := &g.Row
	at, from := t.At(s.Session)
	row.Place, row.Interface, row.Timestamps = at.Place, from, "software"
	c, ok := t.Session(s.Session)
	if !ok {
		return
	}
	if 2*c.SwitchTimes > c.Frames {
		row.Timestamps = "switch"
	}
	lost := since(c.Lost, g.lost)
	g.Mirror.add(lost*max(at.Weight, 1), before, now)
	row.Lost += lost
	g.lost = c.Lost
}

// observations adds the observations of closed windows. Tags and reflections are known only as
// totals over all windows: as long as there are tags, closed observations count as such, and the rest as reflections.
func (g *ringRecord) observations(s *local.RingStats, t Tap) {
	weight := uint64(1)
	if t != nil {
		at, _ := t.At(s.Session)
		weight = max(at.Weight, 1)
	}
	found, before := s.Found.Kinds(), g.seen.Found.Kinds()
	g.Tags += since(found[0], before[0]) * weight
	g.Reflections += since(found[1], before[1]) * weight

	row, c, was := &g.Row, &s.Counts, &g.seen.Counts
	closed := since(c.Stored, was.Stored) + since(c.Overflow, was.Overflow) + since(c.Late, was.Late)
	row.Stored += since(c.Stored, was.Stored)
	row.Overflow += since(c.Overflow, was.Overflow)
	row.Late += since(c.Late, was.Late)
	row.Untouched += since(c.Untouched, was.Untouched)
	row.Trimmed += since(c.Trimmed, was.Trimmed)
	row.Rejected = addCounts(row.Rejected, len(c.Rejected), func(i int) (string, uint64) {
		n := since(c.Rejected[i], was.Rejected[i])
		closed += n
		return aggregate.Rejection(i).String(), n
	})
	reflections := min(g.Reflections, closed-min(g.Tags, closed))
	tags := closed - reflections
	g.Tags -= min(g.Tags, tags)
	g.Reflections -= reflections
	row.Tags += tags
	row.Reflections += reflections
	row.Observations += closed
}

// addCounts adds n counts to a map by name, without zeros.
func addCounts(to map[string]uint64, n int, at func(i int) (string, uint64)) map[string]uint64 {
	if to == nil {
		to = make(map[string]uint64)
	}
	for i := range n {
		if name, count := at(i); count > 0 {
			to[name] += count
		}
	}
	return to
}

const (
	// statisticsAge is the maximum age of the kernel's counters.
	statisticsAge = time.Second
	// togetherWithin is the maximum distance between losses in one gap. It bounds the number of
	// gaps of a ring per minute.
	togetherWithin = 5 * time.Second
)

// missing is an interval in which a ring lost packets.
type missing struct {
	From, To time.Time
	Count    uint64 // observations; 0: no loss
}

// add records a loss between two barriers. If the clock was set back since the interval began, it begins at the earliest
// time that the clock showed. Only wall clocks are compared: readings of the monotonic clock would hide that step.
func (m *missing) add(n uint64, from, to time.Time) {
	if n == 0 {
		return
	}
	if m.Count == 0 || from.UnixNano() < m.From.UnixNano() {
		m.From = from
	}
	if to.UnixNano() < m.From.UnixNano() {
		m.From = to
	}
	m.Count += n
	m.To = to
}

// endMissing turns losses into gaps: at once with end, otherwise after a while without further
// losses.
func (r *Recorder) endMissing(g *ringRecord, now time.Time, end bool) {
	for m, reason := range map[*missing]string{&g.Drops: store.GapDrops, &g.Mirror: store.GapMirror} {
		if m.Count == 0 || !end && now.Sub(m.To) < togetherWithin {
			continue
		}
		r.state.Gaps = append(r.state.Gaps, store.Gap{
			Source: g.Row.Source, From: m.From, To: m.To, Reason: reason, Observations: m.Count, ID: uint64(g.Ring),
		})
		*m = missing{}
	}
}
