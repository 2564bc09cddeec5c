package api_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/tabular/tabulartest"
	"github.com/csigscope/csigscope/aggregate/table"
)

// TestDocumentedQuestions runs the documentation's curl examples.
func TestDocumentedQuestions(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("curl is not installed: run make deps")
		}
		t.Skip("SKIPPED: curl is not installed: run make deps")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	past := querytest.Fabric(4, 10)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 20), querytest.Findings(past, 20)
	s := newServed(t, 9, func(c *api.Config) {
		c.Reader, c.Fine = past, table.NewFineMemory(c.Memory, fineLength, 2*fineLength, 1<<16)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.window(t, 0)
	url, dir := listen(t, s), t.TempDir()
	examples := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "curl ") { // grpcurl is not installed; TestReflection covers its example
			continue
		}
		examples++
		line = strings.ReplaceAll(strings.TrimSpace(line), "http://127.0.0.1:9465", url)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "curl ", curl+` -sS --noproxy '*' -w '\n%{http_code}' `, 1))
		cmd.Dir = dir
		out, err := cmd.Output()
		body, code, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if strings.Contains(line, "/watch?") || strings.Contains(line, "/changes?") {
			begins := strings.Contains(string(out), "event: snapshot\n") || strings.Contains(string(out), "event: initial\n")
			if !begins || !strings.Contains(string(out), "event: heartbeat\n") {
				t.Errorf("%s: %v %.300s", line, err, out)
			}
			continue
		}
		if strings.Contains(line, "/export") {
			rows := strings.Count(string(out), "\n")
			if name, ok := strings.CutPrefix(line[max(strings.LastIndex(line, " -o "), 0):], " -o "); ok {
				rows = tableRows(t, filepath.Join(dir, name))
			}
			if err != nil || rows < 8 {
				t.Errorf("%s: %v, %d rows: %.300s", line, err, rows, out)
			}
			continue
		}
		var answer map[string]any
		if jsonErr := json.Unmarshal([]byte(body), &answer); err != nil || jsonErr != nil || code != "200" || len(answer) < 3 {
			t.Errorf("%s: %v, %v, status %s: %.300s", line, err, jsonErr, code, body)
		}
		for _, list := range []string{"cells", "locations", "timeline", "groups", "flows", "findings"} {
			if v, ok := answer[list].([]any); ok && len(v) == 0 {
				t.Errorf("%s: no %s", line, list)
			}
		}
	}
	if examples < 10 {
		t.Errorf("%d examples", examples)
	}
}

// tableRows counts the rows of a table in a file, and the line of names.
func tableRows(t *testing.T, path string) int {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := tabular.Arrow
	if filepath.Ext(path) == ".parquet" {
		f = tabular.Parquet
	}
	rows, _, err := tabulartest.Read(f, body)
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}
