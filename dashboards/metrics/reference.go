package metrics

import (
	"fmt"
	"io"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
)

// described is what every collector of this package has.
type described interface{ Families() []Family }

// All are the families of every collector, in the order of the pipeline. Which of them a
// process exports depends on what it runs.
func All() []Family {
	var all []Family
	for _, c := range []described{
		NewBuild("", ""), NewTaps(nil), NewMirrors(nil), NewDecode(nil), NewAggregate(nil), NewProducers(nil, nil),
		NewBottlenecks(nil, 0, func(aggregate.LocationID) string { return "" }, nil), NewFabric(nil), NewLive(nil),
		NewIngest(nil), NewSpool(nil), NewStore(nil), NewLatency(nil), NewTrim(nil), NewEngine(nil), NewAPI(nil), NewHTTP(),
	} {
		all = append(all, c.Families()...)
	}
	return all
}

// Unit is that of a family's numbers, by the convention of its name: seconds, bytes,
// ratio, or nothing for counts.
func (f *Family) Unit() string {
	name := strings.TrimSuffix(f.Name, "_total")
	for _, unit := range []string{"seconds", "bytes", "ratio"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}

// WriteReference writes all families as a table.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	for _, f := range All() {
		labels := ""
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, f.Unit(), labels, f.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
