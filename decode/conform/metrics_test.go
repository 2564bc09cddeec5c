package conform

import (
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// With local metrics values are judged: written values, missing ones, and those written although
// there was nothing to write.
func TestValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		metrics func(l *lab) *Metrics
		spoil   func(l *lab, f *flight)
		broken  string
	}{
		{"as measured", nil, nil, ""},
		{"half of what is measured", nil, func(l *lab, f *flight) {
			if f.tagged && f.tag.LM == l.own && f.tag.T == 0 {
				f.tag.S /= 2
			}
		}, "written-value"},
		{"never", nil, nil, "missed-update"},
		{"without metrics", func(l *lab) *Metrics {
			return l.read("0,eth0,min_abw,\n0,eth0,min_abw_ratio,\n0,eth0,max_delay,\n0,eth0,max_nqd,\n")
		}, nil, "fail-open"},
		{"of another port", func(l *lab) *Metrics { return l.read("0,eth1,min_abw,\n") }, nil, ""},
		{"of a later time", func(l *lab) *Metrics { return l.read("2026-01-01T00:00:00Z,eth0,min_abw,1Gbps\n") }, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, uecWide, 3)
			before := l.send(3000)
			after := l.forward(before)
			if l.cfg.Metrics = l.metrics(3 * time.Millisecond); test.metrics != nil {
				l.cfg.Metrics = test.metrics(l)
			}
			was := byNumber(before)
			for i := range after {
				if test.spoil != nil {
					test.spoil(l, &after[i])
				}
				if test.name == "never" {
					after[i].tag = was[after[i].number].tag
				}
			}
			r := l.judge(before, after)
			if broken(r) != test.broken {
				t.Errorf("breaks %q, want %q: %+v", broken(r), test.broken, r.Counts)
			}
			without := strings.HasPrefix(test.name, "of a")
			if without && r.Counts.NoMetric == 0 {
				t.Error("what has no metric is not counted as not judged")
			}
			if r.WithMetrics == without {
				t.Errorf("values were checked: %t", r.WithMetrics)
			}
		})
	}
}

// TestFewCodes: an initial value beyond the last code of a table is looser than it.
func TestFewCodes(t *testing.T) {
	t.Parallel()
	domain := networkWith(t, csig.DefaultSpec().Overlay(csig.Spec{Tables: []csig.TableSpec{{
		Format: "compact", Profile: "ietf01", Signal: "min_abw_ratio", Buckets: []string{"0%-10%", "10%-20%", "20%-50%", "50%"},
	}}}))
	layout := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	l := newLab(t, layout, 1)
	for _, test := range []struct {
		value string
		s     uint32
		want  Rule // NumRules if none is broken
	}{
		{"70%", 3, NumRules}, {"70%", 31, NumRules}, {"15%", 1, NumRules}, {"15%", 31, MissedUpdate}, {"15%", 3, WrittenValue}, {"", 3, FailOpen}, {"", 31, NumRules},
	} {
		rule, is := l.read("0,eth0,min_abw_ratio,"+test.value+"\n").judge("eth0", domain.Table(layout, 1), 31, &sighting{tagState: tagState{Tag: csig.Tag{S: test.s}}, time: 5}, false)
		if is != (test.want != NumRules) || is && rule != test.want {
			t.Errorf("%q and S %d: breaks %t, %s", test.value, test.s, is, rule.Info().Name)
		}
	}
}

func (l *lab) read(rows string) *Metrics {
	m, err := ReadMetrics(strings.NewReader("time,port,signal,value\n"+rows), time.Millisecond)
	if err != nil {
		l.Fatal(err)
	}
	return m
}

func TestMetricsFile(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		`"time,port,value,signal": ex`: "time,port,value,signal\n",
		`"a,b": expected time,port,`:   "a,b\n",
		"empty: expected time,port,":   "",
		"line 3":                       "time,port,signal,value\n5,eth0,min_abw,1Gbps\nyesterday,eth0,min_abw,1Gbps\n",
		"signal":                       "time,port,signal,value\n5,eth0,speed,1Gbps\n",
		"RFC 3339":                     "time,port,signal,value\n05:00,eth0,min_abw,1Gbps\n",
		"1678 to 2262":                 "time,port,signal,value\n9999-12-31T00:00:00Z,eth0,min_abw,1Gbps\n",
		"line 2: wrong number of fiel": "time,port,signal,value\n5,eth0,min_abw\n",
		"quantity":                     "time,port,signal,value\n5,eth0,min_abw,fast\n",
	} {
		if _, err := ReadMetrics(strings.NewReader(text), 0); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want an error with %q", text, err, name)
		}
	}
	m, err := ReadMetrics(strings.NewReader("time,port,signal,value\n2026-11-20T10:00:00.5Z,up1,max_delay,18us\n7,up2,min_abw,\n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []series{{"up1", csig.MaxDelay}, {"up2", csig.MinABW}} {
		if len(m.samples[want]) != 1 {
			t.Errorf("%v: samples %v", want, m.samples)
		}
	}
}

// TestOutdatedMetrics: times in seconds, read as ns, are long before all packets.
func TestOutdatedMetrics(t *testing.T) {
	t.Parallel()
	const now = int64(1767225600e9)
	for _, test := range []struct {
		rows   string
		packet int64 // Unix ns
		want   bool
	}{
		{"1767225600,eth0,min_abw,1Gbps\n1767225601,eth0,min_abw,2Gbps\n", now, true},
		{"0,eth0,min_abw,1Gbps\n", now, false},                                                             // holds from then on
		{"2025-12-31T22:00:00Z,eth0,min_abw,1Gbps\n2025-12-31T23:00:00Z,eth0,min_abw,2Gbps\n", now, false}, // did not change since
		{"0,eth0,min_abw,1Gbps\n1000,eth0,min_abw,2Gbps\n", 5000, false},                                   // the clock of a laboratory
	} {
		l := newLab(t, uecWide, 3)
		before := l.send(100)
		for i := range before {
			before[i].time += test.packet
		}
		l.cfg.Metrics = l.read(test.rows)
		l.judge(before, l.forward(before))
		if latest, is := l.cfg.Metrics.Outdated(); is != test.want {
			t.Errorf("%q: outdated %t, the latest %s; want %t", test.rows, is, latest, test.want)
		}
	}
}
