package store

import (
	"cmp"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// row is one row of a block, as plain data.
type row struct {
	resolution, window     int64
	source                 aggregate.Source
	seq                    uint64
	signal, kind, encoding uint8
	src, dst, location     uint64
	observations, bytes    uint64
	samples                uint64 // 0: all that are not trimmed
	sum, min, max          uint64
	untouched, trimmed     uint64
	heavy, heavySum        uint64
	unjudged               uint64
	evidence               uint8
	distCode               []uint16
	distCount              []uint64
}

// seen is the number of samples in the row.
func (r *row) seen() uint64 { return cmp.Or(r.samples, r.observations-r.trimmed) }

// blockOf makes a block of rows that share window, source and seq.
func blockOf(rows []row) *aggregate.Block {
	b := &aggregate.Block{
		Source: rows[0].source, Seq: rows[0].seq,
		Resolution: rows[0].resolution, WindowStart: rows[0].window,
	}
	for _, r := range rows {
		b.Signal = append(b.Signal, r.signal)
		b.Kind = append(b.Kind, r.kind)
		b.Encoding = append(b.Encoding, r.encoding)
		b.SrcGroup = append(b.SrcGroup, r.src)
		b.DstGroup = append(b.DstGroup, r.dst)
		b.Location = append(b.Location, r.location)
		b.Observations = append(b.Observations, r.observations)
		b.Samples = append(b.Samples, r.seen())
		b.Unjudged = append(b.Unjudged, r.unjudged)
		b.Bytes = append(b.Bytes, r.bytes)
		b.Sum = append(b.Sum, r.sum)
		b.Min = append(b.Min, r.min)
		b.Max = append(b.Max, r.max)
		b.Untouched = append(b.Untouched, r.untouched)
		b.Trimmed = append(b.Trimmed, r.trimmed)
		b.Heavy = append(b.Heavy, r.heavy)
		b.HeavySum = append(b.HeavySum, r.heavySum)
		b.Evidence = append(b.Evidence, r.evidence)
		b.DistCode = append(b.DistCode, r.distCode...)
		b.DistCount = append(b.DistCount, r.distCount...)
		b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
	}
	return b
}

// traffic draws blocks in which ties, single kinds, both kinds and cells without heavy
// observations are all frequent.
type traffic struct {
	resolution time.Duration
	windows    int
	groups     uint64
	locations  uint64
	signals    []csig.Signal
}

func (g traffic) rows(rng *rand.Rand, source aggregate.Source) []row {
	var rows []row
	for w := range g.windows {
		for range 1 + rng.IntN(2) { // the second is a late delta
			seq := uint64(len(rows))
			for signal := range g.signals {
				for src := range g.groups {
					for dst := range g.groups {
						rows = append(rows, g.cell(rng, source, seq, w, g.signals[signal], src+10, dst+10)...)
					}
				}
			}
		}
	}
	return rows
}

func (g traffic) cell(rng *rand.Rand, source aggregate.Source, seq uint64, w int, signal csig.Signal, src, dst uint64) []row {
	var rows []row
	for kind := uint8(1); kind <= 2; kind++ {
		if (src+3*dst+uint64(kind))%4 == 0 || rng.IntN(3) == 0 {
			continue
		}
		locations := rng.Perm(int(g.locations))[:rng.IntN(3)]
		if !signal.Aggregation().Locates() {
			locations = []int{0}
		}
		for _, location := range locations {
			r := row{
				resolution: int64(g.resolution), window: testStart.UnixNano() + int64(w)*int64(g.resolution),
				source: source, seq: seq, signal: uint8(signal), kind: kind, encoding: uint8(rng.IntN(4)),
				src: src, dst: dst, location: uint64(location),
				bytes: rng.Uint64N(1e6),
			}
			g.numbers(rng, &r)
			rows = append(rows, r)
		}
	}
	return rows
}

// numbers fills in consistent counts.
func (g traffic) numbers(rng *rand.Rand, r *row) {
	r.trimmed = rng.Uint64N(3)
	measured := rng.Uint64N(6)
	r.observations = r.trimmed + measured
	if measured == 0 {
		r.observations++
		r.trimmed++
		return
	}
	r.min, r.max = rng.Uint64N(4)*100, 1000
	r.samples = 1 + r.bytes%measured // of taps with and without a weight
	r.sum = measured * 500
	if r.location == 0 {
		r.untouched = rng.Uint64N(measured + 1)
	}
	if located := csig.Signal(r.signal).Aggregation().Locates(); (r.location != 0 || !located) && rng.IntN(2) == 0 {
		r.heavy = 1 + rng.Uint64N(measured)
		r.heavySum = r.heavy * (1 + rng.Uint64N(3))
	}
	if r.location != 0 {
		r.evidence = uint8(1 << (r.location + r.bytes) % 4 % 8) // 8 is none
	}
	if r.location%4 == 3 {
		r.unjudged = measured - r.heavy
	}
	r.distCode = []uint16{uint16(rng.IntN(32)), 40}
	r.distCount = []uint64{1, measured - 1}
}

type cell struct{ src, dst uint64 }

// chosen groups the rows of a signal by cell: the tags of a cell that has any.
func chosen(rows []row, signal csig.Signal) map[cell][]row {
	best := map[cell]uint8{}
	for _, r := range rows {
		if k, ok := best[cell{r.src, r.dst}]; r.signal == uint8(signal) && (!ok || r.kind < k) {
			best[cell{r.src, r.dst}] = r.kind
		}
	}
	byCell := map[cell][]row{}
	for _, r := range rows {
		if c := (cell{r.src, r.dst}); r.signal == uint8(signal) && r.kind == best[c] {
			byCell[c] = append(byCell[c], r)
		}
	}
	return byCell
}

// cellsOf computes the answer of Cells by brute force, from rows that are all visible.
func cellsOf(rows []row, signal csig.Signal, level func(uint64) uint64) []aggregate.CellStats {
	var cells []aggregate.CellStats
	for _, rows := range chosen(rows, signal) {
		cells = append(cells, oneCell(rows, signal, level))
	}
	slices.SortFunc(cells, aggregate.CompareCells)
	return cells
}

// cellWindowsOf is the same for CellWindows.
func cellWindowsOf(rows []row, signal csig.Signal, level func(uint64) uint64, step time.Duration) []aggregate.CellWindow {
	var list []aggregate.CellWindow
	for _, rows := range chosen(rows, signal) {
		for start, rows := range byWindow(rows, step) {
			list = append(list, aggregate.CellWindow{Start: start, CellStats: oneCell(rows, signal, level)})
		}
	}
	slices.SortFunc(list, aggregate.CompareCellWindows)
	return list
}

func byWindow(rows []row, step time.Duration) map[int64][]row {
	windows := map[int64][]row{}
	for _, r := range rows {
		start := r.window - r.window%int64(step)
		windows[start] = append(windows[start], r)
	}
	return windows
}

// locationWindowsOf is the same for LocationWindows.
func locationWindowsOf(rows []row, signal csig.Signal, level func(uint64) uint64, step time.Duration) []aggregate.LocationWindow {
	type at struct {
		start    int64
		location aggregate.LocationID
	}
	sums := map[at]aggregate.LocationWindow{}
	for _, rows := range chosen(rows, signal) {
		for start, rows := range byWindow(rows, step) {
			for _, r := range rows {
				key := at{start, aggregate.LocationID(level(r.location))}
				sum := sums[key]
				sum.Observations += r.observations
				sum.Samples += r.seen()
				sum.Unjudged += r.unjudged
				sum.Heavy += r.heavy
				sum.HeavySum += r.heavySum
				sums[key] = sum
			}
		}
	}
	var list []aggregate.LocationWindow
	for key, sum := range sums {
		sum.Start, sum.Location = key.start, key.location
		list = append(list, sum)
	}
	slices.SortFunc(list, func(a, b aggregate.LocationWindow) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Location, b.Location))
	})
	return list
}

