package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// lossExtent is the extent of rows of one source and resolution that a gap reports as missing.
type lossExtent struct {
	Producer     uint64 `json:"producer"`
	Incarnation  uint64 `json:"incarnation"`
	Epoch        uint64 `json:"epoch"`
	Resolution   int64  `json:"resolution"` // ns
	From         int64  `json:"from"`       // start of the first window, Unix ns
	To           int64  `json:"to"`         // end of the last window
	Rows         uint64 `json:"rows"`
	Observations uint64 `json:"observations"`
}

func (p *lossExtent) source() aggregate.Source {
	return aggregate.Source{Producer: p.Producer, Incarnation: p.Incarnation, Epoch: p.Epoch}
}

// maxParts bounds the parts of a batch; further ones are summed up in a part of producer 0.
const maxParts = 64

// addPart merges p into the part of the same source and resolution, or appends it.
func addPart(parts []lossExtent, p lossExtent) []lossExtent {
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].source() == p.source() && parts[i].Resolution == p.Resolution {
			parts[i].merge(&p)
			return parts
		}
	}
	if len(parts) < maxParts-1 {
		return append(parts, p)
	}
	if len(parts) < maxParts {
		return append(parts, lossExtent{From: p.From, To: p.To, Rows: p.Rows, Observations: p.Observations})
	}
	parts[maxParts-1].merge(&p)
	return parts
}

func (p *lossExtent) merge(o *lossExtent) {
	p.From, p.To = min(p.From, o.From), max(p.To, o.To)
	p.Rows += o.Rows
	p.Observations = aggregate.AddSat(p.Observations, o.Observations)
}

// gap is a row of the table gaps: rows that were accepted and never stored.
type gap struct {
	lossExtent
	Reason string `json:"reason"`
	ID     uint64 `json:"id"` // of the lost rows: the same gap replaces itself
	At     int64  `json:"at"` // Unix ns

	// The class and the sequence numbers of the outbox records with the rows; zero if the rows were
	// in none. The numbers are zero if no record reached the outbox, or none can be read.
	LogClass string `json:"log_class,omitempty"`
	FirstSeq uint64 `json:"first_seq,omitempty"`
	LastSeq  uint64 `json:"last_seq,omitempty"`
}

// Reasons of gaps, beside those of the outbox.
const (
	// GapRestart is the reason of gaps between two processes: packets captured after the last
	// round of one process, or before the first round of the next. No stored row is missing.
	GapRestart = "restart"
	// GapDrops is the reason of packets dropped by the kernel for lack of room. The other packets
	// of that time are counted. No stored row is missing.
	GapDrops = "drops"
	// GapMirror is the reason of packets missing in the numbers of a mirror session. The other
	// packets of that time are counted. No stored row is missing.
	GapMirror = "mirror"
	// GapOpen is the reason of gaps of windows that were open when a process was killed. Some of
	// their rows may be stored: those of finer windows that had closed, and of other rings.
	GapOpen = "open"

	lostFull    outbox.Reason = "full"
	lostRefused outbox.Reason = "refused"
	lostDisk    outbox.Reason = "disk"
	lostNewer   outbox.Reason = "newer"

	gapTrimmed         = "trimmed"
	gapTrimmedFlows    = "trimmed_flows"
	gapTrimmedTaps     = "trimmed_taps"
	gapTrimmedFindings = "trimmed_findings"
)

// inLog sets the outbox records with the rows of the gaps.
func inLog(list []gap, class string, first, last uint64) []gap {
	for i := range list {
		list[i].LogClass, list[i].FirstSeq, list[i].LastSeq = class, first, last
	}
	return list
}

// gapsOf returns the gaps for lost parts. Without parts it returns one gap for unknown rows.
func gapsOf(parts []lossExtent, reason string, id uint64, at time.Time) []gap {
	if len(parts) == 0 {
		parts = []lossExtent{{}}
	}
	list := make([]gap, len(parts))
	for i, p := range parts {
		list[i] = gap{lossExtent: p, Reason: reason, ID: id, At: at.UnixNano()}
	}
	return list
}

func decodeGaps(payload []byte) ([]gap, error) {
	var list []gap
	if err := json.Unmarshal(payload, &list); err != nil {
		return nil, fmt.Errorf("decode gaps: %w", err)
	}
	return list, nil
}

// maxGapAge bounds the age of a gap by the server's clock. Gaps expire after that time: those of
// a machine whose clock is years behind would expire as soon as they are stored.
const maxGapAge = 30 * 24 * time.Hour

// sendGaps writes gap rows; writing them again replaces them.
func (s *Store) sendGaps(ctx context.Context, list []gap) error {
	var now time.Time
	if err := s.reader.QueryRow(undated{ctx}, "SELECT now64(3, 'UTC')").Scan(&now); err != nil {
		return err
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].At = min(max(list[i].At, now.Add(-maxGapAge).UnixNano()), now.UnixNano())
	}
	const columns = "gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at, log_class, first_seq, last_seq)"
	to, err := s.names.PrepareBatch(s.inserting(ctx, nil), "INSERT INTO "+s.database+"."+columns)
	if err != nil {
		return err
	}
	defer to.Close()
	for i := range list {
		if err := list[i].appendTo(to); err != nil {
			return err
		}
	}
	return to.Send()
}

