package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// askedServer serves windows in memory, and history.
func askedServer(t *testing.T) string {
	t.Helper()
	memory := table.NewMemory(table.MemoryOptions{})
	for second := range 3 {
		b := tabletest.Block(rand.New(rand.NewPCG(1, 2)), 1, querytest.Start.Add(time.Duration(second)*time.Second), 16, csig.MinABWRatio, csig.MaxDelay)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		memory.Publish()
	}
	past := querytest.Fabric(4, 10)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 30), querytest.Findings(past, 30)
	a, err := api.New(api.Config{Memory: memory, Names: tabletest.Names{Racks: 4}, Reader: past, ExportRows: 50})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return server.URL
}

func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(t.Output())
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestAskServer: questions to a server print what it answers, under the columns of a store's.
func TestAskServer(t *testing.T) {
	server := "--server=" + askedServer(t)
	const past = "--from=2026-01-20T09:00:00Z --to=2026-01-20T09:00:10Z"
	for args, tt := range map[string]struct {
		rows int
		has  []string
	}{
		"cells":                            {16, []string{"src_group", "mean", "unit", "mode"}},
		"cells --src rack1 --windows 3":    {4, []string{"heavy_share"}},
		"cells " + past:                    {12, []string{"mode_share"}},
		"locations --top 3":                {3, []string{"location", "heavy_mean", "cells"}},
		"locations --level device " + past: {8, []string{"location", "heavy_mean", "cells"}},
		"timeline --src rack1 --top 2":     {6, []string{"window_start", "location", "completeness"}},
		"timeline --src rack1 --dst rack2 --step 5s " + past:     {6, []string{"congested"}},
		"flows --signal max_delay --top 7":                       {7, []string{"src", "src_port", "proto", "heavy", "location"}},
		"flows --signal max_delay --src rack1 " + past:           {27, []string{"dst_group"}},
		"findings --severity error,warning --top 1000":           {20, []string{"severity", "kind", "id", "evidence"}},
		"findings --kind rogue-insertion --device leaf1 " + past: {3, []string{"device", "location"}},
		"path --src rack1 --dst rack2":                           {1, []string{"room", "limit", "age_s", "completeness", "mode_share"}},
		"path --src rack1 --dst rack2 --signal min_abw " + past:  {1, []string{"room", "candidates", "runner_up"}},
	} {
		text, err := runCommand(t, append([]string{"query"}, append(strings.Fields(args), server, "-o", "json")...)...)
		var rows []map[string]any
		if err != nil || json.Unmarshal([]byte(text), &rows) != nil || len(rows) != tt.rows {
			t.Errorf("%s: %d rows, want %d, %v: %.300s", args, len(rows), tt.rows, err, text)
			continue
		}
		for _, name := range tt.has {
			if rows[0][name] == nil {
				t.Errorf("%s: no %s in %v", args, name, rows[0])
			}
		}
		if text, err = runCommand(t, append([]string{"query"}, append(strings.Fields(args), server, "-o", "csv")...)...); err != nil {
			t.Errorf("%s as CSV: %v", args, err)
		}
		if lines, err := csv.NewReader(strings.NewReader(text)).ReadAll(); err != nil || len(lines) != tt.rows+1 {
			t.Errorf("%s as CSV: %d lines, %v", args, len(lines), err)
		}
	}
	for args, says := range map[string]string{
		"flows --level device " + server:          "leave out one of them",
		"findings --store none " + server:         "leave out one of them",
		"findings --severity high " + server:      "severity",
		"locations --resolution 1s " + server:     "leave out one of them",
		"path --src nobody --dst rack1 " + server: "no such group",
		"path --src rack1 " + server:              "dst",
		"export --table x " + server:              "expected cells, windows",
		"export --step 1s " + server:              "table=windows",
	} {
		if _, err := runCommand(t, append([]string{"query"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}

// TestQueryExport: tables go to standard output or a file; one that is cut off is an error.
func TestQueryExport(t *testing.T) {
	server := "--server=" + askedServer(t)
	text, err := runCommand(t, "query", "export", server, "--src", "rack1")
	if err != nil || strings.Count(text, "\n") != 5 || !strings.HasPrefix(text, "from,to,signal,") {
		t.Errorf("%v: %s", err, text)
	}
	path := filepath.Join(t.TempDir(), "table")
	for args, magic := range map[string]string{
		"--table windows --windows 2 -o parquet":    "PAR1",
		"--table flows --signal max_delay -o arrow": "\xff\xff\xff\xff",
		"--table findings":                          "kind,id,severity",
	} {
		_, err := runCommand(t, append([]string{"query", "export", server, "--out", path}, strings.Fields(args)...)...)
		body, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || !strings.HasPrefix(string(body), magic) {
			t.Errorf("%s: %v, %v: %.20q", args, err, readErr, body)
		}
	}
	before, _ := os.ReadFile(path)
	if _, err := runCommand(t, "query", "export", server, "--out", path, "--signal", "max_nothing"); err == nil {
		t.Error("a refused question: no error")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a refused question has changed the file")
	}
	_, err = runCommand(t, "query", "export", server, "--out", path, "--table", "windows", "--from=2026-01-20T09:00:00Z", "--to=2026-01-20T09:00:10Z", "--step=1s")
	if body, _ := os.ReadFile(path); err == nil || !strings.Contains(err.Error(), "50 rows, cut off by the limit on rows") || bytes.Count(body, []byte("\n")) != 51 {
		t.Errorf("cut off: %v, %d lines", err, bytes.Count(body, []byte("\n")))
	}
}