// topLocationsOf is the same for TopLocations.
func topLocationsOf(rows []row, signal csig.Signal, level func(uint64) uint64) []aggregate.LocationStats {
	sums := map[uint64]*aggregate.LocationStats{}
	for _, rows := range chosen(rows, signal) {
		heavyIn := map[uint64]bool{}
		for _, r := range rows {
			id := level(r.location)
			if sums[id] == nil {
				sums[id] = &aggregate.LocationStats{Location: aggregate.LocationID(id)}
			}
			sums[id].Observations += r.observations
			sums[id].Heavy += r.heavy
			sums[id].HeavySum += r.heavySum
			if r.heavy > 0 && !heavyIn[id] {
				heavyIn[id] = true
				sums[id].Cells++
			}
		}
	}
	var list []aggregate.LocationStats
	for _, sum := range sums {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b aggregate.LocationStats) int {
		return aggregate.CompareBottlenecks(signal.Direction(), &a, &b)
	})
	return list
}

func oneCell(rows []row, signal csig.Signal, level func(uint64) uint64) aggregate.CellStats {
	c := aggregate.CellStats{Src: aggregate.GroupID(rows[0].src), Dst: aggregate.GroupID(rows[0].dst), Signal: signal, Kind: kindOf(rows[0].kind)}
	locations, evidence := map[uint64]*locationVotes{}, map[aggregate.LocationID]aggregate.Evidence{}
	for _, r := range rows {
		evidence[aggregate.LocationID(level(r.location))] |= aggregate.Evidence(r.evidence)
		c.Observations += r.observations
		c.Samples += r.seen()
		c.Unjudged += r.unjudged
		c.Bytes += r.bytes
		c.Sum += r.sum
		if r.observations > r.trimmed {
			if c.Measured == 0 || r.min < c.Min {
				c.Min = r.min
			}
			c.Measured += r.observations - r.trimmed
		}
		c.Max = max(c.Max, r.max)
		c.Untouched += r.untouched
		c.Trimmed += r.trimmed
		c.Heavy += r.heavy
		c.HeavySum += r.heavySum
		if id := level(r.location); r.heavy > 0 && id != 0 {
			if locations[id] == nil {
				locations[id] = &locationVotes{id: id}
			}
			locations[id].heavy += r.heavy
			locations[id].sum += r.heavySum
		}
	}
	setMode(&c, locations)
	c.ModeEvidence, c.RunnerUpEvidence = evidence[c.Mode], evidence[c.RunnerUp]
	if level(2) != 2 { // locations are mapped to a level
		c.Votes = nil
	}
	return c
}

