package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csigscope/csigscope/ingest/wire"
)

// MaxFindings is how many findings go with what a tap took in over a period.
const MaxFindings = 256

const (
	maxFindingBytes  = 2 << 10 // of one: its texts are shorter together
	maxKindBytes     = 32
	maxEvidenceBytes = 1 << 10
)

var (
	errStrayFindings = errors.New("findings of no tap")
	errFinding       = errors.New("a finding of nothing, or of no time")
)

// severities are those that findings have.
var severities = []string{"info", "warning", "error"}

// checkFindings holds the findings of a record to what wire.Finding says of them.
func (p *push) checkFindings(m *wire.Record) verdict {
	list := m.GetFindings()
	if len(list) > 0 && m.GetTap() == nil {
		return invalid(errStrayFindings)
	}
	for _, f := range list {
		if err := checkFinding(f); err != nil {
			return invalid(err)
		}
		if v := p.checkTime(f.GetFromNs(), f.GetToNs()); v != toStore {
			return v
		}
	}
	return toStore
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
	case len(evidence) > maxEvidenceBytes || !utf8.ValidString(evidence) || strings.ContainsFunc(evidence, unicode.IsControl):
		return fmt.Errorf("evidence %.64q: expected up to %d bytes of printable text", evidence, maxEvidenceBytes)
	case f.GetCount() == 0 || f.GetFromNs() <= 0 || f.GetToNs() < f.GetFromNs():
		return errFinding
	}
	return nil
}
