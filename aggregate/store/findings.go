package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
)

// Severities of findings.
const (
	SeverityInfo    = "info"
	SeverityWarning = "warning"
	SeverityError   = "error"
)

// FindingRow is one violation of the protocol or of the configuration. Rows with the same Kind
// and ID are one finding, whose counts add up.
type FindingRow struct {
	aggregate.Source
	Seq uint64 // distinguishes the rows of a producer with equal Kind and ID

	Kind     string
	ID       uint64 // of the violation's subject
	Severity string
	From, To int64 // of the first and of the last occurrence, Unix ns; both 0 without times
	Count    uint64

	Device, Port string
	Location     aggregate.LocationID
	Evidence     string   // for people; cut at 4 KiB
	Packets      []uint64 // numbers in the capture; the first 64 are kept
}

// Bounds of a row of findings.
const (
	maxEvidence       = 4 << 10
	maxFindingPackets = 64
)

var findingTable = recordTable[FindingRow]{
	what: "findings", class: findingsClass,
	into: "findings (producer, incarnation, epoch, seq, kind, id, severity, time_from, time_to, count, device, port, location, evidence, packets)",
	check: func(r *FindingRow) error {
		if !slices.Contains([]string{SeverityInfo, SeverityWarning, SeverityError}, r.Severity) {
			return fmt.Errorf("severity %q: expected %s, %s or %s", r.Severity, SeverityInfo, SeverityWarning, SeverityError)
		}
		r.Kind, r.Device, r.Port = bounded(r.Kind, maxRecordName), bounded(r.Device, maxRecordName), bounded(r.Port, maxRecordName)
		r.Evidence = bounded(r.Evidence, maxEvidence)
		r.Packets = r.Packets[:min(len(r.Packets), maxFindingPackets)]
		return checkTimes(r.From, r.To)
	},
	append: func(to driver.Batch, r *FindingRow) error {
		return to.Append(r.Producer, r.Incarnation, r.Epoch, r.Seq, r.Kind, r.ID, r.Severity, utcTime(r.From), utcTime(r.To), r.Count,
			r.Device, r.Port, uint64(r.Location), r.Evidence, r.Packets)
	},
	part:      func(r *FindingRow) lossExtent { return recordPart(r.Source, r.From, r.To) },
	partition: func(r *FindingRow) batchKey { return monthly(r.From) },
}

// WriteFindings stores findings and replaces rows with the same identity. With an outbox it
// returns when they are on disk.
func (s *Store) WriteFindings(ctx context.Context, rows []FindingRow) error {
	return writeRecords(ctx, s, &findingTable, rows)
}

// Findings returns the findings that overlap a range or have no time, the most severe and latest
// first. The first row of a finding supplies all fields except its counts and times. Source and Seq
// are not set.
func (s *Store) Findings(ctx context.Context, q FindingQuestion) ([]FindingRow, error) {
	chosen, err := q.where()
	if err = errors.Join(err, checkRange(q.From, q.To)); err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	if q.Limit < 1 {
		return nil, fmt.Errorf("read findings: %w: %d findings: expected 1 or more", ErrQuestion, q.Limit)
	}
	query := fmt.Sprintf(`SELECT kind, id, severity, first, last, %s, device, port, location, evidence, packets
FROM %s WHERE %s ORDER BY severity DESC, last DESC, kind, id LIMIT %d`, saturated("count"), s.recordView("finding_totals", q.From, q.To), chosen, q.Limit)
	return queryRows(ctx, s, "read findings", query, func(rows driver.Rows) (r FindingRow, err error) {
		var first, last time.Time
		var location uint64
		err = rows.Scan(&r.Kind, &r.ID, &r.Severity, &first, &last, &r.Count, &r.Device, &r.Port, &location, &r.Evidence, &r.Packets)
		r.From, r.To, r.Location = first.UnixNano(), last.UnixNano(), aggregate.LocationID(location)
		return r, err
	})
}

// NewFindingRow converts a finding to its stored row, under the source of the blocks beside it.
// Times outside of 1970 to 2105, of packets with a wrong clock, become the nearest valid ones.
// seq, with the finding's kind and ID, identifies it among the producer's findings.
func NewFindingRow(f *finding.Finding, source aggregate.Source, seq uint64) FindingRow {
	row := FindingRow{
		Source: source, Seq: seq, Kind: f.Kind.String(), ID: f.ID, Severity: string(f.Kind.Severity()), From: validTime(f.From), To: validTime(f.To), Count: f.Count,
		Device: f.Device, Port: f.Port, Location: f.Location, Evidence: f.Evidence,
	}
	for _, p := range f.Packets {
		row.Packets = append(row.Packets, p.Number)
	}
	return row
}

func validTime(ns int64) int64 { return min(max(ns, 0), aggregate.EndOfTime-1) }
