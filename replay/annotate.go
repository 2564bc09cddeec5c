package replay

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// annotate copies a frame with a comment that describes its observations.
func (l *Lister) annotate(f *capture.Frame, interfaces []capture.Interface, from *listing) error {
	for n := len(from.ports); n < len(interfaces); n++ {
		from.ports = append(from.ports, l.port(interfaces[n], from))
	}
	if err := l.copy.Declare(l.copied); err != nil {
		return fmt.Errorf("write annotated copy: %w", err)
	}
	l.line = l.line[:0]
	for i := range l.result.N {
		if i > 0 {
			l.line = append(l.line, "; "...)
		}
		l.line = appendComment(l.line, &l.result.Obs[i], l.cfg.Decode.Domain)
	}
	copied := *f
	copied.Interface = from.ports[f.Interface]
	if err := l.copy.Write(&copied, string(l.line)); err != nil {
		return fmt.Errorf("write annotated copy: %w", err)
	}
	return nil
}

// port returns the number of a capture's interface in the copy, which has the interfaces of all
// captures. An interface without a description gets its file name as description. Followed files
// come from one program, so their equal interfaces become one.
func (l *Lister) port(in capture.Interface, from *listing) uint32 {
	in.Section = 0 // of the copy
	if l.cfg.Follow {
		if i := slices.Index(l.copied, in); i >= 0 {
			return uint32(i)
		}
	} else if from.named && in.Description == "" {
		in.Description = from.path
	}
	l.copied = append(l.copied, in)
	return uint32(len(l.copied) - 1)
}

// appendComment appends a line about an observation for people: "CSIG tag compact/ietf01
// min_abw_ratio 68.8 % to 71.9 % (S 22), LM 5".
func appendComment(b []byte, o *decode.Observation, domain *csig.Domain) []byte {
	tag := &o.Tag
	signal := tag.Signal()
	b = fmt.Appendf(b, "CSIG %s %s %s", o.Kind, tag.Layout, signal)
	if t := domain.Table(tag.Layout, tag.T); t != nil {
		low, high, open := t.Range(t.Code(tag.S))
		b = fmt.Appendf(b, " %s", csig.FormatQuantity(t.Unit(), float64(low)))
		if open {
			b = append(b, " or more"...)
		} else {
			b = fmt.Appendf(b, " to %s", csig.FormatQuantity(t.Unit(), float64(high)))
		}
		if t.Untouched(tag.S) {
			b = append(b, ", untouched"...)
		}
	}
	b = fmt.Appendf(b, " (S %d), LM %d", tag.S, tag.LM)
	if tag.D {
		b = append(b, ", trimmed"...)
	}
	if o.Flags&decode.Orphan != 0 {
		b = append(b, ", orphan"...)
	}
	return b
}
