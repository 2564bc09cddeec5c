package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// The classes of the outbox after that of gaps. Their numbers are in files on disk.
const (
	tapsClass = gapsClass + 1 + iota
	findingsClass
	flowsClass
	newerClass // records written by another version that this one cannot read
	marksClass // progress of a process; only the last one counts
	namesClass // the meaning of ids in rows, and started runs: sent before rows
	endsClass  // of runs: sent once all earlier rows are
	numClasses
)

// Bounds of the rows in one record of the outbox.
const (
	maxRecordRows = 1000
	maxFlowRows   = 10_000 // of rows that came with partials
)

// insertion is a set of rows for a table. Writing them again replaces them.
type insertion struct {
	into string // table and columns
	rows int
	of   batchKey // partition of the rows
	fill func(to driver.Batch) error

	parts   func() []lossExtent         // of each row
	without func(gone []bool) insertion // the rows not in gone; for a single record, as parts is
	joined  []insertion                 // the single insertions behind a joined one; nil for a single one
}

// table is the name of the destination table.
func (in insertion) table() string {
	table, _, _ := strings.Cut(in.into, " ")
	return table
}

// singles returns the insertions that were joined into this one.
func (in insertion) singles() []insertion {
	if in.joined == nil && in.rows > 0 {
		return []insertion{in}
	}
	return in.joined
}

// join combines two insertions into the same table.
func (in insertion) join(o insertion) insertion {
	all := insertion{into: in.into, rows: in.rows + o.rows, of: in.of, joined: slices.Concat(in.singles(), o.singles())}
	all.fill = func(to driver.Batch) error {
		for _, one := range all.joined {
			if err := one.fill(to); err != nil {
				return err
			}
		}
		return nil
	}
	return all
}

// recordTable describes how to write rows of a type to their table.
type recordTable[T any] struct {
	what   string // for people
	class  int    // of the outbox
	into   string
	check  func(*T) error // returns an error for an invalid row; may shorten fields
	append func(to driver.Batch, r *T) error
	part   func(*T) lossExtent // the missing part if the row is lost
	// partition of the table; nil for a table without partitions. The rows of a record share it:
	// servers refuse an insert of many.
	partition func(*T) batchKey
	probe     func(*T) rowSample // nil for a table without probes

	// Of tables with many rows, in place of append and of JSON in the outbox.
	fill   func(to driver.Batch, rows []T) error
	encode func([]T) []byte
	decode func([]byte) ([]T, error)
}

