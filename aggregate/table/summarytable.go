package table

import (
	"maps"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// summaryTable holds rows by cell and location. What is written comes cell by cell, and in the
// same order from each producer: most rows are found beside the last one.
type summaryTable struct {
	cells  []summaryCell
	places map[aggregate.CellKey]int32 // of cells
	rows   []summaryEntry
	far    map[summaryKey]int32 // places of rows, of cells with more than nearRows
	last   int                  // place of the cell that was found last
}

// summaryCell is a cell, whose rows are a list.
type summaryCell struct {
	key   aggregate.CellKey
	first int32 // place of a row, -1 for none
	n     int32
}

type summaryEntry struct {
	loc  aggregate.LocationID
	next int32 // place of another row of the cell, -1 for none
	row  aggregate.Sums
}

// nearRows are those of a cell that are looked through one by one.
const nearRows = 16

func newSummaryTable() summaryTable {
	return summaryTable{places: make(map[aggregate.CellKey]int32), far: make(map[summaryKey]int32)}
}

// reserve makes room in an empty table.
func (t *summaryTable) reserve(cells, rows int) {
	t.cells, t.places, t.rows = make([]summaryCell, 0, cells), make(map[aggregate.CellKey]int32, cells), make([]summaryEntry, 0, rows)
}

// clone is a copy that goes its own way.
func (t *summaryTable) clone() summaryTable {
	return summaryTable{slices.Clone(t.cells), maps.Clone(t.places), slices.Clone(t.rows), maps.Clone(t.far), t.last}
}

// cell is the place of a cell, -1 where it has no row.
func (t *summaryTable) cell(k aggregate.CellKey) int {
	for i := t.last; i < min(t.last+2, len(t.cells)); i++ {
		if t.cells[i].key == k {
			t.last = i
			return i
		}
	}
	i, ok := t.places[k]
	if !ok {
		return -1
	}
	t.last = int(i)
	return int(i)
}

// find is the row of a cell and a location, nil where there is none. It is good until the next
// insert.
func (t *summaryTable) find(k summaryKey) *aggregate.Sums {
	at := t.cell(k.cell)
	if at < 0 {
		return nil
	}
	if t.cells[at].n > nearRows {
		if i, ok := t.far[k]; ok {
			return &t.rows[i].row
		}
		return nil
	}
	for i := t.cells[at].first; i >= 0; i = t.rows[i].next {
		if t.rows[i].loc == k.loc {
			return &t.rows[i].row
		}
	}
	return nil
}

// insert adds a row that there is not yet.
func (t *summaryTable) insert(k summaryKey, r *aggregate.Sums) {
	at := t.cell(k.cell)
	if at < 0 {
		at = len(t.cells)
		t.cells = append(t.cells, summaryCell{key: k.cell, first: -1})
		t.places[k.cell], t.last = int32(at), at
	}
	c := &t.cells[at]
	t.rows = append(t.rows, summaryEntry{k.loc, c.first, *r})
	c.first = int32(len(t.rows) - 1)
	switch c.n++; {
	case c.n == nearRows+1:
		for loc, i := range t.of(c) {
			t.far[summaryKey{k.cell, loc}] = i
		}
	case c.n > nearRows:
		t.far[k] = c.first
	}
}

// of gives the locations of a cell, and the places of their rows.
func (t *summaryTable) of(c *summaryCell) func(yield func(aggregate.LocationID, int32) bool) {
	return func(yield func(aggregate.LocationID, int32) bool) {
		for i := c.first; i >= 0; i = t.rows[i].next {
			if !yield(t.rows[i].loc, i) {
				return
			}
		}
	}
}

// all gives every row under its key.
func (t *summaryTable) all(yield func(summaryKey, *aggregate.Sums) bool) {
	for i := range t.cells {
		c := &t.cells[i]
		for loc, at := range t.of(c) {
			if !yield(summaryKey{c.key, loc}, &t.rows[at].row) {
				return
			}
		}
	}
}
