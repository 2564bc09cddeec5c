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
	// MaxFindings is the maximum number of findings in a record of a tap.
	MaxFindings = 256
	// MaxEvidence is the maximum length of a finding's evidence in bytes.
	MaxEvidence = 1 << 10

	maxFindingBytes = 2 << 10 // of one finding: its texts together are shorter
	maxKindBytes    = 32
)

var (
	errStrayFindings = errors.New("findings of no tap")
	errFinding       = errors.New("a finding of nothing, or of no time")
)

// severities are the valid severities of findings.
var severities = []string{"info", "warning", "error"}

// checkFindings validates the findings of a record against wire.Finding. It removes only those
// whose times are implausible: a packet with a wrong time is not the tap's fault. It cannot
// give them another time, which would differ when the record is sent again.
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

// refuseFindings counts and logs the findings removed from a stored record.
func (p *push) refuseFindings(it *item, r Reason, n uint64) {
	if n > 0 {
		p.e.counts.refused(r, n-1)
		p.refuse(p.e, r, slog.String("stream", edge.Truncated(it.stream)), slog.Uint64("findings", n))
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