type locationVotes struct{ id, heavy, sum uint64 }

// setMode compares means as fractions: more heavy observations first, then the more severe mean,
// then the lower id.
func setMode(c *aggregate.CellStats, locations map[uint64]*locationVotes) {
	var order []*locationVotes
	for _, p := range locations {
		order = append(order, p)
	}
	mean := func(p *locationVotes) *big.Rat {
		return new(big.Rat).SetFrac(new(big.Int).SetUint64(p.sum), new(big.Int).SetUint64(p.heavy))
	}
	slices.SortFunc(order, func(a, b *locationVotes) int {
		severity := mean(a).Cmp(mean(b))
		if c.Signal.Direction() == csig.Max {
			severity = -severity
		}
		return cmp.Or(-cmp.Compare(a.heavy, b.heavy), severity, cmp.Compare(a.id, b.id))
	})
	if len(order) > 0 {
		c.Mode, c.ModeCount, c.ModeSum = aggregate.LocationID(order[0].id), order[0].heavy, order[0].sum
	}
	if len(order) > 1 {
		c.RunnerUp, c.RunnerUpCount = aggregate.LocationID(order[1].id), order[1].heavy
	}
	for _, p := range order {
		c.Votes = append(c.Votes, aggregate.Vote{Location: aggregate.LocationID(p.id), Heavy: p.heavy})
	}
}

// judgedCells are cellsOf with the values of the later half of the range, and with the verdict of
// aggregate.History on the windows before the end.
func judgedCells(rows []row, q *Question, level func(uint64) uint64) []aggregate.CellStats {
	cells := cellsOf(inRange(rows, q.From, q.To), q.Signal, level)
	length := int64(q.Resolution)
	first, end := (q.From.UnixNano()+length-1)/length, (q.To.UnixNano()+length-1)/length
	for i := range cells {
		c := &cells[i]
		c.LaterMeasured, c.LaterSum = laterValues(rows, q, c)
		h := historyOf(rows, c, length, end)
		c.Verdict = h.Verdict(end, length)
		c.Silent = c.Silent && q.Resolution >= time.Second
		c.Judge(aggregate.DefaultThresholds())
		for n := max(first, end-aggregate.Horizon); n < h.End(); n++ {
			if h.Get(n)&^aggregate.Loaded != aggregate.Unjudged {
				c.JudgedWindows++
				if h.Verdict(n+1, length).Sustained {
					c.CongestedWindows++
				}
			}
		}
	}
	return cells
}

func inRange(rows []row, from, to time.Time) (list []row) {
	for _, r := range rows {
		if r.window >= from.UnixNano() && r.window < to.UnixNano() {
			list = append(list, r)
		}
	}
	return list
}

// laterValues adds up the values of a cell in the windows that start in the later half of the
// range.
func laterValues(rows []row, q *Question, c *aggregate.CellStats) (measured, sum uint64) {
	for _, r := range inRange(rows, q.From.Add(q.To.Sub(q.From)/2), q.To) {
		if r.signal == uint8(c.Signal) && r.src == uint64(c.Src) && r.dst == uint64(c.Dst) && r.kind == uint8(c.Kind) {
			measured, sum = measured+r.observations-r.trimmed, sum+r.sum
		}
	}
	return measured, sum
}

// historyOf judges the windows of a cell before a window.
func historyOf(rows []row, c *aggregate.CellStats, length, end int64) *aggregate.History {
	sums := map[int64]*row{}
	for _, r := range rows {
		n := r.window / length
		if r.signal != uint8(c.Signal) || r.src != uint64(c.Src) || r.dst != uint64(c.Dst) || r.kind != uint8(c.Kind) || n >= end {
			continue
		}
		if sums[n] == nil {
			sums[n] = &row{}
		}
		sums[n].observations += r.observations
		sums[n].samples += r.seen()
		sums[n].heavy += r.heavy
		sums[n].unjudged += r.unjudged
	}
	h := &aggregate.History{}
	for _, n := range slices.Sorted(maps.Keys(sums)) {
		h.Set(n, aggregate.DefaultThresholds().Judge(sums[n].observations, sums[n].samples, sums[n].heavy, sums[n].unjudged))
	}
	return h
}

// judgeWindows judges the windows of cells at their ends.
func judgeWindows(rows []row, q *Question, list []aggregate.CellWindow) {
	length := int64(q.Resolution)
	for i := range list {
		c := &list[i].CellStats
		end := min((list[i].Start+int64(q.Step))/length, (q.To.UnixNano()+length-1)/length)
		c.Verdict = historyOf(rows, c, length, end).Verdict(end, length)
		c.Since, c.Lasted = 0, 0 // unknown for single windows
		c.Silent = c.Silent && q.Resolution >= time.Second
		c.Judge(aggregate.DefaultThresholds())
	}
}
