package emitter

import (
	"fmt"
	"io"
	"strings"
)

// describeTraffic writes what the scenario's workloads send and where it is captured.
func describeTraffic(out io.Writer, s *Scenario, t *topology) error {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		st, err := s.style(w)
		if err != nil {
			return err
		}
		parts := []string{"workload " + w.Kind}
		if w.Rate > 0 {
			parts = append(parts, "at "+w.Rate.String())
		}
		if w.Period > 0 {
			parts = append(parts, fmt.Sprintf("for %s of every %s", w.Burst, w.Period))
		}
		if w.Interval > 0 {
			parts = append(parts, "every "+w.Interval.String())
		}
		if w.Control != OpenLoop {
			parts = append(parts, "controlled by "+string(w.Control))
		}
		fmt.Fprintln(out, strings.Join(append(parts, "over "+st.String()), " "))
	}
	places, err := placeTaps(s, t.points())
	if err != nil {
		return err
	}
	said := func(i int) string {
		return fmt.Sprintf(": %s, %s%s", places[i].place, counted(len(places[i].ports), "link"), places[i].flaws())
	}
	for i, lines := 0, 0; i < len(places); i, lines = i+1, lines+1 {
		if lines == maxTapLines {
			fmt.Fprintf(out, "and %d more taps\n", len(places)-i)
			break
		}
		name := "tap " + places[i].Name
		for first := i; i+1 < len(places) && said(i+1) == said(first); i++ {
			name = "each of taps " + places[first].Name + " to " + places[i+1].Name
		}
		fmt.Fprintln(out, name+said(i))
	}
	return nil
}

const maxTapLines = 32

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String is the style for people: "IPv4 in vxlan in IPv6 between leaves".
func (s style) String() string {
	text := fmt.Sprintf("IPv%d", s.ip)
	if s.pony {
		text = "pony over UDP over " + text
	}
	if s.encap == encapNone {
		return text
	}
	text += " in " + encapNames[s.encap]
	if s.encap.outerIP() {
		text += fmt.Sprintf(" in IPv%d", s.underlay)
	}
	if s.leaves {
		return text + " between leaves"
	}
	return text
}

// flaws are what is special about a tap, after a comma.
func (t *Tap) flaws() string {
	var b strings.Builder
	for _, f := range []struct {
		name, value string
		some        bool
	}{
		{"clock ahead by", t.Offset.String(), t.Offset != 0},
		{"drift", fmt.Sprintf("%d ppb", t.Drift), t.Drift != 0},
		{"jitter", t.Jitter.String(), t.Jitter != 0},
		{"loses", t.Loss.String(), t.Loss != 0},
		{"duplicates", t.Duplicate.String(), t.Duplicate != 0},
		{"reorders", t.Reorder.String(), t.Reorder != 0},
		{"ERSPAN type", fmt.Sprint(t.ERSPAN), t.ERSPAN != 0},
	} {
		if f.some {
			b.WriteString(", " + f.name + " " + f.value)
		}
	}
	return b.String()
}
