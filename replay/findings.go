package replay

import (
	"fmt"
	"io"
	"maps"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// Findings are the severities of what was found, by finding.Finding's ID: each finding once,
// however many taps and chunks tell of it. Nil where nothing was looked for.
type Findings map[uint64]finding.Severity

var severities = [...]finding.Severity{finding.Error, finding.Warning, finding.Info}

// note adds findings. It makes the map with the first one.
func (f *Findings) note(list []finding.Finding) {
	for i := range list {
		if *f == nil {
			*f = make(Findings)
		}
		(*f)[list[i].ID] = list[i].Kind.Severity()
	}
}

// merge adds those of a worker, where any were looked for.
func (f Findings) merge(of Findings) {
	if f != nil {
		maps.Copy(f, of)
	}
}

// Count is how many findings have each severity, none of them left out; nil where nothing
// was looked for.
func (f Findings) Count() map[finding.Severity]int {
	if f == nil {
		return nil
	}
	count := make(map[finding.Severity]int, len(severities))
	for _, s := range severities {
		count[s] = 0
	}
	for _, s := range f {
		count[s]++
	}
	return count
}

func (f Findings) write(w io.Writer) {
	if f == nil {
		fmt.Fprintf(w, "findings\t-\tnot looked for\n")
		return
	}
	n := f.Count()
	fmt.Fprintf(w, "findings\t%d\t= %d errors + %d warnings + %d infos\n", len(f), n[finding.Error], n[finding.Warning], n[finding.Info])
}
