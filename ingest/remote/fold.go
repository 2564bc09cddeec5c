package remote

import (
	"errors"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// errDuplicate is the error for a block with two rows of one key: a table would merge them and
// lose one.
var errDuplicate = errors.New("two rows with the same key")

// rowKey is the key by which rows are merged.
type rowKey struct {
	signal, kind, encoding uint8
	src, dst, location     uint64
}

func keyOf(b *aggregate.Block, i int) rowKey {
	return rowKey{b.Signal[i], b.Kind[i], b.Encoding[i], b.SrcGroup[i], b.DstGroup[i], b.Location[i]}
}

// overflowOf returns the key of a row's overflow row.
func overflowOf(k rowKey) rowKey {
	k.src, k.dst, k.location = uint64(aggregate.OverflowGroup), uint64(aggregate.OverflowGroup), uint64(aggregate.OverflowLocation)
	return k
}

// uniqueRows checks that the keys of rows are unique. It reuses its memory, one block at a time.
type uniqueRows struct {
	keys map[rowKey]struct{}
}

// maxUniqueKeys limits the memory that a uniqueRows keeps.
const maxUniqueKeys = 4096

// block reads a block whose rows have different keys.
func (f *uniqueRows) block(m *wire.Block) (*aggregate.Block, error) {
	b, err := fromWire(m)
	if err == nil {
		err = f.unique(b)
	}
	return b, err
}

// unique returns an error if two rows have the same key.
func (f *uniqueRows) unique(b *aggregate.Block) error {
	if f.keys == nil || len(f.keys) > maxUniqueKeys {
		f.keys = make(map[rowKey]struct{}, b.Len())
	}
	clear(f.keys)
	for i := range b.Len() {
		f.keys[keyOf(b, i)] = struct{}{}
	}
	if len(f.keys) != b.Len() {
		return errDuplicate
	}
	return nil
}

// overflowRows keeps the first keep rows under their keys and adds the others up in overflow rows, so
// totals stay exact. The result depends only on b and keep. Within the limit, it returns the
// block itself. rows and observations are the numbers of folded ones.
func overflowRows(b *aggregate.Block, keep int) (out *aggregate.Block, rows int, observations uint64) {
	if keep >= b.Len() {
		return b, 0, 0
	}
	keep = max(keep, 0)
	out = &aggregate.Block{Source: b.Source, Seq: b.Seq, Resolution: b.Resolution, WindowStart: b.WindowStart, More: b.More, Flows: b.Flows}
	sums := map[rowKey]*overflowRow{}
	var order []rowKey
	for i := range b.Len() {
		k := keyOf(b, i)
		if i < keep && k != overflowOf(k) {
			copyRow(out, b, i)
			continue
		}
		if i >= keep {
			rows++
			observations += b.Observations[i]
		}
		k = overflowOf(k)
		if sums[k] == nil {
			sums[k] = &overflowRow{}
			order = append(order, k)
		}
		sums[k].add(b, i)
	}
	for _, k := range order {
		appendKey(out, k)
		out.AppendSums(&sums[k].sums)
		out.AppendDist(&sums[k].dist)
	}
	return out, rows, observations
}

// keptWindows counts the rows of each window that a collector keeps under their own keys, to
// hold a stream to its limit per window, whatever its blocks claim.
//
// Only a block's rows_before determines which of its rows are folded. This is necessary: a
// block that is sent again after a lost answer, perhaps to another collector or to this one
// after a restart, must give the same rows, although neither may have counted the same blocks.
// So the count folds nothing, but verifies rows_before: honest blocks of a window follow each
// other, and their kept rows add up to the limit at most, in any order and however many of them
// go to another collector. A block beyond that is refused as a whole, so that no row is ever
// stored in two forms.
//
// Each number counts once: a block that is not stored is released, and a stored one is a repeat
// until its stream is forgotten. Windows are evicted when others are used more, and then start
// from zero; a stream that forces this spends rows of its own rate. It is safe for concurrent use.
type keptWindows struct {
	mu      sync.Mutex
	windows *fairCache[windowKey, *keptWindow]
}

type windowKey struct {
	producer          uint64
	resolution, start int64
}

// countedRows are the rows that an item keeps of a window.
type countedRows struct {
	windowKey
	rows windowRows
}

// keptWindow holds the kept rows of one window of a stream.
type keptWindow struct {
	kept         windowRows // of all incarnations
	incarnations []keptRows // the latest incarnations, at most maxIncarnations
}

// keptRows are the kept rows of one incarnation, under the limits at that time.
type keptRows struct {
	incarnation  uint64
	limits, kept windowRows
}

const (
	// maxCountedWindows is the maximum number of counted windows of all exporters, at about 200
	// bytes each; maxExporterWindows is that of one exporter.
	maxCountedWindows  = 1 << 17
	maxExporterWindows = 2048
)

var errRowsBefore = errors.New("rows_before is too low: earlier blocks of the window kept as many rows as a stream may")

// take counts the rows that a block keeps, and reports whether its stream may keep them: each
// incarnation up to the limits, all together up to maxIncarnations times the limits.
func (w *keptWindows) take(exporter string, k windowKey, incarnation uint64, rows, limits windowRows) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	window := &keptWindow{}
	if have := w.windows.get(k); have != nil {
		window = *have
	}
	own := keptRows{incarnation: incarnation, limits: limits}
	i := slices.IndexFunc(window.incarnations, func(r keptRows) bool { return r.incarnation == incarnation })
	if i >= 0 && window.incarnations[i].limits == limits { // rows kept under other limits do not count
		own = window.incarnations[i]
	}
	own.kept = own.kept.plus(rows)
	all := window.kept.plus(rows)
	if rows.rows > 0 && (own.kept.rows > limits.rows || all.rows > maxIncarnations*limits.rows) ||
		rows.flows > 0 && (own.kept.flows > limits.flows || all.flows > maxIncarnations*limits.flows) {
		return false
	}
	window.kept = all
	if i >= 0 {
		window.incarnations[i] = own
	} else {
		window.incarnations = append(window.incarnations[max(0, len(window.incarnations)-maxIncarnations+1):], own)
	}
	w.windows.put(exporter, k, window)
	return true
}

