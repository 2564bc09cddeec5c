package main

import (
	littleendian "encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/report"
)

// TestReport writes reports of a fabric with every fault, and of one without.
func TestReport(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "rogue", "--set", "duration=2600ms")
	args := []string{"report", e.dir, "--fabric", e.fabric()}
	html := filepath.Join(t.TempDir(), "r.html")
	r := runBinary(t, os.Environ(), append(args, "--out", html, "--fail-on", "error")...)
	text, err := os.ReadFile(html)
	if r.code != exitFound || err != nil || !strings.Contains(string(text), "forged-value, 10.0.2.4") || !strings.Contains(string(text), "locator-alone, spine1:down1") {
		t.Errorf("exit code %d, %v: %s", r.code, err, r.stderr)
	}
	got := decodeJSON[report.Report](t, mustRun(t, os.Environ(), append(args, "-o", "json", "--out", "-")...))
	if len(got.Signals) != 4 || len(got.Findings) < 5 || got.Signals[0].Congested == 0 || len(got.Signals[0].Heat.Starts) < 100 {
		t.Errorf("%d signals, %d findings", len(got.Signals), len(got.Findings))
	}
	summary := decodeJSON[summaryOutput](t, mustRun(t, os.Environ(), append([]string{"replay", "--store", "none", "-o", "json", "--fabric", e.fabric()}, e.captures(t)...)...))
	for _, c := range got.Counts {
		if c.Name == "stored" && c.N != summary.Observations.Stored {
			t.Errorf("%d observations, a replay says %d", c.N, summary.Observations.Stored)
		}
	}
	job := emit(t, "--scenario", "ring", "--set", "duration=9s")
	rhythms := decodeJSON[report.Report](t, mustRun(t, os.Environ(), "report", job.dir, "--fabric", job.fabric(), "-o", "json", "--out", "-"))
	found := 0
	for _, s := range rhythms.Signals {
		for _, r := range s.Rhythms {
			if found++; r.PeriodNS < 985e6 || r.PeriodNS > 1015e6 {
				t.Errorf("%s to %s repeats every %d ns, want 1 s", r.Src, r.Dst, r.PeriodNS)
			}
		}
	}
	if found == 0 {
		t.Error("the steps of a ring are not found")
	}
	markdown := mustRun(t, os.Environ(), append(args, "-o", "markdown", "--out", "-")...)
	if !strings.Contains(markdown, "**error: forged-value**, 10.0.2.4") || !strings.Contains(markdown, "rack1.pcapng: ") {
		t.Errorf("%.2000s", markdown)
	}
	clean := emit(t, "--scenario", "quickstart", "--set", "duration=1s")
	if bare := mustRun(t, os.Environ(), "report", clean.dir, "-o", "markdown", "--out", "-"); !strings.Contains(bare, "10.0.1.0/24") || strings.Contains(bare, "group ") {
		t.Errorf("without a fabric file:\n%.2000s", bare)
	}
	if r := runBinary(t, os.Environ(), "report", clean.dir, "--fabric", clean.fabric(), "--out", html, "--fail-on", "info"); r.code != exitDone {
		t.Errorf("without a fault: exit code %d: %s", r.code, r.stderr)
	}
	config := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), "findings: {senders: [10.0.1.0/24]}\n")
	if r := runBinary(t, os.Environ(), "report", clean.dir, "--fabric", clean.fabric(), "--out", html, "--fail-on", "error", "--config", config); r.code != exitFound {
		t.Errorf("with senders in the configuration: exit code %d: %s", r.code, r.stderr)
	}
}

// TestReportWithoutTimes: a report of captures without times has none, in any form.
func TestReportWithoutTimes(t *testing.T) {
	t.Parallel()
	e := emit(t, "--scenario", "rogue", "--set", "duration=1s")
	for _, path := range e.captures(t) {
		removeTimes(t, path)
	}
	for format, want := range map[string]string{"html": ">At an unknown time", "markdown": "observations, at an unknown time.", "json": `"note": "packets without a time"`} {
		text := mustRun(t, os.Environ(), "report", e.dir, "--fabric", e.fabric(), "-o", format, "--out", "-")
		if !strings.Contains(text, want) || strings.Contains(text, "1970-") || strings.Contains(text, "0001-") || !strings.Contains(text, "forged-value") {
			t.Errorf("%s does not say %q, or has a time:\n%.3000s", format, want, text)
		}
	}
}

// removeTimes makes simple packet blocks of the enhanced ones of a pcapng file.
func removeTimes(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	word := littleendian.LittleEndian
	for len(b) > 0 {
		block := b[:word.Uint32(b[4:])]
		b = b[len(block):]
		if word.Uint32(block) == 6 {
			captured := word.Uint32(block[20:])
			data := block[28 : 28+(captured+3)/4*4]
			n := uint32(16 + len(data))
			block = word.AppendUint32(word.AppendUint32(word.AppendUint32(nil, 3), n), word.Uint32(block[24:]))
			block = word.AppendUint32(append(block, data...), n)
		}
		out = append(out, block...)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReportUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "no capture file given"},
		{[]string{"a.pcap", "-o", "pdf"}, exitUsage, "expected html, json or markdown"},
		{[]string{"a.pcap", "--fail-on", "fatal"}, exitUsage, "expected error, warning or info"},
		{[]string{"a.pcap", "--place", "above"}, exitUsage, "expected receiver, mid, sender or outside"},
		{[]string{"a.pcap", "--max-steps", "1"}, exitUsage, "expected 2 to 100000"},
		{[]string{"a.pcap", "--senders", "10"}, exitUsage, "expected a prefix"},
		{[]string{"a.pcap", "--memory", "1KiB"}, exitUsage, "expected a size of at least 1MiB"},
		{[]string{"a.pcap", "--spill", "perhaps"}, exitUsage, "expected auto, always or never"},
		{[]string{"missing.pcap"}, exitFailed, "missing.pcap"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"report"}, test.args...)...)
		if r.code != test.code || !strings.Contains(r.stderr, test.says) {
			t.Errorf("%v: exit code %d: %s", test.args, r.code, r.stderr)
		}
	}
}