func (t *recordTable[T]) insertion(rows []T) insertion {
	in := insertion{into: t.into, rows: len(rows)}
	if t.partition != nil && len(rows) > 0 {
		in.of = t.partition(&rows[0])
	}
	in.fill = func(to driver.Batch) error {
		if t.fill != nil {
			return t.fill(to, rows)
		}
		for i := range rows {
			if err := t.append(to, &rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	in.parts = func() []lossExtent {
		list := make([]lossExtent, len(rows))
		for i := range rows {
			list[i] = t.part(&rows[i])
		}
		return list
	}
	in.without = func(gone []bool) insertion {
		var left []T
		for i := range rows {
			if !gone[i] {
				left = append(left, rows[i])
			}
		}
		return t.insertion(left)
	}
	return in
}

// writeRecords stores rows. With an outbox they are on disk when it returns, and wait there for
// the server; without one writeRecords waits for the server.
func writeRecords[T any](ctx context.Context, s *Store, t *recordTable[T], rows []T) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	for i := range rows {
		if err := t.check(&rows[i]); err != nil {
			return fmt.Errorf("write %s: %w", t.what, err)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if len(s.deliveries) == 0 {
		for _, part := range t.records(rows) {
			in := t.insertion(part)
			if err := s.retry.do(ctx, func(ctx context.Context) error { return s.sendRecords(ctx, in) }); err != nil {
				return s.describe("write "+t.what, err)
			}
		}
		return nil
	}
	for _, part := range t.records(rows) {
		if err := takeRecords(s.deliveries[0], t, part); err != nil {
			return s.describe("write "+t.what, err)
		}
	}
	return nil
}

// records divides rows into those of one record each.
func (t *recordTable[T]) records(rows []T) (list [][]T) {
	rows = slices.SortedStableFunc(slices.Values(rows), func(a, b T) int { return cmp.Compare(t.partition(&a).partition, t.partition(&b).partition) })
	for len(rows) > 0 {
		n := 1
		for n < min(len(rows), maxRecordRows) && t.partition(&rows[n]) == t.partition(&rows[0]) {
			n++
		}
		list, rows = append(list, rows[:n]), rows[n:]
	}
	return list
}

// monthly is the partition of records with a time, Unix ns.
func monthly(ns int64) batchKey {
	return batchKey{table: minuteTable, partition: partition(minuteTable, ns)}
}

// takeRecords appends rows to the outbox as one record.
func takeRecords[T any](d *delivery, t *recordTable[T], rows []T) error {
	d.start()
	p, err := recordOf(t, rows)
	if err != nil {
		return err
	}
	return d.append(p)
}

// recordOf makes one record of rows.
func recordOf[T any](t *recordTable[T], rows []T) (pending, error) {
	var l label
	for i := range rows {
		p := t.part(&rows[i])
		p.Rows = 1
		l.Parts = addPart(l.Parts, p)
	}
	if t.probe != nil && len(rows) > 0 {
		for _, i := range [...]int{0, (len(rows) - 1) / 2, len(rows) - 1} {
			l.Probes = append(l.Probes, t.probe(&rows[i]))
		}
	}
	payload, err := t.encodeRows(rows)
	if err != nil {
		return pending{}, err
	}
	return newPending(t.class, uint64(len(rows)), &l, payload)
}

func (t *recordTable[T]) encodeRows(rows []T) ([]byte, error) {
	if t.encode != nil {
		return t.encode(rows), nil
	}
	payload, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("encode rows: %w", err)
	}
	return payload, nil
}

// decodeRecords decodes a record of takeRecords. Payloads have checksums: an invalid one was
// written by a newer program (errNewerBatch).
func decodeRecords(class int, payload []byte) (insertion, error) {
	switch class {
	case tapsClass:
		return decodeRows(&tapTable, payload)
	case findingsClass:
		return decodeRows(&findingTable, payload)
	case flowsClass:
		return decodeRows(&flowTable, payload)
	}
	return insertion{}, errNewerBatch
}

func decodeRows[T any](t *recordTable[T], payload []byte) (insertion, error) {
	if t.decode != nil {
		rows, err := t.decode(payload)
		if err != nil {
			return insertion{}, fmt.Errorf("decode %s: %w: %w", t.what, errNewerBatch, err)
		}
		return t.insertion(rows), nil
	}
	var rows []T
	if err := decodeJSON(t.class, payload, &rows); err != nil {
		return insertion{}, err
	}
	return t.insertion(rows), nil
}

// decodeJSON fails for keys that this version does not know.
func decodeJSON(class int, payload []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("decode %s: %w: %w", className(class), errNewerBatch, err)
	}
	return nil
}

// takeJSON appends a record without rows to the outbox.
func (d *delivery) takeJSON(class int, record any) error {
	d.start()
	payload, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %s: %w", className(class), err)
	}
	p, err := newPending(class, 0, &label{}, payload)
	if err != nil {
		return err
	}
	return d.append(p)
}

// recordTables are the tables of records, in the order of their classes.
func recordTables() []string { return []string{"taps", "findings", "flows"} }

// className is the name of a class, which for rows is their table's.
func className(class int) string {
	switch {
	case class < numResolutionTables:
		return resolutionTableAt(class).table()
	case class == gapsClass:
		return "gaps"
	case class >= newerClass:
		return [...]string{"newer", "marks", "names", "ends"}[class-newerClass]
	}
	return recordTables()[class-tapsClass]
}

// recordPart is a part without missing windows of partials: it has no resolution and no
// observations.
func recordPart(s aggregate.Source, from, to int64) lossExtent {
	return lossExtent{Producer: s.Producer, Incarnation: s.Incarnation, Epoch: s.Epoch, From: from, To: to}
}

// checkTimes requires a range within the server's times.
func checkTimes(from, to int64) error {
	if from < 0 || to < from || to >= aggregate.EndOfTime {
		return fmt.Errorf("times %d to %d ns: expected an order, in 1970 to 2105", from, to)
	}
	return nil
}

// bounded cuts text to at most n bytes, between characters.
func bounded(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// maxRecordName bounds names in records.
const maxRecordName = 256

func utcTime(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// recordView formats a call of a view of records.
func (s *Store) recordView(name string, from, to time.Time) string {
	return fmt.Sprintf("%s.%s(from = '%s', to = '%s')", s.database, name, stamp(from), stamp(to))
}

// checkRange validates the range of questions for records.
func checkRange(from, to time.Time) error {
	q := Question{From: from, To: to, Resolution: time.Second}
	return q.check(false)
}
