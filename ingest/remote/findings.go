package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// MaxFindings is how many findings go with what a tap took in over a period.
	MaxFindings = 256
	// MaxEvidence is how long the evidence of a finding may be, in bytes.
	MaxEvidence = 1 << 10

	maxFindingBytes = 2 << 10 // of one: its texts are shorter together
	maxKindBytes    = 32
)

var (
	errStrayFindings = errors.New("findings of no tap")
	errFinding       = errors.New("a finding of nothing, or of no time")
)

// severities are those that findings have.
var severities = []string{"info", "warning", "error"}

// checkFindings holds the findings of a record to what wire.Finding says of them. Those of
// times that no clock explains are taken out of it, alone: the tap is not at fault when a
// packet has a wrong time. What they say cannot be given another time here, which would
// differ when the record comes again.
func (p *push) checkFindings(it *item, m *wire.Record) error {
	if len(m.GetFindings()) > 0 && m.GetTap() == nil {
		return errStrayFindings
	}
	for _, f := range m.GetFindings() {
		if err := checkFinding(f); err != nil {
			return err
		}
	}
	m.Findings = slices.DeleteFunc(m.GetFindings(), func(f *wire.Finding) bool {
		v := p.checkTime(f.GetFromNs(), f.GetToNs())
		if v == toStore {
			v = p.checkTime(f.GetToNs(), f.GetToNs())
		}
		switch v.outcome {
		case wire.Outcome_OUTCOME_FUTURE:
			it.futureFindings++
		case wire.Outcome_OUTCOME_PAST:
			it.pastFindings++
		}
		return v != toStore
	})
	it.findings = uint64(len(m.GetFindings()))
	return nil
}

// refuseFindings counts and logs those that were taken out of a record that is stored.
func (p *push) refuseFindings(it *item, r Reason, n uint64) {
	if n > 0 {
		p.e.counts.refused[r].Add(n - 1)
		p.refuse(p.e, r, slog.String("stream", edge.Limited(it.stream)), slog.Uint64("findings", n))
	}
}

func checkFinding(f *wire.Finding) error {
	kind, evidence := f.GetKind(), f.GetEvidence()
	switch {
	case kind == "" || len(kind) > maxKindBytes || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz-") != "":
		return fmt.Errorf("finding %.64q: expected up to %d lower case letters", kind, maxKindBytes)
	case !slices.Contains(severities, f.GetSeverity()):
		return fmt.Errorf("severity %.64q: expected one of %s", f.GetSeverity(), strings.Join(severities, ", "))
	case !printable(f.GetDevice(), f.GetPort()):
		return fmt.Errorf("device %.64q, port %.64q: expected printable text", f.GetDevice(), f.GetPort())
	case len(evidence) > MaxEvidence || !utf8.ValidString(evidence) || strings.ContainsFunc(evidence, unicode.IsControl):
		return fmt.Errorf("evidence %.64q: expected up to %d bytes of printable text", evidence, MaxEvidence)
	case f.GetCount() == 0 || f.GetFromNs() <= 0 || f.GetToNs() < f.GetFromNs():
		return errFinding
	case f.GetCount() > 2*packetsIn(f.GetFromNs(), f.GetToNs()):
		return fmt.Errorf("%w: a finding of %d observations: expected at most %d", aggregate.ErrImpossible, f.GetCount(), 2*packetsIn(f.GetFromNs(), f.GetToNs()))
	}
	return nil
}