// release subtracts the rows of a block that was not stored.
func (w *keptWindows) release(k windowKey, incarnation uint64, rows windowRows) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.windows.get(k)
	if have == nil {
		return
	}
	window := *have
	window.kept = window.kept.minus(rows)
	for i := range window.incarnations {
		if r := &window.incarnations[i]; r.incarnation == incarnation {
			r.kept = r.kept.minus(rows)
		}
	}
}

// forget drops the windows of an exporter's streams, of all if none is named: a stream whose
// numbers are forgotten may send stored blocks again.
func (w *keptWindows) forget(exporter string, producers ...uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.windows.of(exporter) {
		if len(producers) == 0 || slices.Contains(producers, k.producer) {
			w.windows.remove(k)
		}
	}
}

func copyRow(out, b *aggregate.Block, i int) {
	appendKey(out, keyOf(b, i))
	sums := b.Sums(i)
	out.AppendSums(&sums)
	codes, counts := b.Dist(i)
	out.DistCode = append(out.DistCode, codes...)
	out.DistCount = append(out.DistCount, counts...)
	out.DistEnd = append(out.DistEnd, uint32(len(out.DistCode)))
}

func appendKey(out *aggregate.Block, k rowKey) {
	out.Signal = append(out.Signal, k.signal)
	out.Kind = append(out.Kind, k.kind)
	out.Encoding = append(out.Encoding, k.encoding)
	out.SrcGroup = append(out.SrcGroup, k.src)
	out.DstGroup = append(out.DstGroup, k.dst)
	out.Location = append(out.Location, k.location)
}

// overflowRow is a sum of rows.
type overflowRow struct {
	sums aggregate.Sums
	dist aggregate.Dist
}

func (r *overflowRow) add(b *aggregate.Block, i int) {
	sums := b.Sums(i)
	r.sums.Merge(&sums)
	codes, counts := b.Dist(i)
	for j, code := range codes {
		r.dist.Add(uint32(code), counts[j])
	}
}