func (g *gap) appendTo(to driver.Batch) error {
	utc := func(ns int64) time.Time { return time.Unix(0, min(max(ns, 0), aggregate.EndOfTime)).UTC() }
	return to.Append(g.Producer, g.Incarnation, g.Epoch, uint64(max(g.Resolution, 0)), utc(g.From), utc(g.To),
		g.Rows, g.Observations, g.Reason, g.ID, utc(g.At), g.LogClass, g.FirstSeq, g.LastSeq)
}

// neverTaken is an SQL list of the reasons of packets that were never accepted.
const neverTaken = "('" + GapRestart + "', '" + GapDrops + "', '" + GapMirror + "')"

// Gap is a time range in which some or all rows of a source are missing.
type Gap struct {
	aggregate.Source
	From, To time.Time
	Reason   string

	// Length of the windows; 0 stands for all lengths.
	Resolution time.Duration
	// Numbers of missing rows and observations, 0 if unknown. Each dropped packet counts as an
	// observation.
	Rows, Observations uint64
	ID                 uint64 // distinguishes gaps of one source, reason, resolution and start
}

// WriteGaps records gaps. Writing the same gap again replaces it. With an outbox they are on disk
// when WriteGaps returns nil, and reach the table once the server is available.
func (s *Store) WriteGaps(ctx context.Context, list []Gap) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	var rows []gap
	for i := range list {
		g := &list[i]
		if g.To.Before(g.From) {
			return fmt.Errorf("write gap: from %s to %s: expected a time that does not end before it begins", g.From, g.To)
		}
		rows = append(rows, g.row(time.Now()))
	}
	if len(s.deliveries) > 0 {
		d := s.deliveries[0]
		d.start()
		return s.describe("write gap", d.appendGaps(rows))
	}
	return s.describe("write gap", s.retry.do(ctx, func(ctx context.Context) error { return s.sendGaps(ctx, rows) }))
}

func (g *Gap) row(at time.Time) gap {
	key := []byte(g.Reason)
	for _, v := range [...]uint64{g.Producer, g.Incarnation, g.Epoch, uint64(g.From.UnixNano()), uint64(g.Resolution), g.ID} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	return gap{
		lossExtent: lossExtent{
			Producer: g.Producer, Incarnation: g.Incarnation, Epoch: g.Epoch, Resolution: int64(g.Resolution),
			From: g.From.UnixNano(), To: g.To.UnixNano(), Rows: g.Rows, Observations: g.Observations,
		},
		Reason: g.Reason, ID: xxhash.Sum64(key), At: at.UnixNano(),
	}
}

// Span is a time range; To is exclusive.
type Span struct{ From, To time.Time }

// Missing returns the parts of a range in which windows of 1 s of at least one producer are
// incomplete, ascending and disjoint: gaps of that resolution, gaps written by WriteGaps, and gaps
// with an unknown producer. Gaps of windows of the length, at least 1 s, count too. Windows that were
// deleted by Trim count only if they have the length: those of 1 min are kept longer. It leaves out gaps with dropped packets
// only, and cannot report silent taps.
func (s *Store) Missing(ctx context.Context, from, to time.Time, length time.Duration) ([]Span, error) {
	if err := checkRange(from, to); err != nil {
		return nil, fmt.Errorf("read gaps: %w", err)
	}
	query := fmt.Sprintf(`SELECT DISTINCT window_from, window_to FROM %[1]s.current_gaps
WHERE (resolution_ns = %[9]d OR resolution_ns = %[2]d AND reason != '%[8]s' OR resolution_ns = 0 AND (producer = 0 OR rows = 0))
  AND reason NOT IN ('%[6]s', '%[7]s')
  AND window_from < window_to AND window_from < '%[4]s' AND window_to > '%[3]s'
  AND (producer, incarnation, epoch) NOT IN (SELECT producer, incarnation, epoch FROM %[1]s.superseded)
ORDER BY window_from, window_to LIMIT %[5]d`, s.database, time.Second.Nanoseconds(), stamp(from), stamp(to), s.maxRows+1, GapDrops, GapMirror, gapTrimmed, max(length, time.Second).Nanoseconds())
	var list []Span
	err := s.query(ctx, s.reader, "read gaps", query, func(rows driver.Rows) error {
		var g Span
		if err := rows.Scan(&g.From, &g.To); err != nil {
			return err
		}
		if g.From.Before(from) {
			g.From = from
		}
		if g.To.After(to) {
			g.To = to
		}
		if n := len(list); n > 0 && !g.From.After(list[n-1].To) {
			if g.To.After(list[n-1].To) {
				list[n-1].To = g.To
			}
			return nil
		}
		list = append(list, g)
		return nil
	})
	return list, err
}
